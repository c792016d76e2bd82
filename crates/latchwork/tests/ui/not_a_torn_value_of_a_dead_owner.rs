// error[E0599]: the method `make_consistent` exists for struct `latchwork::mutex::OwnerDied<'_, latchwork::region::Vec<Elephant>>`, but its trait bounds were not satisfied

use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::{Shareable, Vec};
use std::pin::Pin;

#[derive(Shareable)]
#[repr(C)]
struct Elephant(char);

fn succeed(elephants: Pin<&Mutex<Vec<Elephant>, Robust>>) {
    if let Err(LockError::OwnerDied(died)) = elephants.lock() {
        died.make_consistent();
    }
}

fn main() {}
