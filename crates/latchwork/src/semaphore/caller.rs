//! The calling task, as the code below the handles uses it.

use super::object::slot_of;
use crate::atomic::Ordering::Relaxed;
use crate::backoff::{BEFORE_QUEUE, FIRST_POLLS};
#[cfg(not(loom))]
use crate::region::Task;
use crate::region::wait_record::{BUSY, LOWEST, WaitRecord};

/// The calling task.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// Slot and generation.
    pub(crate) task: u64,
    pub(crate) record: &'a WaitRecord,
}

impl<'a> Caller<'a> {
    /// The calling task, which has this slot of the region.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn new(task: Task<'a>) -> Self {
        Self {
            task: task.owner().raw(),
            record: &task.slot.wait,
        }
    }

    pub(crate) fn slot(self) -> u16 {
        slot_of(self.task)
    }

    /// The number of polls of the semaphore before the queue.
    pub(crate) fn polls_before_queue(self) -> u32 {
        if self.priority() < LOWEST {
            FIRST_POLLS
        } else {
            BEFORE_QUEUE
        }
    }

    /// The effective priority.
    #[inline]
    pub(crate) fn priority(self) -> u32 {
        // Relaxed: the value of any moment will do.
        self.record.standing.effective.load(Relaxed) & !BUSY
    }
}
