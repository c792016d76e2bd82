//! The lock of a task's standing, and the check whether a task lives.

use super::super::object::slot_of;
use super::super::task_table::TaskTable;
use crate::atomic::Ordering::{Acquire, Relaxed};
use crate::mutex::{Acquired, RawError};
use crate::region::wait_record::{Standing, WaitRecord};
use core::ops::Deref;

/// A task's standing, locked. Until this is dropped the slot gets no other task, even if the task dies: its successor
/// [waits for](WaitRecord::wait_for_writers) this lock.
pub(super) struct LockedStanding<'a>(&'a Standing);

impl<'a> LockedStanding<'a> {
    /// `None` if there is no such task.
    #[inline]
    pub(super) fn new<T: TaskTable>(tasks: &'a T, task: u64) -> Option<Self> {
        let standing = &tasks.record(slot_of(task))?.standing;
        let held = Self::take(standing)?;
        living(tasks, task).map(|_| held)
    }

    #[inline]
    fn take(standing: &'a Standing) -> Option<Self> {
        // SAFETY: a slot stays where it is, as long as the region is mapped.
        match unsafe { standing.lock.lock_raw(None) } {
            Ok(Acquired::Clean) => {}
            Ok(Acquired::OwnerDied) => {
                // The dead owner may have cleared the flag without setting it again.
                standing.inherits.store(1, Relaxed);
                standing.lock.mark_consistent();
            }
            Err(RawError::Unavailable(_)) => return None,
            Err(_) => crate::fatal(format_args!(
                "a semaphore was used by a signal handler that interrupted its use"
            )),
        }
        Some(Self(standing))
    }
}

impl Deref for LockedStanding<'_> {
    type Target = Standing;

    #[inline]
    fn deref(&self) -> &Standing {
        self.0
    }
}

impl Drop for LockedStanding<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `take` has locked it, and only this value unlocks it.
        unsafe { self.0.lock.unlock_raw() };
    }
}

/// The record of a living task.
#[inline]
pub(crate) fn living<T: TaskTable>(tasks: &T, task: u64) -> Option<&WaitRecord> {
    let record = tasks.record(slot_of(task))?;
    (record.task.load(Acquire) == task && tasks.is_alive(task)).then_some(record)
}
