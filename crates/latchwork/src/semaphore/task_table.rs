//! What semaphores need of their region; a model has an implementation of its own.

use crate::atomic::AtomicU32;
use crate::region::Parked;
use crate::region::wait_record::WaitRecord;
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
    /// Sleeps, as the calling task, while the word of its record holds the value, at most until `until`. No death ends
    /// this sleep.
    #[cfg(not(loom))]
    fn sleep_alone(&self, word: &AtomicU32, value: u32, until: Deadline);
    /// Sets a task's priority in the kernel; returns whether the kernel accepted it.
    fn mirror(&self, slot: u16, priority: u32) -> bool;
    /// A task's priority has changed: other objects that it may wait for order it by priority, too.
    fn priority_changed(&self, _slot: u16, _priority: u32) {}
}

#[cfg(not(loom))]
mod of_region {
    use super::*;
    use crate::region::Inner;
    use crate::region::heap::Owner;
    use crate::region::wait_record::real_time;
    use crate::sys::futex::{self, Sharing};
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
            match self.task() {
                Ok(task) => {
                    self.park_cancellable(task, &[(word, value)], deaths, deadline)
                        .0
                }
                // Not reached: a waiter is a task.
                Err(_) => Parked::Again,
            }
        }

        fn sleep_alone(&self, word: &AtomicU32, value: u32, until: Deadline) {
            futex::wait(word, value, Sharing::Shared, Some(until));
        }

        fn priority_changed(&self, slot: u16, priority: u32) {
            if let Some(slot) = self.slots().get(usize::from(slot)) {
                slot.inbox.set_priority(priority);
            }
        }

        fn mirror(&self, slot: u16, priority: u32) -> bool {
            // If the kernel refuses, the recorded priority still counts.
            self.thread_in(slot).is_some_and(|tid| {
                crate::sys::scheduling::set_priority_of(tid, real_time(priority)).is_ok()
            })
        }
    }
}
