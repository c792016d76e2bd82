//! What a task waits for at a message queue: a part of its slot, so that whoever hands out messages
//! finds those who wait, and still does when a crash has cost it its own lists.
//!
//! | `queue` | `given` | meaning |
//! | --- | --- | --- |
//! | 0 | 0 | the task waits at no queue |
//! | address | 0 | it waits for a message of that queue |
//! | address | cell + 1 | it has been given that cell, and need not wait |
//!
//! Everything here changes under the lock of the queue's receivers, which orders it: by the task itself, from 0 to
//! a cell by whoever gives, and from an address to 0 by whoever deletes the queue; but for `urgency`, which whoever
//! changes the task's priority changes at any time, and which decides nothing but who is served first. `given`
//! is also slept on.
//!
//! *Whose inbox is it?* Who gives has seen the task alive under that lock, and may outlive it: so the slot's next
//! task goes through that lock of the queue that a dead one waited at before it settles in, and nobody else empties
//! a dead task's inbox. Until it has settled in it waits nowhere, whatever the inbox says.
#![allow(unsafe_code)]

use super::Inner;
use super::heap::Owner;
use super::wait_record::pass_through;
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::mutex::Robust;

/// Where in it a queue has its receivers' lock.
pub(crate) const LOCK: usize = 0;

/// See the module.
#[repr(C)]
pub(crate) struct Inbox {
    pub(crate) queue: AtomicUsize,
    pub(crate) arrival: AtomicU64,
    pub(crate) urgency: AtomicU32,
    pub(crate) given: AtomicU32,
}

impl Inbox {
    /// How urgent a task of a priority is, 1 to 255 with the highest first; higher numbers are served first.
    pub(crate) const fn urgency_of(priority: u32) -> u32 {
        256_u32.saturating_sub(priority)
    }

    /// The task's priority has changed: should it wait, its place in an order by priority is another one.
    pub(crate) fn follow(&self, priority: u32) {
        // Release: behind the priority itself, which a task that begins to wait looks at after its own store.
        self.urgency
            .store(Self::urgency_of(priority), Ordering::Release);
    }

    /// The task waits for nothing.
    pub(crate) fn reset(&self) {
        // Relaxed: ordered by the queue's lock, or by the life-word of a slot's new task.
        self.queue.store(0, Ordering::Relaxed);
        self.given.store(0, Ordering::Relaxed);
    }
}

impl Inner {
    /// Waits until nobody is at work any more on what a dead task has left in its inbox. For the slot's next task.
    pub(super) fn outlast_inbox(&self, inbox: &Inbox) {
        // Relaxed: behind the life-word of a task that is dead. 0 if that left in good order.
        let queue = inbox.queue.load(Ordering::Relaxed);
        if self.addresses().contains(&queue) {
            let lock = self.base().as_ptr().with_addr(queue + LOCK);
            // SAFETY: a queue of this region, which is mapped; queues are never moved or freed.
            pass_through(unsafe { &*lock.cast::<Robust>() });
        }
    }

    /// The living tasks that wait at a queue, with or without having been given something.
    pub(crate) fn waiters(&self, queue: usize) -> impl Iterator<Item = (Owner, &Inbox)> {
        self.slots()[..usize::from(self.slots_used())]
            .iter()
            // Relaxed, here and below: see above.
            .filter(move |slot| slot.inbox.queue.load(Ordering::Relaxed) == queue)
            .filter_map(move |slot| {
                // Acquire: who sees that a task has settled in sees that it waits nowhere.
                let owner = Owner::from_raw(slot.wait.task.load(Ordering::Acquire))?;
                let waits = slot.inbox.queue.load(Ordering::Relaxed) == queue;
                (waits && self.is_alive(owner)).then_some((owner, &slot.inbox))
            })
    }
}
