// error[E0277]: `&'static str` cannot be placed in a region

use latchwork::region::Shareable;

#[derive(Shareable)]
#[repr(C)]
struct Pointing {
    number: u32,
    text: &'static str,
}

fn main() {}
