// error[E0277]: `List<u64>` is a container, or has one in it: mark the field with #[pin] and derive PinnedFields

use latchwork::region::{List, TornSafe};

#[derive(TornSafe)]
struct Jobs {
    list: List<u64>,
}

impl Unpin for Jobs {}

fn main() {}
