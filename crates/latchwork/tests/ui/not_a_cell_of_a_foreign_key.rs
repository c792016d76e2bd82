// error[E0277]
//! The cell of a key is what the container says: a record of another one could name memory that goes before the log does.

use latchwork::region::{Cells, Vec};
use std::sync::atomic::AtomicU64;

struct Mine;

static ELSEWHERE: AtomicU64 = AtomicU64::new(0);

impl Cells<Mine> for Vec<AtomicU64> {
    fn cell(&self, _: &Mine) -> Option<&AtomicU64> {
        Some(&ELSEWHERE)
    }
}

fn main() {}
