use latchwork::region::TornSafe;

#[derive(TornSafe)]
#[repr(u32)]
enum Either {
    Number(u64),
    Flag(bool),
}

fn main() {}
