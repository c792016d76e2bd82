//! Why a robust lock was not taken, without the lock: the error into which `?` converts a lock call's error. And what
//! the errors of robust mutexes and of robust reader/writer locks have in common, with and without the lock.
//!
//! A lock call's own error may hold the lock, and borrows it; so it is no [`Error`](core::error::Error), and `?` cannot
//! return it as it is. `?` can return a [`LockFailure`]; the conversion to it releases the lock.

use crate::task::TaskError;
use core::convert::Infallible;

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

/// What the error types of robust locks have in common: their texts, and their conversion into a [`LockFailure`].
/// `$sendable`: the parameters, if the error goes into a `Box<dyn Error>`; `$refused`: the variant for a failure of the
/// protocol; `$too_many`: `TooManyHeld`, if it occurs; `$unavailable`: what `Unavailable` is in a `LockFailure`.
macro_rules! lock_error {
    (
        {$($parameters:tt)*} {$($sendable:tt)*} $error:ty, $fault:ty,
        {$($refused:ident)?} {$($too_many:ident)?} $unavailable:ident,
        $owner_died:literal, $not_recoverable:literal, $deadlock:literal
    ) => {
        impl<$($parameters)*> fmt::Display for $error {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(match self {
                    Self::OwnerDied(_) => $owner_died,
                    Self::NotRecoverable => $not_recoverable,
                    Self::WouldBlock => "the lock is held by another task",
                    Self::Interrupted => "a signal handler ran",
                    Self::TimedOut => "the deadline passed before the lock was free",
                    Self::Deadlock => $deadlock,
                    $(Self::$too_many => "the calling task holds too many robust locks",)?
                    Self::Unavailable(error) => return error.fmt(formatter),
                    $(Self::$refused(fault) => return fault.fmt(formatter),)?
                })
            }
        }

        impl<$($parameters)*> fmt::Debug for $error {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, formatter)
            }
        }

        impl<$($parameters)*> $crate::mutex::NoGuard for $error {
            const DEADLOCK: Self = Self::Deadlock;

            fn holds_lock(&self) -> bool {
                matches!(self, Self::OwnerDied(_))
            }

            fn would_wait(&self) -> bool {
                matches!(self, Self::WouldBlock | Self::Deadlock)
            }
        }

        impl<$($parameters)*> From<$error> for LockFailure<$fault> {
            /// Releases the lock, if the error holds it; see [`OwnerDied::pass_on`].
            fn from(error: $error) -> Self {
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
                    $(LockError::$too_many => Self::$too_many,)?
                    LockError::Unavailable(error) => Self::$unavailable(error),
                    $(LockError::$refused(fault) => Self::$refused(fault),)?
                }
            }
        }

        lock_error!(@boxed {$($sendable)*} $error, dyn Error);
        lock_error!(@boxed {$($sendable)*} $error, dyn Error + Send + Sync);
    };
    (@boxed {$($sendable:tt)*} $error:ty, $boxed:ty) => {
        impl<$($sendable)*> From<$error> for Box<$boxed> {
            /// As a [`LockFailure`].
            fn from(error: $error) -> Self {
                LockFailure::from(error).into()
            }
        }
    };
}
pub(crate) use lock_error;

/// Conversion of a `RawError` into a lock call's error, variant by variant.
macro_rules! from_raw_error {
    ({$($parameters:tt)*} $raw:ty, $error:ty, {$($same:ident)*} {$($with:ident)*}) => {
        impl<$($parameters)*> From<$raw> for $error {
            fn from(error: $raw) -> Self {
                match error {
                    $(RawError::$same => Self::$same,)*
                    $(RawError::$with(error) => Self::$with(error),)*
                }
            }
        }
    };
}
pub(crate) use from_raw_error;

/// Implements all but the definition of `OwnerDied<'a, T, $parameters>`, whose field `guard` is a `ManuallyDrop` of the
/// `$guard` with the field `$lock`.
#[doc(hidden)]
#[macro_export]
macro_rules! methods_of_owner_died {
    ({$($bounds:tt)*} {$($parameters:tt)*} $guard:ident, $lock:ident) => {
        impl<'a, T: ?Sized, $($bounds)*> OwnerDied<'a, T, $($parameters)*> {
            pub(super) fn new(guard: $guard<'a, T, $($parameters)*>) -> Self {
                Self { guard: ManuallyDrop::new(guard) }
            }

            fn into_guard(self) -> $guard<'a, T, $($parameters)*> {
                // In the child of a fork the guard belongs to the parent: this aborts there.
                self.guard.assert_owned();
                let mut this = ManuallyDrop::new(self);
                this.guard.robust().mark_consistent();
                // SAFETY: `this` is never dropped, so the guard is moved out once.
                unsafe { ManuallyDrop::take(&mut this.guard) }
            }

            /// Releases the lock with the data as it is: the next owner gets `LockError::OwnerDied`, too.
            pub fn pass_on(self) {
                let this = ManuallyDrop::new(self);
                this.guard.assert_owned();
                this.guard.report_releasing();
                // SAFETY: this guard holds the lock, and neither it nor the inner one is dropped.
                unsafe { this.guard.robust().unlock_inconsistent() }
            }

            /// Declares the data whole, whatever its type, and returns an ordinary guard.
            ///
            /// # Safety
            /// The data is a valid value of `T`, although its last owner stopped between two instructions.
            pub unsafe fn make_consistent_unchecked(self) -> $guard<'a, T, $($parameters)*> {
                self.into_guard()
            }
        }

        impl<'a, T, $($bounds)*> OwnerDied<'a, T, $($parameters)*> {
            /// The data as memory that may or may not hold a value.
            pub fn as_uninit(&self) -> &MaybeUninit<T> {
                // SAFETY: the guard holds the lock, and `MaybeUninit` promises nothing of the content.
                unsafe { &*self.guard.$lock.data.get().cast() }
            }

            /// As [`Self::as_uninit`], for a repair in place.
            ///
            /// # Safety
            /// If `T` is [`TornSafe`], the caller writes only valid values, each at a place of its type: safe code can
            /// read them from then on. The caller treats the value as pinned.
            pub unsafe fn as_uninit_mut(&mut self) -> &mut MaybeUninit<T> {
                // SAFETY: the guard holds the lock and is borrowed exclusively; `MaybeUninit` promises nothing of the
                // content.
                unsafe { &mut *self.guard.$lock.data.get().cast() }
            }

            /// Writes a new value in place of the torn one, which is not dropped, and returns an ordinary guard.
            pub fn replace(self, value: T) -> $guard<'a, T, $($parameters)*> {
                self.guard.assert_owned();
                let place = self.guard.$lock.data.get();
                // SAFETY: the guard holds the lock. The old data may be no value of `T`: it is overwritten, not
                // dropped.
                unsafe { torn_safe::overwrite(place, ManuallyDrop::new(value)) };
                self.into_guard()
            }
        }

        impl<'a, T: ?Sized + TornSafe, $($bounds)*> OwnerDied<'a, T, $($parameters)*> {
            #[doc = concat!("The data, pinned, for a repair before [`Self::make_consistent`]: see [`", stringify!($guard), "::as_mut`].")]
            pub fn as_mut(&mut self) -> Pin<&mut T>
            where
                T: Relocatable,
            {
                self.guard.as_mut()
            }

            #[doc = concat!("The editor of the data: see [`", stringify!($guard), "::edit`].")]
            pub fn edit(&mut self) -> T::Editor<'_>
            where
                T: Relocatable + Edit,
            {
                self.guard.edit()
            }

            /// Declares the data repaired, and returns an ordinary guard.
            pub fn make_consistent(self) -> $guard<'a, T, $($parameters)*> {
                self.into_guard()
            }
        }

        impl<T: ?Sized + TornSafe, $($bounds)*> Deref for OwnerDied<'_, T, $($parameters)*> {
            type Target = T;
            fn deref(&self) -> &T {
                &self.guard
            }
        }

        impl<T: ?Sized + TornSafe + Unpin, $($bounds)*> DerefMut for OwnerDied<'_, T, $($parameters)*> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.guard
            }
        }

        impl<T: ?Sized, $($bounds)*> fmt::Debug for OwnerDied<'_, T, $($parameters)*> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("OwnerDied")
            }
        }

        impl<T: ?Sized, $($bounds)*> Drop for OwnerDied<'_, T, $($parameters)*> {
            fn drop(&mut self) {
                self.guard.assert_owned();
                self.guard.report_releasing();
                let lock = self.guard.robust();
                // SAFETY: this guard holds the lock, and the inner guard is never dropped itself.
                unsafe {
                    if std::thread::panicking() {
                        lock.unlock_inconsistent();
                    } else {
                        lock.release_not_recoverable();
                    }
                }
            }
        }
    };
}
pub(crate) use methods_of_owner_died;
