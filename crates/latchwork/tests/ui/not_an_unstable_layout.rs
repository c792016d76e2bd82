// error: a Shareable type needs a fixed layout: add #[repr(C)], #[repr(transparent)], or for an enum an integer such as #[repr(u32)]

use latchwork::region::Shareable;

#[derive(Shareable)]
struct Loose {
    small: u8,
    large: u64,
}

fn main() {}
