//! The door through which the loom models reach a task's pending events.
#![allow(unsafe_code)]

use crate::atomic::AtomicU64;
use crate::region::events::{Condition, Set};
use crate::sys::futex::{self, Sharing, Wait};
use crate::time::Deadline;

/// `region/events.rs`, with the futex in place of `region/park.rs`.
#[derive(Default)]
pub struct Events(Set);

impl Events {
    /// A new task's empty set.
    pub fn begin(&self, generation: u32) {
        self.0.begin(generation);
    }

    /// Sends; returns whether that took a system call, or `None` if the task is gone.
    pub fn send(&self, to: u32, events: u32) -> Option<bool> {
        let wake = self.0.send(to, events)?;
        let needed = wake.0.is_some();
        wake.carry_out();
        Some(needed)
    }

    /// Whether the task waits for events and was given none.
    pub fn is_awaited(&self) -> bool {
        self.0.wanted().is_some()
    }

    /// The task's pending events.
    pub fn pending(&self) -> u32 {
        self.0.pending()
    }

    /// Receives at least one of `events`, or `all` of them; `None` at the deadline.
    pub fn receive(&self, events: u32, all: bool, deadline: Option<Deadline>) -> Option<u32> {
        let condition = if all { Condition::all } else { Condition::any };
        let sleep = |word: &AtomicU64, seen| {
            let (ended, _) = futex::wait_high(word, seen, u32::MAX, Sharing::Shared, deadline);
            (ended != Wait::TimedOut).then_some(()).ok_or(())
        };
        self.0.receive(condition(events), None, sleep).ok()
    }
}
