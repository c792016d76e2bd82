//! What a task waits for, from its slot.

use crate::atomic::Ordering::Relaxed;
use crate::region::task_table::Slot;
use crate::region::wait_record::{STATE, WAITING};

/// What a task waits for, from the region's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskWait {
    /// For a semaphore.
    Semaphore {
        /// The semaphore's address.
        address: u64,
        /// The recorded priority at which it waits.
        priority: u32,
        /// Orders waiters of the same semaphore and priority.
        ticket: u64,
    },
    /// For a message.
    Message {
        /// The address of the queue.
        queue: u64,
        /// Orders waiters of the same queue.
        arrival: u64,
    },
    /// For events.
    Events {
        /// The events.
        events: u32,
        /// Whether it waits for all of them, or for any.
        all: bool,
        /// Those of them that are pending.
        pending: u32,
        /// Whether they are system events, of the layers below the application.
        system: bool,
    },
}

/// Relaxed throughout: a copy in our own memory.
pub(super) fn of(slot: &Slot) -> Option<TaskWait> {
    let record = &slot.wait;
    if record.word.load(Relaxed) & STATE == WAITING {
        return Some(TaskWait::Semaphore {
            address: record.object.load(Relaxed),
            priority: record.priority.load(Relaxed),
            ticket: record.ticket.load(Relaxed),
        });
    }
    let inbox = &slot.inbox;
    let queue = inbox.queue.load(Relaxed) as u64;
    if queue != 0 && inbox.given.load(Relaxed) == 0 {
        return Some(TaskWait::Message {
            queue,
            arrival: inbox.arrival.load(Relaxed),
        });
    }
    let sets = [(&slot.events.user, false), (&slot.events.system, true)];
    sets.into_iter().find_map(|(set, system)| {
        let (events, all, pending) = set.wanted()?;
        Some(TaskWait::Events {
            events,
            all,
            pending,
            system,
        })
    })
}
