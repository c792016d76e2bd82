//! What a task waits for at a message queue: a part of its slot, so that whoever hands out messages
//! finds those who wait, and still does when a crash has cost it its own lists.
//!
//! | `queue` | `given` | meaning |
//! | --- | --- | --- |
//! | 0 | 0 | the task waits at no queue |
//! | address | 0 | it waits for a message of that queue |
//! | address | cell + 1 | it has been given that cell, and need not wait |
//!
//! Everything here changes under the queue's lock, which orders it: by the task itself, and from 0 to
//! a cell by whoever gives. `given` is also slept on.

use super::Inner;
use super::heap::Owner;
use super::task_table::Life;
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// See the module.
#[repr(C)]
pub(crate) struct Inbox {
    pub(crate) queue: AtomicUsize,
    pub(crate) arrival: AtomicU64,
    pub(crate) urgency: AtomicU32,
    pub(crate) given: AtomicU32,
}

impl Inbox {
    /// The task waits for nothing.
    pub(crate) fn reset(&self) {
        // Relaxed: ordered by the queue's lock, or by the life-word of a slot's new task.
        self.queue.store(0, Ordering::Relaxed);
        self.given.store(0, Ordering::Relaxed);
    }
}

impl Inner {
    /// The living tasks that wait at a queue, with or without having been given something.
    pub(crate) fn waiters(&self, queue: usize) -> impl Iterator<Item = (Owner, &Inbox)> {
        // Acquire: pairs with the Release of `use_slot`.
        let used = self.header().slots_used.load(Ordering::Acquire) as usize;
        self.slots()
            .iter()
            .take(used)
            .enumerate()
            .filter(move |(_, slot)| {
                // Relaxed: see above.
                slot.inbox.queue.load(Ordering::Relaxed) == queue
                    && matches!(slot.life(), Life::Alive(_))
            })
            .map(|(index, slot)| (self.owner_of(index as u16), &slot.inbox))
    }
}
