//! The traits of a [`Mutex`](super::Mutex)'s protocol: [`RawLock`] where no call can fail, [`Protocol`] in general,
//! [`Interruptible`] where a signal handler can end a wait. [`DataState`] says whether the data is whole.
#![allow(unsafe_code)]

use super::{Relock, SleepPlace, Unfinished};
use crate::hook::Traits;
use crate::time::Deadline;
use core::convert::Infallible;

/// A lock without data, whose lock calls cannot fail: what a simple protocol provides.
///
/// # Safety
/// Between a `lock`, a `try_lock` or `lock_until` that returned true and the matching `unlock` no other task gets the
/// lock, and all that happened before the unlock is visible to the next owner.
pub unsafe trait RawLock {
    /// What the checker must know of the lock.
    #[doc(hidden)]
    const TRAITS: Traits = Traits::empty();
    /// Acquires the lock, however long the wait.
    fn lock(&self);
    /// Acquires the lock if it is free at this moment.
    fn try_lock(&self) -> bool;
    /// Acquires the lock, or returns false once `deadline` has passed.
    fn lock_until(&self, deadline: Deadline) -> bool;
    /// Releases the lock.
    ///
    /// # Safety
    /// The calling task holds the lock.
    unsafe fn unlock(&self);
    /// Where a condition variable may requeue the waiters that it releases.
    #[doc(hidden)]
    fn raw_sleep_place(&self) -> SleepPlace<'_> {
        SleepPlace::NONE
    }
    /// Acquires the lock again, after a wait for a condition variable.
    #[doc(hidden)]
    fn lock_again(&self, _: Relock) {
        self.lock();
    }
}

/// What every protocol of a [`Mutex`](super::Mutex) provides. Each [`RawLock`] is one.
///
/// # Safety
/// As for [`RawLock`].
pub unsafe trait Protocol {
    /// Why a lock call may fail, even if it may wait for ever; [`Infallible`] if none can fail.
    type Fault: core::error::Error;
    /// What lock calls return: `G` itself, or `Result<G, Self::Fault>` if they can fail.
    type Outcome<G>;
    /// What the checker must know of the lock.
    #[doc(hidden)]
    const TRAITS: Traits = Traits::empty();
    /// Whether the protocol itself reports its lock calls to the checker.
    #[doc(hidden)]
    const CHECKS_ITSELF: bool = false;
    /// Turns a result into an outcome.
    fn outcome<G>(result: Result<G, Self::Fault>) -> Self::Outcome<G>;
    /// Acquires the lock, however long the wait.
    ///
    /// # Errors
    /// [`Self::Fault`]: the lock is not acquired.
    fn acquire(&self) -> Result<(), Self::Fault>;
    /// Acquires the lock if it is free at this moment; returns whether it did.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    fn try_acquire(&self) -> Result<bool, Self::Fault>;
    /// Acquires the lock, or returns false once `deadline` has passed.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    fn acquire_until(&self, deadline: Deadline) -> Result<bool, Self::Fault>;
    /// Releases the lock.
    ///
    /// # Safety
    /// The calling task holds the lock.
    unsafe fn release(&self);
    /// Releases the lock as its guard is dropped, at a place in the program that is not known.
    ///
    /// # Safety
    /// As for [`Self::release`].
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn release_of_guard(&self) {
        // SAFETY: the caller holds the lock, by this function's contract.
        unsafe { self.release() }
    }
    /// Where a condition variable may requeue the waiters that it releases.
    #[doc(hidden)]
    fn sleep_place(&self) -> SleepPlace<'_> {
        SleepPlace::NONE
    }
    /// Releases the lock, to wait for a condition variable.
    ///
    /// # Safety
    /// As for [`Self::release`].
    #[doc(hidden)]
    unsafe fn release_to_wait(&self, _: crate::hook::Lock, _timed: bool, _: crate::hook::Site) {
        // SAFETY: the caller holds the lock, by this function's contract.
        unsafe { self.release() }
    }
    /// Acquires the lock again, after a wait for a condition variable.
    #[doc(hidden)]
    fn acquire_again(&self, _: Relock) -> Result<(), Self::Fault> {
        self.acquire()
    }
}

// SAFETY: both traits ask for the same mutual exclusion and visibility.
unsafe impl<L: RawLock> Protocol for L {
    type Fault = Infallible;
    type Outcome<G> = G;
    const TRAITS: Traits = <L as RawLock>::TRAITS;

    #[inline]
    fn outcome<G>(result: Result<G, Infallible>) -> G {
        let Ok(got) = result;
        got
    }

    #[inline]
    fn acquire(&self) -> Result<(), Infallible> {
        self.lock();
        Ok(())
    }

    #[inline]
    fn try_acquire(&self) -> Result<bool, Infallible> {
        Ok(self.try_lock())
    }

    #[inline]
    fn acquire_until(&self, deadline: Deadline) -> Result<bool, Infallible> {
        Ok(self.lock_until(deadline))
    }

    #[inline]
    unsafe fn release(&self) {
        // SAFETY: the caller holds the lock, by this function's contract.
        unsafe { self.unlock() }
    }

    fn sleep_place(&self) -> SleepPlace<'_> {
        self.raw_sleep_place()
    }

    fn acquire_again(&self, relock: Relock) -> Result<(), Infallible> {
        self.lock_again(relock);
        Ok(())
    }
}

/// A protocol whose waits a signal handler can end. (The kernel's priority-inheritance futexes cannot offer this: their
/// wait goes on after a signal.)
///
/// # Safety
/// As for [`RawLock`].
pub unsafe trait Interruptible: Protocol {
    /// Acquires the lock, or gives up at `deadline`, if there is one, or when a signal handler has run while the task
    /// slept.
    ///
    /// # Errors
    /// [`Protocol::Fault`] outside, [`Unfinished`] inside: the lock is not acquired.
    fn acquire_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<Result<(), Unfinished>, Self::Fault>;
}

/// Whether the data that a [`Mutex`](super::Mutex) keeps with its lock is whole. With every [`Protocol`] it always is;
/// [`Robust`](super::Robust) detects that an owner died.
pub trait DataState {
    /// Whether the data is a valid value: no owner died while it had it, or the data was repaired.
    #[doc(hidden)]
    fn is_whole(&mut self) -> bool;
}

impl<P: Protocol> DataState for P {
    #[inline]
    fn is_whole(&mut self) -> bool {
        true
    }
}
