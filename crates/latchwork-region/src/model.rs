//! The door through which the loom models reach a task's pending events.
#![allow(unsafe_code)]

use crate::region::events;
use crate::sys::futex;
use crate::time::Deadline;

/// `region/events.rs`, with the futex in place of `region/park.rs`.
#[derive(Default)]
pub struct Events(events::Set);

impl Events {
    /// A new task's empty set.
    pub fn begin(&self, generation: u32) {
        self.0.begin(generation);
    }

    /// Sends; returns whether that took a system call, or `None` if the task is gone.
    pub fn send(&self, to: u32, events: u32) -> Option<bool> {
        let wake = self.0.send(to, events)?;
        let needed = wake.is_needed();
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
        let condition = if all {
            events::Condition::all(events)
        } else {
            events::Condition::any(events)
        };
        let sleep = |word: &crate::atomic::AtomicU64, seen| match futex::wait_high(
            word,
            seen,
            u32::MAX,
            futex::Sharing::Shared,
            deadline,
        ) {
            (futex::Wait::TimedOut, _) => Err(()),
            _ => Ok(()),
        };
        self.0.receive(condition, sleep).ok()
    }
}
