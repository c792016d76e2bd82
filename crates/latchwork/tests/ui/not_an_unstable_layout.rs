use latchwork::region::Shareable;

#[derive(Shareable)]
struct Loose {
    small: u8,
    large: u64,
}

fn main() {}
