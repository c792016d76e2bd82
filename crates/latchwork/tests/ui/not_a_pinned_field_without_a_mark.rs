// error: mark the fields that are used pinned, such as robust locks, with #[pin]

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::PinnedFields;

#[derive(PinnedFields)]
struct Bank {
    a: Mutex<u64, Robust>,
}

fn main() {}
