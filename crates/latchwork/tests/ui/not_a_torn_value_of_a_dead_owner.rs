use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::{Shareable, Vec};
use std::pin::Pin;

#[derive(Shareable)]
#[repr(C)]
struct Elephant(char);

fn main() {
    let names: Pin<&Mutex<Vec<Elephant>, Robust>> = todo!();
    if let Err(LockError::OwnerDied(died)) = names.lock() {
        died.make_consistent();
    }
}
