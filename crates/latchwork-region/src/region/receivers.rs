//! The tasks that wait at a message queue, found by their [inboxes](super::inbox).
#![allow(unsafe_code)]

use super::Inner;
use super::heap::Owner;
use super::inbox::{Inbox, LOCK as QUEUE_LOCK};
use super::wait_record::pass_through;
use crate::atomic::Ordering;
use crate::mutex::Robust;

impl Inner {
    /// Waits until no task can still write to the inbox of a dead task. For the slot's next task.
    pub(super) fn wait_for_inbox_writers(&self, inbox: &Inbox) {
        // Relaxed: read after the life-word of a dead task. The address is 0 if that task left in an orderly way.
        let queue = inbox.queue.load(Ordering::Relaxed);
        if self.addresses().contains(&queue) {
            let lock = self.base().as_ptr().with_addr(queue + QUEUE_LOCK);
            // SAFETY: a queue of this region, which is mapped; queues are never moved or freed.
            pass_through(unsafe { &*lock.cast::<Robust>() });
        }
    }

    /// The living tasks that wait at a queue, whether or not they were given a message.
    pub fn waiters(&self, queue: usize) -> impl Iterator<Item = (Owner, &Inbox)> {
        self.used_slots()
            .iter()
            // Relaxed, here and below: the lock of the queue's receivers orders it.
            .filter(move |slot| slot.inbox.queue.load(Ordering::Relaxed) == queue)
            .filter_map(move |slot| {
                // Acquire: a reader that sees the identity of a new task sees that the task waits nowhere.
                let owner = Owner::from_raw(slot.wait.task.load(Ordering::Acquire))?;
                let waits = slot.inbox.queue.load(Ordering::Relaxed) == queue;
                (waits && self.is_alive(owner)).then_some((owner, &slot.inbox))
            })
    }
}
