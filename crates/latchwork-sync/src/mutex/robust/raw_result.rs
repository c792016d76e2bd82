//! The results of a lock call without a guard.

use crate::mutex::Unfinished;
use crate::task::TaskError;
use core::convert::Infallible;

/// How a robust lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Acquired {
    Clean,
    OwnerDied,
}

/// Why a robust lock was not taken.
#[doc(hidden)]
#[allow(missing_docs, reason = "hidden; see `LockError`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawError<F = Infallible> {
    /// See [`LockError`], here and below.
    WouldBlock,
    TimedOut,
    Interrupted,
    NotRecoverable,
    Deadlock,
    TooManyHeld,
    Unavailable(TaskError),
    Refused(F),
}

impl<F> From<Unfinished> for RawError<F> {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::TimedOut => Self::TimedOut,
            Unfinished::Interrupted => Self::Interrupted,
        }
    }
}
