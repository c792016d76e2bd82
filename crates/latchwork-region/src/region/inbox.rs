//! The inbox of a task's slot: the message queue that the task waits at. Since it is part of the slot, a task that
//! hands out messages finds the waiters, even after a crash in which the queue lost its own lists.
//!
//! | `queue` | `given` | meaning |
//! | --- | --- | --- |
//! | 0 | 0 | the task waits at no queue |
//! | address | 0 | it waits for a message of that queue |
//! | address | cell + 1 | it has been given that cell, and need not wait |
//!
//! The fields change under the lock of the queue's receivers, which orders them. The task itself changes them; the
//! task that gives a message changes `given` from 0 to a cell; the task that deletes the queue changes `queue` from
//! an address to 0. The exception is `urgency`: a task that changes this task's priority changes it at any time, and
//! it only decides which waiter is served first. The task also sleeps on `given`.
//!
//! *To which task does an inbox belong?* A giver has seen the task alive under that lock, and may outlive it. So the
//! slot's next task waits for the owner of the lock of the queue that its dead predecessor waited at before it publishes
//! its identity in its wait record (`wait_record.rs` has the argument), and no other task empties a dead task's inbox. A task that has not published it yet
//! is not waiting, even if the inbox names a queue.

use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The offset of the receivers' lock in a queue.
pub const LOCK: usize = 0;

/// See the module's documentation.
#[repr(C)]
#[doc(hidden)]
pub struct Inbox {
    pub queue: AtomicUsize,
    pub arrival: AtomicU64,
    pub urgency: AtomicU32,
    pub given: AtomicU32,
}

impl Inbox {
    /// The urgency of a task of a priority from 1, the highest, to 255; higher numbers are served first.
    pub const fn urgency_of(priority: u32) -> u32 {
        256_u32.saturating_sub(priority)
    }

    /// Follows a change of the task's priority: if the task waits, its place in an order by priority changes.
    #[inline]
    pub fn set_priority(&self, priority: u32) {
        // Release: after the store of the priority itself, which a task that begins to wait reads after its own store.
        self.urgency
            .store(Self::urgency_of(priority), Ordering::Release);
    }

    /// Resets the inbox: the task waits for nothing.
    pub fn reset(&self) {
        // Relaxed: ordered by the queue's lock, or by the life-word of the slot's new task.
        self.queue.store(0, Ordering::Relaxed);
        self.given.store(0, Ordering::Relaxed);
    }
}
