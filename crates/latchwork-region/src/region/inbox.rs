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
//! slot's next task passes through the lock of the queue that its dead predecessor waited at before it settles in,
//! and no other task empties a dead task's inbox. A task that has not settled in yet does not wait, whatever the
//! inbox contains.
#![allow(unsafe_code)]

use super::Inner;
use super::heap::Owner;
use super::wait_record::pass_through;
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::mutex::Robust;

/// The offset of the receivers' lock in a queue.
#[doc(hidden)]
pub const LOCK: usize = 0;

/// See the module's documentation.
#[repr(C)]
#[doc(hidden)]
pub struct Inbox {
    #[doc(hidden)]
    pub queue: AtomicUsize,
    #[doc(hidden)]
    pub arrival: AtomicU64,
    #[doc(hidden)]
    pub urgency: AtomicU32,
    #[doc(hidden)]
    pub given: AtomicU32,
}

impl Inbox {
    /// The urgency of a task of a priority from 1, the highest, to 255; higher numbers are served first.
    #[doc(hidden)]
    pub const fn urgency_of(priority: u32) -> u32 {
        256_u32.saturating_sub(priority)
    }

    /// Follows a change of the task's priority: if the task waits, its place in an order by priority changes.
    #[doc(hidden)]
    pub fn follow(&self, priority: u32) {
        // Release: after the store of the priority itself, which a task that begins to wait reads after its own store.
        self.urgency
            .store(Self::urgency_of(priority), Ordering::Release);
    }

    /// Resets the inbox: the task waits for nothing.
    #[doc(hidden)]
    pub fn reset(&self) {
        // Relaxed: ordered by the queue's lock, or by the life-word of the slot's new task.
        self.queue.store(0, Ordering::Relaxed);
        self.given.store(0, Ordering::Relaxed);
    }
}

impl Inner {
    /// Waits until no task can still write to the inbox of a dead task. For the slot's next task.
    pub(super) fn outlast_inbox(&self, inbox: &Inbox) {
        // Relaxed: read after the life-word of a dead task. The address is 0 if that task left in an orderly way.
        let queue = inbox.queue.load(Ordering::Relaxed);
        if self.addresses().contains(&queue) {
            let lock = self.base().as_ptr().with_addr(queue + LOCK);
            // SAFETY: a queue of this region, which is mapped; queues are never moved or freed.
            pass_through(unsafe { &*lock.cast::<Robust>() });
        }
    }

    /// The living tasks that wait at a queue, whether or not they were given a message.
    #[doc(hidden)]
    pub fn waiters(&self, queue: usize) -> impl Iterator<Item = (Owner, &Inbox)> {
        self.slots()[..usize::from(self.slots_used())]
            .iter()
            // Relaxed, here and below: the lock of the queue's receivers orders it.
            .filter(move |slot| slot.inbox.queue.load(Ordering::Relaxed) == queue)
            .filter_map(move |slot| {
                // Acquire: a reader that sees that a task has settled in sees that it waits nowhere.
                let owner = Owner::from_raw(slot.wait.task.load(Ordering::Acquire))?;
                let waits = slot.inbox.queue.load(Ordering::Relaxed) == queue;
                (waits && self.is_alive(owner)).then_some((owner, &slot.inbox))
            })
    }
}
