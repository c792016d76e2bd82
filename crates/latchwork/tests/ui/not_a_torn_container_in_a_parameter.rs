// error[E0599]: the method `make_consistent` exists for struct `latchwork::mutex::OwnerDied<'_, Held<latchwork::region::Vec<u64>>>`, but its trait bounds were not satisfied

use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::{TornSafe, Vec};
use std::pin::Pin;

#[derive(TornSafe)]
struct Held<T> {
    data: T,
}

impl<T> Unpin for Held<T> {}

fn succeed(held: Pin<&Mutex<Held<Vec<u64>>, Robust>>) {
    if let Err(LockError::OwnerDied(died)) = held.lock() {
        died.make_consistent();
    }
}

fn main() {}
