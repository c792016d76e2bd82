//! The typed interface of region locks: guards, and the results of a lock call.
//!
//! Invariants
//! 1. A [`RegionGuard`] is made by the task that took the lock, and its data is whole. It is made from a pinned mutex, or
//!    `T` is `Unpin`.
//! 2. A lock call gives access to data that an owner left torn only through an [`OwnerDied`], which says so.
//!
//! A guard records its owner's identity. In the child of a fork, where no lock is held, its drop aborts.
#![allow(unsafe_code)]

use super::forms::RawError;
use super::{InRegion, NotATask, RegionProtocol};
use crate::edit::Edit;
use crate::hook::{ByFeature, Kind, Lock, Observer, Site, Traits};
use crate::mutex::{
    LockFailure, Mutex, WaitWake, edits_in_place, from_raw_error, lends_data, lock_error,
    methods_of_owner_died,
};
use crate::relocatable::Relocatable;
use crate::sharing::Shared;
use crate::torn_safe::{self, TornSafe};
use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::pin::Pin;

/// Why a lock call of a region lock returned no ordinary guard.
///
/// The error may hold the lock. `?` converts it into a [`LockFailure`], or a `Box<dyn Error>`, which do not hold it.
#[non_exhaustive]
pub enum LockError<'a, T: ?Sized, P: RegionProtocol = WaitWake<Shared>> {
    /// The last owner died, or panicked, while it held the lock. The calling task holds it now: repair the data and
    /// call [`OwnerDied::make_consistent`], or drop the guard to make the lock not recoverable.
    OwnerDied(OwnerDied<'a, T, P>),
    /// An owner died and the next owner released the lock without repairing the data. No task can acquire it any more.
    NotRecoverable,
    /// Another task holds it (`try_lock`).
    WouldBlock,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran (`lock_interruptible`).
    Interrupted,
    /// The calling task holds it already; or, where locks are checked, the wait would complete a wait-for cycle.
    Deadlock,
    /// The calling thread is no task of the region that the lock lies in, and cannot become one.
    Unavailable(NotATask),
}

lock_error!(
    {T: ?Sized, P: RegionProtocol} {T: ?Sized, P: RegionProtocol} LockError<'_, T, P>, NotATask, {} {} Refused,
    "the owner of the lock died while it held it",
    "the lock is not recoverable: its owner died and the data was not repaired",
    "waiting for the lock would be a deadlock"
);
from_raw_error!(
    {T: ?Sized, P: RegionProtocol} RawError, LockError<'_, T, P>,
    {WouldBlock TimedOut Interrupted NotRecoverable Deadlock} {Unavailable}
);

/// The name of the lock for the observer.
pub(super) fn lock_of<P: RegionProtocol>(lock: &InRegion<P>) -> Lock {
    let traits = Traits::ROBUST.union(Traits::SHARED);
    Lock::new(core::ptr::from_ref(lock).addr(), Kind::Mutex).with(traits)
}

/// The right to use the data of a region lock; dropping it releases the lock.
///
/// It dereferences to a `&mut T` only if `T` is `Unpin`, as numbers and structs of numbers are. Containers of a region
/// are not, and so cannot be swapped: a kill in the middle would leave two owners of their memory. They are changed
/// in their place, through [`edit`](Self::edit) or [`as_mut`](Self::as_mut), with a lock that is pinned.
///
/// If it is dropped while its thread panics, the lock is released as inconsistent: the next owner gets
/// [`LockError::OwnerDied`]. (This is so even if a destructor acquired the lock during the panic.) Forgetting it leaves
/// the mutex locked until the process ends, and the data is not dropped with the mutex. In the child of a fork it belongs
/// to the parent: dropping it there aborts.
#[must_use = "the lock is released immediately if the guard is not kept"]
pub struct RegionGuard<'a, T: ?Sized, P: RegionProtocol = WaitWake<Shared>> {
    mutex: &'a Mutex<T, InRegion<P>>,
    /// The identity of the task that acquired the lock.
    owner: u64,
    not_send: PhantomData<*const ()>,
}

lends_data!({P: RegionProtocol} RegionGuard<'_, T, P>, {P: RegionProtocol}, {+ Unpin});
edits_in_place!({P: RegionProtocol} RegionGuard<'_, T, P>, mutex);

impl<'a, T: ?Sized, P: RegionProtocol> RegionGuard<'a, T, P> {
    /// The mutex is pinned, or `T` is `Unpin`.
    #[inline]
    pub(super) fn new(mutex: &'a Mutex<T, InRegion<P>>, owner: u64) -> Self {
        Self {
            mutex,
            owner,
            not_send: PhantomData,
        }
    }

    /// The mutex that this guard holds.
    #[cfg(not(loom))]
    pub(crate) fn mutex(this: &Self) -> Pin<&'a Mutex<T, InRegion<P>>> {
        // SAFETY: a guard is only made from a pinned mutex, or with a `T` that may move.
        unsafe { Pin::new_unchecked(this.mutex) }
    }

    /// In the child of a fork the guard belongs to the parent: this aborts there.
    fn assert_owned(&self) {
        self.mutex.raw.owner_of_guard(self.owner);
    }

    fn robust(&self) -> HeldLock<'_, P> {
        HeldLock(&self.mutex.raw, self.owner)
    }

    #[inline(always)]
    fn report_releasing(&self) {
        if ByFeature::IS_ON {
            // The verdict is not needed: a guard that does not hold the lock aborts in any case.
            let _ = ByFeature::releasing(lock_of(&self.mutex.raw), Site::UNKNOWN);
        }
    }

    /// Releases the lock. Its data counts as whole even during a panic: the caller goes on after this.
    #[cfg(not(loom))]
    pub(crate) fn release(this: Self) {
        let this = ManuallyDrop::new(this);
        this.report_releasing();
        this.mutex.raw.release_whole(this.owner);
    }
}

impl<T: ?Sized, P: RegionProtocol> Drop for RegionGuard<'_, T, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.report_releasing();
        // SAFETY: the guard holds the lock and is gone after this. Its data is whole, unless the thread panics: an
        // `OwnerDied` becomes a guard only when its holder declares the data whole.
        unsafe { self.mutex.raw.release_guarded(self.owner) }
    }
}

/// A lock that is held by the task with this identity.
struct HeldLock<'a, P: RegionProtocol>(&'a InRegion<P>, u64);

impl<P: RegionProtocol> HeldLock<'_, P> {
    fn mark_consistent(&self) {
        self.0.mark_consistent(self.1);
    }

    /// # Safety
    /// The calling task holds the lock, and does not use it any more.
    unsafe fn unlock_inconsistent(&self) {
        self.0.unlock_inconsistent(self.1);
    }

    /// # Safety
    /// As for [`Self::unlock_inconsistent`].
    unsafe fn release_not_recoverable(&self) {
        self.0.release_not_recoverable(self.1);
    }
}

/// A region lock taken from a dead owner, with data that may be torn.
///
/// The owner died between any two of its instructions. For a `T` that is [`TornSafe`] the
/// data can be read as it is and repaired; any other `T` must be [replaced](Self::replace) whole, or declared whole by
/// unsafe code. Dropping this guard makes the lock not recoverable. (If a panic drops it, the lock stays inconsistent,
/// and the next owner may repair the data; so it is after [`Self::pass_on`].)
#[must_use = "dropping it unrepaired makes the lock not recoverable"]
pub struct OwnerDied<'a, T: ?Sized, P: RegionProtocol = WaitWake<Shared>> {
    guard: ManuallyDrop<RegionGuard<'a, T, P>>,
}

methods_of_owner_died!({P: RegionProtocol} {P} RegionGuard, mutex);
