//! The typed interface of robust locks: guards, and the results of a lock call.
//!
//! Invariants
//! 1. A [`RobustGuard`] is made from a pinned mutex, by the task that took it, and its data is whole.
//! 2. A lock call gives access to data that an owner left torn only through an [`OwnerDied`], which says so.
//!
//! A guard records the task that acquired its lock. In the child of a fork, where no lock is held, its drop aborts.
#![allow(unsafe_code)]

use super::both::{edits_in_place, exclusive_access, lock_reporting};
use super::failure::{LockFailure, from_raw_error, lock_error, methods_of_owner_died};
use super::ops::Take;
use super::{Acquired, RawError, Robust, RobustProtocol, owner_of_guard};
use crate::edit::Edit;
use crate::hook::{Kind, Lock, Observer, Site, Traits};
use crate::mutex::{Interruptible, Mutex, WaitMode, WaitWake, constructors, lends_data};
use crate::relocatable::Relocatable;
use crate::sharing::Shared;
use crate::task::{self, Me, TaskError};
use crate::time::Deadline;
use crate::torn_safe::{self, TornSafe};
use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::pin::Pin;

/// Why a lock call of a robust mutex returned no ordinary guard.
///
/// The error may hold the lock. `?` converts it into a [`LockFailure`](super::LockFailure), or a `Box<dyn Error>`,
/// which do not hold it.
#[non_exhaustive]
pub enum LockError<'a, T: ?Sized, P: RobustProtocol = WaitWake<Shared>> {
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
    /// The calling task holds it already; or, with priority inheritance, the wait would complete a wait-for cycle.
    Deadlock,
    /// The calling task holds as many robust locks as the kernel would release at its death.
    TooManyHeld,
    /// The calling thread cannot own robust locks on this system.
    Unavailable(TaskError),
    /// The protocol failed: see its own [`Fault`](crate::mutex::Protocol::Fault).
    Refused(P::Fault),
}

lock_error!(
    {T: ?Sized, P: RobustProtocol} {T: ?Sized, P: RobustProtocol<Fault: Send + Sync + 'static>}
    LockError<'_, T, P>, P::Fault, {Refused} {TooManyHeld} Unavailable,
    "the owner of the lock died while it held it",
    "the lock is not recoverable: its owner died and the data was not repaired",
    "waiting for the lock would be a deadlock"
);
from_raw_error!(
    {T: ?Sized, P: RobustProtocol} RawError<P::Fault>, LockError<'_, T, P>,
    {WouldBlock TimedOut Interrupted NotRecoverable Deadlock TooManyHeld} {Unavailable Refused}
);

constructors! {
    /// An unlocked robust mutex, for threads and processes alike.
    robust: Robust;
}

/// The name of the lock for the observer.
fn lock_of<P: RobustProtocol>(lock: &Robust<P>) -> Lock {
    let traits = P::TRAITS.union(Traits::ROBUST).union(Traits::SHARED);
    Lock::new(core::ptr::from_ref(lock).addr(), Kind::Mutex).with(traits)
}

pub(super) type LockResult<'a, T, P> = Result<RobustGuard<'a, T, P>, LockError<'a, T, P>>;

impl<T: ?Sized, P: RobustProtocol> Mutex<T, Robust<P>> {
    /// Acquires the lock; the calling task sleeps as long as a living task holds it.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` and `TimedOut` do not occur.
    #[inline]
    #[track_caller]
    pub fn lock(self: Pin<&Self>) -> LockResult<'_, T, P> {
        self.lock_with(WaitMode::FOREVER)
    }

    /// Acquires the lock if it is free at this moment.
    ///
    /// # Errors
    /// See [`LockError`]; `TimedOut` does not occur.
    #[inline]
    #[track_caller]
    pub fn try_lock(self: Pin<&Self>) -> LockResult<'_, T, P> {
        self.lock_with(WaitMode::TRY)
    }

    /// Acquires the lock, or fails once `deadline` has passed.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` does not occur.
    #[inline]
    #[track_caller]
    pub fn lock_until(self: Pin<&Self>, deadline: Deadline) -> LockResult<'_, T, P> {
        self.lock_with(WaitMode::until(Some(deadline)))
    }

    /// Acquires the lock, or fails after `timeout`.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` does not occur.
    #[cfg(not(loom))]
    #[track_caller]
    pub fn lock_for(self: Pin<&Self>, timeout: core::time::Duration) -> LockResult<'_, T, P> {
        self.lock_until(Deadline::after(timeout))
    }

    /// Acquires the lock, unless `deadline` passes, if there is one, or a signal handler runs in this thread while it
    /// sleeps; see [`Mutex::lock_interruptible`](Mutex#method.lock_interruptible) of other protocols.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` does not occur.
    #[inline]
    #[track_caller]
    pub fn lock_interruptible(self: Pin<&Self>, deadline: Option<Deadline>) -> LockResult<'_, T, P>
    where
        P: Interruptible,
    {
        self.lock_with(WaitMode::interruptible(deadline))
    }

    #[inline(always)]
    #[track_caller]
    fn lock_with(self: Pin<&Self>, wait_mode: WaitMode) -> LockResult<'_, T, P> {
        if P::Observer::IS_ON {
            return self.lock_checked(wait_mode, Site::caller(), P::take);
        }
        // SAFETY: the lock is pinned, so it stays where it is; and `Robust` aborts if it is dropped while locked.
        match unsafe { self.raw().acquire_free() } {
            Some(owner) => Ok(RobustGuard::new(self.get_ref(), owner)),
            None => self.lock_slowly(wait_mode, P::take),
        }
    }

    /// As [`Self::lock`]; where the lock is not free, `take` takes its word.
    #[inline]
    #[track_caller]
    pub(super) fn lock_by(self: Pin<&Self>, take: impl Take<P> + Copy) -> LockResult<'_, T, P> {
        if P::Observer::IS_ON {
            return self.lock_checked(WaitMode::FOREVER, Site::caller(), take);
        }
        // SAFETY: the lock is pinned, so it stays where it is; and `Robust` aborts if it is dropped while locked.
        match unsafe { self.raw().acquire_free() } {
            Some(owner) => Ok(RobustGuard::new(self.get_ref(), owner)),
            None => self.lock_slowly(WaitMode::FOREVER, take),
        }
    }

    /// As [`Self::lock_with`], and reports each step to the checker.
    fn lock_checked(
        self: Pin<&Self>,
        wait_mode: WaitMode,
        site: Site,
        take: impl Take<P> + Copy,
    ) -> LockResult<'_, T, P> {
        lock_reporting::<P::Observer, _, _>(lock_of(self.raw()), wait_mode, site, |wait_mode| {
            self.lock_slowly(wait_mode, take)
        })
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(
        self: Pin<&Self>,
        wait_mode: WaitMode,
        take: impl Take<P>,
    ) -> LockResult<'_, T, P> {
        let mutex = self.get_ref();
        // SAFETY: the lock is pinned, so it stays where it is; and `Robust` aborts if it is dropped while locked.
        let result = unsafe { mutex.raw.acquire_in_budget_by(wait_mode, take) };
        let guard = || RobustGuard::new(mutex, Me::get().map_or(0, Me::stamp));
        match result {
            Ok(Acquired::Clean) => Ok(guard()),
            Ok(Acquired::OwnerDied) => {
                task::after_owner_death(core::ptr::from_ref(mutex).cast::<u8>().addr());
                Err(LockError::OwnerDied(OwnerDied::new(guard())))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The right to use a robust mutex's data; dropping it releases the lock.
///
/// It dereferences to a `&mut T` only if `T` is `Unpin`, as numbers and structs of numbers are. Containers of a region
/// are not, and so cannot be swapped: a kill in the middle would leave two owners of their memory. They are changed
/// in their place, through [`edit`](Self::edit) or [`as_mut`](Self::as_mut).
///
/// If it is dropped while its thread panics, the lock is released as inconsistent: the next owner gets
/// [`LockError::OwnerDied`]. (This is so even if a destructor acquired the lock during the panic: a check at both ends
/// would cost every critical section a nanosecond.) Forgetting it leaves the mutex locked until the process ends. (With
/// priority inheritance until the thread ends; then the lock is not recoverable.) In the child of a fork it belongs to
/// the parent: dropping it there aborts.
#[must_use = "the lock is released immediately if the guard is not kept"]
pub struct RobustGuard<'a, T: ?Sized, P: RobustProtocol = WaitWake<Shared>> {
    mutex: &'a Mutex<T, Robust<P>>,
    /// The stamp of the task that acquired the lock. After a fork that is another task. Kept here, since reading the word
    /// costs more, and says less.
    owner: u32,
    not_send: PhantomData<*const ()>,
}

lends_data!({P: RobustProtocol} RobustGuard<'_, T, P>, {P: RobustProtocol}, {+ Unpin});
edits_in_place!({P: RobustProtocol} RobustGuard<'_, T, P>, mutex);
exclusive_access!({P: RobustProtocol} Robust<P>, "died");

impl<'a, T: ?Sized, P: RobustProtocol> RobustGuard<'a, T, P> {
    #[inline]
    fn new(mutex: &'a Mutex<T, Robust<P>>, owner: u32) -> Self {
        Self {
            mutex,
            owner,
            not_send: PhantomData,
        }
    }

    /// The mutex that this guard holds.
    pub(crate) fn mutex(this: &Self) -> Pin<&'a Mutex<T, Robust<P>>> {
        // SAFETY: a guard is only made from a pinned mutex.
        unsafe { Pin::new_unchecked(this.mutex) }
    }

    /// In the child of a fork the guard belongs to the parent: this aborts there.
    fn assert_owned(&self) {
        owner_of_guard(self.owner);
    }

    fn robust(&self) -> &Robust<P> {
        self.mutex.raw()
    }

    #[inline(always)]
    fn report_releasing(&self) {
        if P::Observer::IS_ON {
            // The verdict is not needed: a guard that does not hold the lock aborts in any case.
            let _ = P::Observer::releasing(lock_of(self.robust()), Site::UNKNOWN);
        }
    }

    /// Releases the lock. Its data counts as whole even during a panic: the caller goes on after this.
    #[cfg(not(loom))]
    pub(crate) fn release(this: Self) {
        let (raw, _) = Self::into_held(this);
        // SAFETY: the guard held the lock, and is gone.
        unsafe { raw.unlock_raw() }
    }

    /// The lock, which the calling task goes on holding, without the guard; reports that the lock is about to be
    /// released.
    pub(super) fn into_held(this: Self) -> (&'a Robust<P>, Me) {
        let this = ManuallyDrop::new(this);
        let me = owner_of_guard(this.owner);
        this.report_releasing();
        (this.mutex.raw(), me)
    }
}

impl<T: ?Sized, P: RobustProtocol> Drop for RobustGuard<'_, T, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.report_releasing();
        // SAFETY: the guard holds the lock and is gone after this. Its data is whole, unless the thread panics: an
        // `OwnerDied` becomes a guard only when its holder declares the data whole.
        unsafe {
            self.mutex.raw.release_guarded(self.owner);
        }
    }
}

/// A robust mutex taken from a dead owner, with data that may be torn.
///
/// The owner died between any two of its instructions. For a `T` that is [`TornSafe`] the
/// data can be read as it is and repaired; any other `T` must be [replaced](Self::replace) whole, or declared whole by
/// unsafe code. Dropping this guard makes the lock not recoverable. (If a panic drops it, the lock stays inconsistent,
/// and the next owner may repair the data; so it is after [`Self::pass_on`].)
#[must_use = "dropping it unrepaired makes the lock not recoverable"]
pub struct OwnerDied<'a, T: ?Sized, P: RobustProtocol = WaitWake<Shared>> {
    guard: ManuallyDrop<RobustGuard<'a, T, P>>,
}

methods_of_owner_died!({P: RobustProtocol} {P} RobustGuard, mutex);
