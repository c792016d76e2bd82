//! The task directives that semaphores need: a task's id, and its priority.

use super::handle::{Classic, directive};
use super::status::{CURRENT_PRIORITY, Id, MAXIMUM_PRIORITY, SELF, Status, not_attached};
use super::table::{GENERATION, TASK, id_of, parts_of};
use crate::atomic::Ordering;
use crate::region::wait_record::{BUSY, WaitRecord};
use crate::semaphore::{TaskTable, object::slot_of, priority};
use crate::sys::introspect;

impl<'r> Classic<'r> {
    /// `rtems_task_self`: the calling task's id; 0 if the thread cannot become a task of the region.
    #[must_use]
    pub fn task_self(&self) -> Id {
        self.task_number(SELF).map_or(0, |task| {
            id_of(TASK, (task >> 32) as u32, usize::from(slot_of(task)))
        })
    }

    /// `rtems_task_set_priority`: sets a task's own priority, or only reads its effective one. `old_priority` is the
    /// effective priority, too: with what the task has inherited, and with ceilings. It is returned even if the new
    /// priority is [invalid](Status::InvalidPriority).
    pub fn task_set_priority(
        &self,
        id: Id,
        new_priority: u32,
        old_priority: Option<&mut u32>,
    ) -> Status {
        directive(|| {
            let old_priority = old_priority.ok_or(Status::InvalidAddress)?;
            let (task, record) = self.living(id)?;
            // Relaxed: the value of any moment will do.
            *old_priority = record.standing.effective.load(Ordering::Relaxed) & !BUSY;
            if new_priority > MAXIMUM_PRIORITY {
                return Err(Status::InvalidPriority);
            }
            if new_priority != CURRENT_PRIORITY {
                self.region.inner().task().map_err(not_attached)?;
                priority::set_base(self.region.inner(), task, new_priority);
            }
            Ok(())
        })
    }

    /// Mirrors a task's priority in the kernel from now on, or no longer, as
    /// [`TaskPriority::mirror`](crate::semaphore::TaskPriority::mirror) does; has no effect if that is so already. Not RTEMS's.
    /// In a region for any PID namespace the kernel learns of a task's priority when a task of the same namespace changes it.
    pub fn task_mirror(&self, id: Id, on: bool) -> Status {
        directive(|| {
            let (task, record) = self.living(id)?;
            // Relaxed: the check only saves work.
            if (record.standing.mirrored.load(Ordering::Relaxed) != 0) != on {
                self.region.inner().task().map_err(not_attached)?;
                priority::set_mirrored(self.region.inner(), task, on);
            }
            Ok(())
        })
    }

    /// Whether a task of this PID namespace, which is [mirrored](Self::task_mirror), has no real-time priority in the kernel
    /// although its own is above [the lowest](MAXIMUM_PRIORITY): the process lacks the right to it. Not RTEMS's. A system call.
    #[must_use]
    pub fn task_priority_is_refused(&self, id: Id) -> bool {
        self.living(id).is_ok_and(|(task, record)| {
            // Acquire: the kernel has got a priority before it is stored here.
            let effective = || record.standing.effective.load(Ordering::Acquire) & !BUSY;
            let before = effective();
            let thread = self.region.inner().thread_in(slot_of(task));
            let in_kernel = thread.and_then(introspect::priority_of);
            before < MAXIMUM_PRIORITY && in_kernel == Some(0) && effective() == before
        })
    }

    /// A task that lives, for a change of its priority, and its record.
    pub(super) fn living(&self, id: Id) -> Result<(u64, &'r WaitRecord), Status> {
        let inner = self.region.inner();
        // So that others detect a kill during the call. If it cannot become a task, it can still read.
        let _ = inner.task();
        let task = self.task_number(id)?;
        let record = priority::living(inner, task).ok_or(Status::InvalidId)?;
        Ok((task, record))
    }

    /// Slot and generation of a task.
    pub(super) fn task_number(&self, id: Id) -> Result<u64, Status> {
        let inner = self.region.inner();
        if id == SELF {
            return Ok(inner.task().map_err(not_attached)?.owner().raw());
        }
        let (generation, index) = parts_of(id, TASK).ok_or(Status::InvalidId)?;
        let record = u16::try_from(index)
            .ok()
            .and_then(|slot| inner.record(slot));
        // Acquire: pairs with `WaitRecord::init`.
        let task = record.map_or(0, |record| record.task.load(Ordering::Acquire));
        let is_it = task != 0 && (task >> 32) as u32 & GENERATION == generation;
        is_it.then_some(task).ok_or(Status::InvalidId)
    }
}
