// error[E0793]: reference to field of packed struct is unaligned

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::PinnedFields;

#[derive(PinnedFields)]
#[repr(C, packed)]
struct Bank {
    byte: u8,
    #[pin]
    a: Mutex<u64, Robust>,
}

fn main() {}
