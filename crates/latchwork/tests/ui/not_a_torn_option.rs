// error[E0599]: the method `make_consistent` exists for struct

use latchwork::mutex::{LockError, Mutex, Robust};
use std::pin::Pin;

static LAST: Mutex<Option<u64>, Robust> = Mutex::robust(None);

fn main() {
    if let Err(LockError::OwnerDied(died)) = Pin::static_ref(&LAST).lock() {
        drop(died.make_consistent());
    }
}
