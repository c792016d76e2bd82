//! What semaphores need of their region, for which a model has an implementation of its own; the calling task.

use super::{AttachError, Core, object::slot_of};
use crate::atomic::{AtomicU32, Ordering::Relaxed};
use crate::backoff::{BEFORE_QUEUE, FIRST_POLLS};
use crate::mutex::in_region::RawError;
use crate::mutex::{Acquired, InRegion};
use crate::region::Parked;
use crate::region::wait_record::{BUSY, LOWEST, WaitRecord};
use crate::time::Deadline;

/// The tasks of a region, by their numbers: slot and generation.
pub(crate) trait TaskTable {
    /// The record in a slot, if there is such a slot.
    fn record(&self, slot: u16) -> Option<&WaitRecord>;
    /// The number of slots that were ever used: slots from this one on never were.
    fn used(&self) -> u16;
    fn is_alive(&self, task: u64) -> bool;
    /// See `region/park.rs`.
    fn deaths(&self) -> u32;
    /// Settles dead tasks before any task sees what they left.
    fn settle_deaths(&self);
    /// Sleeps, as the calling task, while the word of its record holds the value and no task dies.
    fn park(&self, word: &AtomicU32, value: u32, deaths: u32, deadline: Option<Deadline>)
    -> Parked;
    /// Sets a task's priority in the kernel; returns whether the task lives and the kernel accepted it.
    fn mirror(&self, task: u64, priority: u32) -> bool;
    /// A task's priority has changed: other objects that it may wait for order it by priority, too.
    fn priority_changed(&self, _slot: u16, _priority: u32) {}
}

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
    pub(crate) fn new(task: crate::region::Task<'a>) -> Self {
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

/// A task's access to a semaphore.
pub(crate) struct Access<'a, T> {
    pub(crate) tasks: &'a T,
    pub(crate) core: &'a Core,
    /// See `object.rs`.
    pub(crate) key: u64,
    pub(crate) caller: Caller<'a>,
}

impl<'a, T> Access<'a, T> {
    /// The fields, in their order.
    pub(super) fn parts(&self) -> (&'a T, &'a Core, u64, Caller<'a>) {
        (self.tasks, self.core, self.key, self.caller)
    }
}

/// Takes a small lock of semaphores.
#[inline]
pub(super) fn take_lock(lock: &InRegion) -> Result<Acquired, AttachError> {
    lock.lock_raw().map_err(|error| match error {
        RawError::Unavailable(error) => error.into(),
        // No task marks it so; a corrupted file may.
        #[cfg(not(loom))]
        RawError::NotRecoverable => {
            AttachError::Damaged("a lock of a semaphore is not recoverable")
        }
        _ => crate::fatal(format_args!(
            "a semaphore was used by a signal handler that interrupted its use"
        )),
    })
}

#[cfg(not(loom))]
mod of_region {
    use super::*;
    use crate::region::Inner;
    use crate::region::heap::Owner;
    use crate::region::wait_record::real_time;
    use crate::sys::scheduling::{Scheduling, set_priority_of};
    use std::sync::Arc;

    impl TaskTable for Arc<Inner> {
        #[inline]
        fn record(&self, slot: u16) -> Option<&WaitRecord> {
            self.slots().get(usize::from(slot)).map(|slot| &slot.wait)
        }

        fn used(&self) -> u16 {
            self.slots_used()
        }

        fn is_alive(&self, task: u64) -> bool {
            Owner::from_raw(task).is_some_and(|owner| Inner::is_alive(self, owner))
        }

        fn deaths(&self) -> u32 {
            Inner::deaths(self)
        }

        fn settle_deaths(&self) {
            // If this task cannot, others will.
            let _ = self.sweep();
        }

        fn park(
            &self,
            word: &AtomicU32,
            value: u32,
            deaths: u32,
            deadline: Option<Deadline>,
        ) -> Parked {
            // The error is not reached: a waiter is a task.
            self.task().map_or(Parked::Again, |task| {
                self.park_cancellable(task, &[(word, value)], deaths, deadline)
                    .0
            })
        }

        fn priority_changed(&self, slot: u16, priority: u32) {
            if let Some(slot) = self.slots().get(usize::from(slot)) {
                slot.inbox.set_priority(priority);
            }
        }

        fn mirror(&self, task: u64, priority: u32) -> bool {
            let Some(thread) = self.thread_in(slot_of(task)) else {
                return false;
            };
            // The caller's own ID is no other thread's: such a call needs one system call.
            let is_own = crate::task::Me::current_or_none().tid() == thread;
            let before = (!is_own).then(|| Scheduling::of(thread).ok()).flatten();
            // The slot may be another task's, and the thread ID another thread's.
            if !TaskTable::is_alive(self, task) {
                return false;
            }
            // If the kernel refuses, the recorded priority still counts.
            if set_priority_of(thread, real_time(priority)).is_err() {
                return false;
            }
            let is_its = TaskTable::is_alive(self, task);
            if !is_its && let Some(before) = before {
                // The ID may be another thread's by now.
                let _ = before.apply_to(thread);
            }
            is_its
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::TaskTable;
    use crate::region::RegionOptions;
    use crate::sys::scheduling::Scheduling;
    use crate::sys::thread;
    use std::sync::mpsc::channel;

    #[test]
    fn a_priority_is_set_for_the_task_that_is_meant_and_not_for_its_successor() {
        let region = RegionOptions::new().max_bytes(1 << 20).max_tasks(2);
        let region = region.create_anonymous().unwrap();
        region.join("main").unwrap();
        let inner = region.inner();
        let join = || inner.task().unwrap().owner();
        std::thread::scope(|scope| {
            let dead = scope.spawn(join).join().unwrap();
            // It has the only slot that is left.
            let ((tell, told), (end, ended)) = (channel(), channel());
            scope.spawn(move || {
                tell.send((join(), thread::thread_id())).unwrap();
                ended.recv().unwrap();
            });
            let (lives, id) = told.recv().unwrap();
            assert_eq!(lives.slot(), dead.slot());
            let scheduling = || Scheduling::of(id).unwrap();
            let before = scheduling();
            assert!(!inner.mirror(dead.raw(), 1));
            assert_eq!(scheduling(), before);
            // Where it is permitted.
            assert_eq!(inner.mirror(lives.raw(), 1), scheduling().priority() > 0);
            end.send(()).unwrap();
        });
    }
}
