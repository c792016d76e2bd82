//! Tasks and their priorities, in the interface of semaphores.

use super::object::slot_of;
use super::priority;
use crate::atomic::{AtomicU32, Ordering::Relaxed};
use crate::region::wait_record::{BUSY, Standing};
use crate::region::{Region, TaskId};
use core::fmt;

/// A priority in RTEMS's numbers: 1 is the highest, 255 the lowest.
///
/// It decides the order of service where that is by priority, and is inherited. The kernel gets it if the task is
/// [mirrored](TaskPriority::mirror): 1 to 98 are then `SCHED_FIFO` 99 to 2, 99 to 254 are `SCHED_FIFO` 1, and 255 is an
/// ordinary task. A real-time thread begins as a task with the priority that it has in the kernel; any other with 255.
///
/// Lower numbers are higher priorities; there is no `Ord` here, since it would be misread.
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

    /// Whether this priority is higher.
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

/// The region has no such task: it has left or died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such task")]
pub struct NoSuchTask;

/// Why a task's priority is not mirrored.
///
/// ```
/// use latchwork::region::RegionOptions;
/// use latchwork::semaphore::{MirrorError, TaskPriority as _};
///
/// let region = RegionOptions::new().any_pid_namespace(true).create_anonymous()?;
/// let task = region.task_id()?;
/// match task.mirror(&region, true) {
///     Err(MirrorError::OtherPidNamespace) => println!("its own namespace must do that"),
///     done => done?,
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// There is no such task: see [`NoSuchTask`].
    #[error("there is no such task")]
    NoSuchTask,
    /// The task belongs to another PID namespace: this one has no ID for its thread. A task of that namespace can mirror it.
    #[error("the task belongs to another PID namespace")]
    OtherPidNamespace,
}

/// A priority of a living task.
fn recorded(
    task: TaskId,
    region: &Region,
    of: impl Fn(&Standing) -> &AtomicU32,
) -> Result<Priority, NoSuchTask> {
    let record = priority::living(region.inner(), task.to_raw()).ok_or(NoSuchTask)?;
    // Relaxed: the value may be stale when the call returns.
    let number = of(&record.standing).load(Relaxed) & !BUSY;
    Ok(Priority::recorded(number))
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::region::TaskId {}
}

/// A task's priority, which decides the order of service, and is inherited: methods of [`TaskId`].
pub trait TaskPriority: sealed::Sealed {
    /// The task's own priority.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    fn priority(self, region: &Region) -> Result<Priority, NoSuchTask>;

    /// The effective priority at this moment: the best of the task's own, of the ceilings of the semaphores that it
    /// owns, and of the effective priorities of the tasks that wait for inheriting semaphores that it owns.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    fn current_priority(self, region: &Region) -> Result<Priority, NoSuchTask>;

    /// Sets the task's own priority; returns the one before. If the task waits, its position in the queue changes at
    /// once, and so does the priority of each task that inherits from it. The calling thread becomes a task of the
    /// region: only a task acquires the lock of another's priority.
    ///
    /// # Errors
    /// [`NoSuchTask`], also if the calling thread cannot become a task: all slots are in use, or it is ending.
    fn set_priority(self, region: &Region, priority: Priority) -> Result<Priority, NoSuchTask>;

    /// Mirrors the task's priority in the kernel from now on, or no longer. This works where the process that changes
    /// the priority has the privilege (`CAP_SYS_NICE`, or an `RLIMIT_RTPRIO`); elsewhere only the recorded priority
    /// counts.
    ///
    /// The library controls a mirrored task's scheduling: its next change overwrites changes by others. Do not lock a
    /// mutex with [`Protect`](crate::mutex::Protect) in such a task. The caller becomes a task, as with
    /// [`Self::set_priority`].
    ///
    /// In a region for any PID namespace, the kernel learns of a change when a task of this task's namespace makes it: a
    /// waiter of another one lends only its recorded priority.
    ///
    /// # Errors
    /// [`MirrorError::NoSuchTask`] where [`Self::set_priority`] says so; [`MirrorError::OtherPidNamespace`].
    fn mirror(self, region: &Region, on: bool) -> Result<(), MirrorError>;
}

impl TaskPriority for TaskId {
    fn priority(self, region: &Region) -> Result<Priority, NoSuchTask> {
        recorded(self, region, |standing| &standing.base)
    }

    fn current_priority(self, region: &Region) -> Result<Priority, NoSuchTask> {
        recorded(self, region, |standing| &standing.effective)
    }

    fn set_priority(self, region: &Region, priority: Priority) -> Result<Priority, NoSuchTask> {
        priority::set_base(region.inner(), self.to_raw(), priority.0.into())
            .map(Priority::recorded)
            .ok_or(NoSuchTask)
    }

    fn mirror(self, region: &Region, on: bool) -> Result<(), MirrorError> {
        let (inner, task) = (region.inner(), self.to_raw());
        let is_alive = priority::living(inner, task).is_some();
        if is_alive && inner.thread_in(slot_of(task)).is_none() {
            return Err(MirrorError::OtherPidNamespace);
        }
        priority::set_mirrored(inner, task, on).ok_or(MirrorError::NoSuchTask)
    }
}
