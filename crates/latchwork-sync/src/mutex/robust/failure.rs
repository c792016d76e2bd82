//! Why a robust lock was not taken, without the lock: the error into which `?` converts a lock call's error.
//!
//! A lock call's own error may hold the lock, and borrows it; so it is no [`Error`](core::error::Error), and `?` cannot
//! return it as it is. `?` can return a [`LockFailure`]; the conversion to it releases the lock.

use super::{LockError, RobustProtocol};
use crate::task::TaskError;
use core::convert::Infallible;
use core::error::Error;

/// Why a lock call of a robust lock returned no ordinary guard, without the lock.
///
/// `?` converts the errors of robust mutexes and reader/writer locks into it, in functions that return it, a `Box<dyn
/// Error>`, or an error of their own that implements `From` for it. If the owner had died, the lock is released with
/// the data as it is: the owner's death is reported to the next owner, too.
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use std::pin::Pin;
///
/// static TOTAL: Mutex<u64, Robust> = Mutex::robust(0);
///
/// fn add(amount: u64) -> Result<u64, Box<dyn std::error::Error>> {
///     let mut total = Pin::static_ref(&TOTAL).lock()?;
///     *total += amount;
///     Ok(*total)
/// }
/// # assert_eq!(add(2).unwrap(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockFailure<F = Infallible> {
    /// The last owner died while it held the lock, and no later owner has repaired the data yet.
    #[error("the owner of the lock died while it held it, and the data is not repaired")]
    OwnerDied,
    /// An owner died and the next owner released the lock without repairing the data.
    #[error("the lock is not recoverable: its owner died and the data was not repaired")]
    NotRecoverable,
    /// Another task holds it.
    #[error("the lock is held by another task")]
    WouldBlock,
    /// The deadline passed.
    #[error("the deadline passed before the lock was free")]
    TimedOut,
    /// A signal handler ran.
    #[error("a signal handler ran")]
    Interrupted,
    /// The calling task holds it already, or the wait would complete a wait-for cycle.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// The calling task holds as many robust locks as the kernel would release at its death.
    #[error("the calling task holds too many robust locks")]
    TooManyHeld,
    /// The calling thread cannot own robust locks on this system.
    #[error(transparent)]
    Unavailable(TaskError),
    /// The protocol failed, for this reason.
    #[error("{0}")]
    Refused(F),
}

impl<T: ?Sized, P: RobustProtocol> From<LockError<'_, T, P>> for LockFailure<P::Fault> {
    /// Releases the lock, if the error holds it; see [`OwnerDied::pass_on`](super::OwnerDied::pass_on).
    fn from(error: LockError<'_, T, P>) -> Self {
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
            LockError::Refused(fault) => Self::Refused(fault),
        }
    }
}

impl<T: ?Sized, P> From<LockError<'_, T, P>> for Box<dyn Error>
where
    P: RobustProtocol<Fault: Send + Sync + 'static>,
{
    /// As a [`LockFailure`].
    fn from(error: LockError<'_, T, P>) -> Self {
        LockFailure::from(error).into()
    }
}

impl<T: ?Sized, P> From<LockError<'_, T, P>> for Box<dyn Error + Send + Sync>
where
    P: RobustProtocol<Fault: Send + Sync + 'static>,
{
    /// As a [`LockFailure`].
    fn from(error: LockError<'_, T, P>) -> Self {
        LockFailure::from(error).into()
    }
}
