//! The guard of a priority mutex, and the results of a lock call.
//!
//! Invariants
//! 1. A [`PriorityGuard`] is made by the task that took the lock, and its data is whole.
//! 2. A lock call gives access to data that an owner left torn only through an [`OwnerDied`], which says so.
//!
//! A guard records its owner's identity. In the child of a fork, where no lock is held, its drop aborts.
#![allow(unsafe_code)]

use super::lock::Lock;
use super::shared::Shared;
use crate::mutex::LockFailure;
use crate::region::{AttachError, Edit, Relocatable, TornSafe};
use crate::semaphore::{Priority, Refusal};
use crate::torn_safe;
use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::pin::Pin;

/// Why a lock call of a priority mutex returned no ordinary guard.
///
/// The error may hold the lock. `?` converts it into a [`LockFailure`], or a `Box<dyn Error>`, which do not hold it.
#[non_exhaustive]
pub enum LockError<'r, T: ?Sized> {
    /// The last owner died, or panicked, while it held the lock. The calling task holds it now: repair the data and
    /// call [`OwnerDied::make_consistent`], or drop the guard to make the lock not recoverable.
    OwnerDied(OwnerDied<'r, T>),
    /// An owner died and the next owner released the lock without repairing the data. No task can acquire it any more.
    NotRecoverable,
    /// Another task holds it (`try_lock`).
    WouldBlock,
    /// The deadline passed.
    TimedOut,
    /// The calling task holds it already; or it would wait for itself, in a cycle of any length.
    Deadlock,
    /// The task must not use it, or cannot be one of the region's.
    Refused(PriorityFault),
}

/// Why a task cannot have a priority mutex.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PriorityFault {
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

impl<T: ?Sized> From<Refusal> for LockError<'_, T> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::WouldBlock => Self::WouldBlock,
            Refusal::TimedOut => Self::TimedOut,
            // Nothing flushes it.
            Refusal::Deleted | Refusal::NoObject | Refusal::Flushed => Self::NotRecoverable,
            Refusal::Deadlock => Self::Deadlock,
            Refusal::AboveCeiling { own, ceiling } => Self::Refused(PriorityFault::AboveCeiling {
                own: Priority::recorded(own),
                ceiling: Priority::recorded(ceiling),
            }),
            Refusal::Attach(error) => Self::Refused(error.into()),
        }
    }
}

impl<T: ?Sized> fmt::Display for LockError<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OwnerDied(_) => "the owner of the lock died while it held it",
            Self::NotRecoverable => {
                "the lock is not recoverable: its owner died and the data was not repaired"
            }
            Self::WouldBlock => "the lock is held by another task",
            Self::TimedOut => "the deadline passed before the lock was free",
            Self::Deadlock => "waiting for the lock would be a deadlock",
            Self::Refused(fault) => return fault.fmt(formatter),
        })
    }
}

impl<T: ?Sized> fmt::Debug for LockError<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl<T: ?Sized> From<LockError<'_, T>> for LockFailure<PriorityFault> {
    /// Releases the lock, if the error holds it; see [`OwnerDied::pass_on`].
    fn from(error: LockError<'_, T>) -> Self {
        match error {
            LockError::OwnerDied(died) => {
                died.pass_on();
                Self::OwnerDied
            }
            LockError::NotRecoverable => Self::NotRecoverable,
            LockError::WouldBlock => Self::WouldBlock,
            LockError::TimedOut => Self::TimedOut,
            LockError::Deadlock => Self::Deadlock,
            LockError::Refused(fault) => Self::Refused(fault),
        }
    }
}

macro_rules! boxed {
    ($($error:ty),*) => {$(
        impl<T: ?Sized> From<LockError<'_, T>> for Box<$error> {
            /// As a [`LockFailure`].
            fn from(error: LockError<'_, T>) -> Self {
                LockFailure::from(error).into()
            }
        }
    )*};
}
boxed!(dyn Error, dyn Error + Send + Sync);

/// The right to use the data of a priority mutex; dropping it releases the lock, to the waiter of the best priority.
///
/// It dereferences to a `&mut T` only if `T` is `Unpin`, as numbers and structs of numbers are. Containers of a region
/// are not, and so cannot be swapped: a kill in the middle would leave two owners of their memory. They are changed
/// in their place, through [`edit`](Self::edit) or [`as_mut`](Self::as_mut).
///
/// If it is dropped while its thread panics, the lock is released as inconsistent: the next owner gets
/// [`LockError::OwnerDied`]. (This is so even if a destructor acquired the lock during the panic.) Forgetting it leaves
/// the mutex locked until the process ends. In the child of a fork it belongs to the parent: dropping it there aborts.
///
/// It stays with its thread:
///
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<latchwork::semaphore::PriorityGuard<'static, u32>>();
/// ```
#[must_use = "the lock is released immediately if the guard is not kept"]
pub struct PriorityGuard<'r, T: ?Sized> {
    mutex: &'r Shared<T>,
    lock: Lock<'r, T>,
    /// The identity of the task that acquired the lock.
    owner: u64,
    not_send: PhantomData<*const ()>,
}

latchwork_sync::lends_data!({} PriorityGuard<'_, T>, {}, {+ Unpin});
latchwork_sync::edits_in_place!({} PriorityGuard<'_, T>, mutex);

impl<'r, T: ?Sized> PriorityGuard<'r, T> {
    #[inline(always)]
    pub(super) fn new(lock: Lock<'r, T>, owner: u64) -> Self {
        Self {
            mutex: lock.shared,
            lock,
            owner,
            not_send: PhantomData,
        }
    }

    /// In the child of a fork the guard belongs to the parent: this aborts there.
    fn assert_owned(&self) {
        self.lock.owner_of_guard(self.owner);
    }

    fn robust(&self) -> HeldLock<'r, T> {
        HeldLock(self.lock, self.owner)
    }

    /// Nothing: the release reports itself.
    #[allow(clippy::unused_self)]
    fn report_releasing(&self) {}
}

impl<T: ?Sized> Drop for PriorityGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // The data is whole, unless the thread panics: an `OwnerDied` becomes a guard only when its holder declares the data
        // whole.
        self.lock.release(self.owner, std::thread::panicking());
    }
}

/// A lock that is held by the task with this identity.
struct HeldLock<'r, T: ?Sized>(Lock<'r, T>, u64);

impl<T: ?Sized> HeldLock<'_, T> {
    /// Nothing: the word says no more that the owner before this one died.
    #[allow(clippy::unused_self)]
    fn mark_consistent(&self) {}

    /// # Safety
    /// The calling task holds the lock, and does not use it any more.
    unsafe fn unlock_inconsistent(&self) {
        self.0.release(self.1, true);
    }

    /// # Safety
    /// As for [`Self::unlock_inconsistent`].
    unsafe fn release_not_recoverable(&self) {
        self.0.end_for_ever(self.1);
    }
}

/// A priority mutex taken from a dead owner, with data that may be torn.
///
/// The owner died between any two of its instructions. For a `T` that is [`TornSafe`] the
/// data can be read as it is and repaired; any other `T` must be [replaced](Self::replace) whole, or declared whole by
/// unsafe code. Dropping this guard makes the lock not recoverable. (If a panic drops it, the lock stays inconsistent,
/// and the next owner may repair the data; so it is after [`Self::pass_on`].)
#[must_use = "dropping it unrepaired makes the lock not recoverable"]
pub struct OwnerDied<'r, T: ?Sized> {
    guard: ManuallyDrop<PriorityGuard<'r, T>>,
}

latchwork_sync::methods_of_owner_died!({} {} PriorityGuard, mutex);
