// error[E0277]
//! A container behind a lock of its own can change while the log names one of its cells.

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{Undo, UndoError, Vec};
use std::sync::atomic::AtomicU64;

type Cells = Vec<AtomicU64>;

fn pick(lock: &Mutex<Cells, Robust>) -> &Cells {
    panic!("not run: {lock:p}")
}

fn change(log: &mut Undo<Mutex<Cells, Robust>>) -> Result<(), UndoError> {
    log.begin().store_at(pick, &0, 1)
}

fn main() {
    let _ = change;
}
