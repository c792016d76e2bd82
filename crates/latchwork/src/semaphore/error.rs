//! The errors of semaphore operations: first those of the code below the handles.

#[cfg(not(loom))]
pub use of_handles::*;

use crate::task::TaskError;

/// The reason why an obtain failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    Task(TaskError),
}

/// The reason why nothing was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseRefusal {
    Deleted,
    NotOwner,
    Overflow,
    Task(TaskError),
}

/// The reason why nothing was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseRefusal {
    Deleted,
    InUse,
    Task(TaskError),
}

macro_rules! from_task_error {
    ($($refusal:ident)*) => { $(
        impl From<TaskError> for $refusal {
            fn from(error: TaskError) -> Self {
                Self::Task(error)
            }
        }
    )* };
}

from_task_error!(Refusal ReleaseRefusal UseRefusal);

#[cfg(not(loom))]
mod of_handles {
    use super::{Refusal, ReleaseRefusal, UseRefusal};
    use crate::region::{AttachError, ObjectError};
    use crate::semaphore::Priority;

    /// The reason why a semaphore was not created or opened.
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

    impl From<AttachError> for SemaphoreError {
        fn from(error: AttachError) -> Self {
            Self::Object(error.into())
        }
    }

    /// The reason why a semaphore was not obtained.
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
                Refusal::Task(error) => Self::Attach(error.into()),
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

    impl From<ReleaseRefusal> for ReleaseError {
        fn from(refusal: ReleaseRefusal) -> Self {
            match refusal {
                ReleaseRefusal::Deleted => Self::Deleted,
                ReleaseRefusal::NotOwner => Self::NotOwner,
                ReleaseRefusal::Overflow => Self::Overflow,
                ReleaseRefusal::Task(error) => Self::Attach(error.into()),
            }
        }
    }

    /// The reason why a semaphore was not flushed or deleted, or its ceiling not changed.
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
    impl From<UseRefusal> for UseError {
        fn from(refusal: UseRefusal) -> Self {
            match refusal {
                UseRefusal::Deleted => Self::Deleted,
                UseRefusal::InUse => Self::InUse,
                UseRefusal::Task(error) => Self::Attach(error.into()),
            }
        }
    }
}
