// error[E0277]: `latchwork::region::Vec<u64>` is a container, or has one in it: mark the field with #[pin] and derive PinnedFields

use latchwork::region::{Shareable, TornSafe, Vec};

#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Account {
    balance: u64,
    history: Vec<u64>,
}

fn main() {}
