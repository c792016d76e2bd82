// error[E0119]: conflicting implementations of trait `Unpin` for type `Bank`

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::PinnedFields;

#[derive(PinnedFields)]
struct Bank {
    #[pin]
    a: Mutex<u64, Robust>,
}

impl Unpin for Bank {}

fn main() {}
