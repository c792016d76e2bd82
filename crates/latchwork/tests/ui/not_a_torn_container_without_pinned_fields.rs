// error[E0277]: `Jobs` has fields with #[pin]: derive PinnedFields, too

use latchwork::region::{List, TornSafe};

#[derive(TornSafe)]
struct Jobs {
    #[pin]
    list: List<u64>,
}

impl Unpin for Jobs {}

fn main() {}
