// error[E0119]: conflicting implementations of trait `ADropCouldMoveAPinnedField` for type `Bank`

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::PinnedFields;

#[derive(PinnedFields)]
struct Bank {
    #[pin]
    a: Mutex<u64, Robust>,
}

impl Drop for Bank {
    fn drop(&mut self) {
        drop(std::mem::replace(&mut self.a, Mutex::robust(0)));
    }
}

fn main() {}
