// error: only a struct has pinned fields

use latchwork::region::PinnedFields;

#[derive(PinnedFields)]
enum Either {
    This(u32),
    That,
}

fn main() {}
