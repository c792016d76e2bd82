// error: only a struct can be TornSafe: a torn enum may have the tag of one variant and the data of another

use latchwork::region::TornSafe;

#[derive(TornSafe)]
#[repr(u32)]
enum Either {
    Number(u64),
    Flag(bool),
}

fn main() {}
