//! What a task waits for, as its slot says.

use crate::atomic::Ordering::Relaxed;
use crate::region::task_table::Slot;
use crate::region::wait_record::{STATE, WAITING};

/// What a task waits for, as the region's table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskWait {
    /// To be handed a semaphore.
    Semaphore {
        /// Its address.
        address: u64,
        /// The recorded priority at which it waits.
        priority: u32,
        /// Orders those who wait for the same one, at the same priority.
        ticket: u64,
    },
    /// For a message.
    Message {
        /// The address of the queue.
        queue: u64,
        /// Orders those who wait for the same one.
        arrival: u64,
    },
    /// For events.
    Events {
        /// Which.
        events: u32,
        /// Whether all of them are to come, or any.
        all: bool,
        /// Those of them that are pending.
        pending: u32,
        /// Whether they are those of the layers below the application.
        system: bool,
    },
}

/// Relaxed throughout: a copy in memory of our own.
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
