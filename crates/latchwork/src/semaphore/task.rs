//! Tasks and their priorities, as the users of semaphores see them.

use super::priority;
use crate::atomic::Ordering;
use crate::region::wait_record::BUSY;
use crate::region::{Region, TaskId};
use core::fmt;

/// A priority in RTEMS's way: 1 is the highest, 255 the lowest.
///
/// It decides who is served first where that goes by priority, and what is inherited. The kernel is told of it
/// if the task is [mirrored](TaskId::mirror): 1 to 98 are then `SCHED_FIFO` 99 to 2, 99 to 254 are `SCHED_FIFO`
/// 1, and 255 is an ordinary task. A real-time thread begins as a task with the priority that it has; any other
/// with 255.
///
/// Lower numbers are higher priorities, so there is no `Ord` here to be mistaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority(u8);

impl Priority {
    /// 1.
    pub const HIGHEST: Self = Self(1);
    /// 255.
    pub const LOWEST: Self = Self(255);

    /// `None` for 0, which is no priority.
    #[must_use]
    pub const fn new(priority: u8) -> Option<Self> {
        match priority {
            0 => None,
            priority => Some(Self(priority)),
        }
    }

    /// As a number, 1 to 255.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether this one comes first.
    #[must_use]
    pub const fn is_higher_than(self, other: Self) -> bool {
        self.0 < other.0
    }

    pub(crate) fn recorded(number: u32) -> Self {
        Self(number.clamp(1, 255) as u8)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// There is no such task in the region: it has left or died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such task")]
pub struct NoSuchTask;

/// Its priority, which decides who is served first, and is inherited.
impl TaskId {
    /// The task's own priority.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    pub fn priority(self, region: &Region) -> Result<Priority, NoSuchTask> {
        let record = priority::living(region.inner(), self.to_raw()).ok_or(NoSuchTask)?;
        // Relaxed: the answer may be stale before it arrives.
        Ok(Priority::recorded(
            record.standing.base.load(Ordering::Relaxed),
        ))
    }

    /// The priority that counts at this moment: the best of its own, of the ceilings of what it owns, and of
    /// those of who waits for what it owns and inherits by.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    pub fn current_priority(self, region: &Region) -> Result<Priority, NoSuchTask> {
        let record = priority::living(region.inner(), self.to_raw()).ok_or(NoSuchTask)?;
        // Relaxed: as above.
        Ok(Priority::recorded(
            record.standing.effective.load(Ordering::Relaxed) & !BUSY,
        ))
    }

    /// Gives the task another priority of its own; returns the one that it had. If it waits, its place in the
    /// queue is another one at once, and so is the priority of whoever inherits from it. The calling thread becomes a
    /// task of the region, if it can: should it be killed over this, others learn of it.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    pub fn set_priority(self, region: &Region, priority: Priority) -> Result<Priority, NoSuchTask> {
        let _ = region.inner().task();
        priority::set_base(region.inner(), self.to_raw(), priority.0.into())
            .map(Priority::recorded)
            .ok_or(NoSuchTask)
    }

    /// Has the kernel told of the task's priority from now on, or no longer, where the process that changes it
    /// has the right to (`CAP_SYS_NICE`, or an `RLIMIT_RTPRIO`); else the recorded priority is all there is.
    ///
    /// A mirrored task's scheduling is the library's: what anybody else makes of it is overwritten with the
    /// next change. Do not lock a mutex with [`Protect`](crate::mutex::Protect) in it. The caller becomes a task, as with
    /// [`Self::set_priority`].
    ///
    /// # Errors
    /// [`NoSuchTask`].
    pub fn mirror(self, region: &Region, on: bool) -> Result<(), NoSuchTask> {
        let _ = region.inner().task();
        priority::set_mirrored(region.inner(), self.to_raw(), on).ok_or(NoSuchTask)
    }
}
