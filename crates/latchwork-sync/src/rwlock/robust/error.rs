//! Why a robust reader/writer lock was not acquired.

use super::owner_died::OwnerDied;
use crate::mutex::{LockFailure, RawError};
use crate::task::TaskError;
use core::error::Error;
use core::fmt;

/// Why a robust reader/writer lock was not acquired in the ordinary way.
///
/// The error may hold the lock. Converted by `?` to a [`LockFailure`] or a `Box<dyn Error>`, it does not.
#[non_exhaustive]
pub enum LockError<'a, T: ?Sized, const READERS: usize = 16> {
    /// A writer died, or panicked, inside. The lock is held *to write*, even if the call was to read: repair
    /// the data and call [`OwnerDied::make_consistent`], or drop the guard to give the lock up for ever.
    OwnerDied(OwnerDied<'a, T, READERS>),
    /// A writer died and its successor gave the lock up. No task can acquire it any more.
    NotRecoverable,
    /// Other tasks hold it, or are just entering (`try_read`, `try_write`).
    WouldBlock,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran (`read_interruptible`, `write_interruptible`).
    Interrupted,
    /// The calling task holds the lock already and would wait for itself, or might: a task that reads is
    /// refused a second read lock while others are entering or waiting, or all seats are taken.
    Deadlock,
    /// The calling task holds as many robust locks as the kernel would release at its death.
    TooManyHeld,
    /// The calling thread cannot own robust locks on this system.
    Unavailable(TaskError),
}

impl<T: ?Sized, const READERS: usize> fmt::Display for LockError<'_, T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OwnerDied(_) => "a writer died while it held the lock",
            Self::NotRecoverable => {
                "the lock is not recoverable: a writer died and the data was not repaired"
            }
            Self::WouldBlock => "the lock is held by another task",
            Self::Interrupted => "a signal handler ran",
            Self::TimedOut => "the deadline passed before the lock was free",
            Self::Deadlock => "the calling task holds the lock already",
            Self::TooManyHeld => "the calling task holds too many robust locks",
            Self::Unavailable(error) => return error.fmt(formatter),
        })
    }
}

impl<T: ?Sized, const READERS: usize> fmt::Debug for LockError<'_, T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl<T: ?Sized, const READERS: usize> From<LockError<'_, T, READERS>> for LockFailure {
    /// Releases the lock, if the error holds it; see [`OwnerDied::pass_on`].
    fn from(error: LockError<'_, T, READERS>) -> Self {
        match error {
            LockError::OwnerDied(died) => {
                died.pass_on();
                Self::OwnerDied
            }
            LockError::NotRecoverable => Self::NotRecoverable,
            LockError::WouldBlock => Self::WouldBlock,
            LockError::TimedOut => Self::TimedOut,
            LockError::Interrupted => Self::Interrupted,
            LockError::Deadlock => Self::Deadlock,
            LockError::TooManyHeld => Self::TooManyHeld,
            LockError::Unavailable(error) => Self::Unavailable(error),
        }
    }
}

impl<T: ?Sized, const READERS: usize> From<LockError<'_, T, READERS>> for Box<dyn Error> {
    /// As a [`LockFailure`].
    fn from(error: LockError<'_, T, READERS>) -> Self {
        LockFailure::from(error).into()
    }
}

impl<T: ?Sized, const READERS: usize> From<LockError<'_, T, READERS>>
    for Box<dyn Error + Send + Sync>
{
    /// As a [`LockFailure`].
    fn from(error: LockError<'_, T, READERS>) -> Self {
        LockFailure::from(error).into()
    }
}

impl<T: ?Sized, const READERS: usize> From<RawError> for LockError<'_, T, READERS> {
    fn from(error: RawError) -> Self {
        match error {
            RawError::WouldBlock => Self::WouldBlock,
            RawError::TimedOut => Self::TimedOut,
            RawError::Interrupted => Self::Interrupted,
            RawError::NotRecoverable => Self::NotRecoverable,
            RawError::Deadlock => Self::Deadlock,
            RawError::TooManyHeld => Self::TooManyHeld,
            RawError::Unavailable(error) => Self::Unavailable(error),
        }
    }
}
