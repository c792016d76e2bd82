use latchwork::region::Shareable;

#[derive(Shareable)]
#[repr(C)]
struct Pointing {
    number: u32,
    text: &'static str,
}

fn main() {}
