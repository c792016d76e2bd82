//! A throughput mutex that counts, for the tests of this lock.
#![allow(dead_code, reason = "not every test uses all of it")]

use core::time::Duration;
use latchwork::mutex::throughput::{Counters, Event};
use latchwork::mutex::{Mutex, Throughput};
use latchwork::sharing::Private;
use std::thread;

pub type Counted = Mutex<u64, Throughput<Private, Counters>>;

/// A threshold with which a top waiter that sleeps has requested the hand-off.
pub const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

pub fn counted(threshold: Option<Duration>) -> Counted {
    Mutex::from_raw(Throughput::counted().hand_off_after(threshold), 0)
}

pub fn count(mutex: &Counted, event: Event) -> u64 {
    mutex.protocol().counters().of(event)
}

pub fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Makes SIGUSR2 end interruptible waits, and do nothing else.
pub fn handle_sigusr2() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
}
