// error[E0308]: mismatched types

#![forbid(unsafe_code)]

use core::mem::MaybeUninit;
use core::pin::Pin;
use latchwork::mutex::{LockError, Mutex, Robust};

static FLAGS: Mutex<[bool; 64], Robust> = Mutex::robust([false; 64]);

fn main() {
    let mut other = MaybeUninit::uninit();
    if let Err(LockError::OwnerDied(mut died)) = Pin::static_ref(&FLAGS).lock() {
        core::mem::swap(died.as_uninit(), &mut other);
        println!("{:?}", *died.make_consistent());
    }
}
