//! Mutexes with ceilings, and the priority inside them.
#![allow(dead_code, reason = "each program uses its part")]

use latchwork::mutex::{Mutex, Protect};
use latchwork_testkit::priority::{Now, now};

pub fn lock(ceiling: u8) -> Mutex<u32, Protect> {
    Mutex::protect(ceiling, 0)
}

/// What a section of this mutex runs at.
pub fn inside(mutex: &Mutex<u32, Protect>) -> Now {
    let _guard = mutex.lock().unwrap();
    now()
}
