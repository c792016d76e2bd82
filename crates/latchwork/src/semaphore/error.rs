//! The errors of semaphore operations.

use super::AttachError;
#[cfg(not(loom))]
use super::Priority;
#[cfg(not(loom))]
use crate::region::ObjectError;

/// The reason why a semaphore was not created or opened.
#[cfg(not(loom))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SemaphoreError {
    /// The region cannot hold it, or has another object of this name.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// There is a semaphore of this name, but of another kind, discipline or protocol.
    #[error("the semaphore of this name is of another kind")]
    OtherKind,
    /// A simple binary semaphore counts to 1.
    #[error("a simple binary semaphore cannot begin with {0}")]
    Count(u32),
    /// A task with a higher priority than the ceiling cannot create it obtained.
    #[error("the task's priority, {own}, is above the ceiling, {ceiling}")]
    AboveCeiling {
        /// The task's priority at present.
        own: Priority,
        /// The ceiling.
        ceiling: Priority,
    },
}

#[cfg(not(loom))]
impl From<AttachError> for SemaphoreError {
    fn from(error: AttachError) -> Self {
        Self::Object(error.into())
    }
}

/// The reason why an obtain failed, in the code below the handles.
#[derive(Debug)]
pub(crate) enum Refusal {
    WouldBlock,
    TimedOut,
    Flushed,
    /// The semaphore was deleted while the task waited.
    Deleted,
    /// There was no semaphore when the call began.
    NoObject,
    Deadlock,
    AboveCeiling {
        own: u32,
        ceiling: u32,
    },
    Attach(AttachError),
}

impl From<AttachError> for Refusal {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

/// The reason why a semaphore was not obtained.
#[cfg(not(loom))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObtainError {
    /// It is not free at this moment. From `try_obtain` only.
    #[error("the semaphore is not free")]
    WouldBlock,
    /// The deadline passed.
    #[error("the deadline passed")]
    TimedOut,
    /// A flush ended the wait.
    #[error("the semaphore was flushed")]
    Flushed,
    /// The semaphore was deleted.
    #[error("the semaphore was deleted")]
    Deleted,
    /// The calling task would wait for itself, in a cycle of any length.
    #[error("waiting would be a deadlock")]
    Deadlock,
    /// A task with a higher priority than its ceiling must not use it.
    #[error("the task's priority, {own}, is above the ceiling, {ceiling}")]
    AboveCeiling {
        /// The task's priority at present.
        own: Priority,
        /// The ceiling.
        ceiling: Priority,
    },
    /// The thread cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

#[cfg(not(loom))]
impl From<Refusal> for ObtainError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::WouldBlock => Self::WouldBlock,
            Refusal::TimedOut => Self::TimedOut,
            Refusal::Flushed => Self::Flushed,
            Refusal::Deleted | Refusal::NoObject => Self::Deleted,
            Refusal::Deadlock => Self::Deadlock,
            Refusal::AboveCeiling { own, ceiling } => Self::AboveCeiling {
                own: Priority::recorded(own),
                ceiling: Priority::recorded(ceiling),
            },
            Refusal::Attach(error) => Self::Attach(error),
        }
    }
}

/// The reason why a semaphore was not released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The calling task does not own it.
    #[error("the task does not own the semaphore")]
    NotOwner,
    /// The count is at its limit, 2³² − 1.
    #[error("the semaphore's count is at its maximum")]
    Overflow,
    /// The semaphore was deleted.
    #[error("the semaphore was deleted")]
    Deleted,
    /// The thread cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// The reason why a semaphore was not flushed or deleted, or its ceiling not changed.
#[cfg(not(loom))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UseError {
    /// The semaphore was deleted.
    #[error("the semaphore was deleted")]
    Deleted,
    /// A task owns it.
    #[error("the semaphore is owned")]
    InUse,
    /// It has no ceiling.
    #[error("the semaphore has no ceiling")]
    NoCeiling,
    /// The thread cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
}
