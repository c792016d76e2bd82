//! The traits of a [`Mutex`](super::Mutex)'s protocol: [`RawLock`] where no call can fail, [`Protocol`] in general,
//! [`Interruptible`] where a signal handler can end a wait. [`DataState`] says whether the data is whole.
//! [`SleepPlace`] and [`Relock`] are what a condition variable must know of a lock, to release many waiters without
//! waking them all. How a [`RawLock`] implements the traits of [`lock_api`].
#![allow(unsafe_code)]

use super::Unfinished;
use crate::atomic::AtomicU32;
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

/// How a call that may be given up ended.
pub(super) type Attempt<F> = Result<Result<(), Unfinished>, F>;

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
    fn acquire_interruptible(&self, deadline: Option<Deadline>) -> Attempt<Self::Fault>;
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

/// Where the waiters of a lock sleep, so that a condition variable can requeue its own waiters there.
///
/// For locks of this process only: the private condition variable that requeues waiters makes private futex calls.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct SleepPlace<'a>(pub(crate) SleepWord<'a>);

/// The futex that waiters sleep on.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum SleepWord<'a> {
    /// Other waiters cannot be requeued to this lock.
    None,
    /// An ordinary futex. A task that is woken there, or that acquires the lock after one that may have been requeued
    /// there, takes it as one that has slept: [`RelockAs::Requeued`].
    Plain(&'a AtomicU32),
    /// A priority-inheritance futex: the kernel passes its ownership on ([`RelockAs::Owner`]). Only where the kernel
    /// can requeue waiters to it.
    Pi(&'a AtomicU32),
}

impl SleepPlace<'_> {
    pub(crate) const NONE: Self = Self(SleepWord::None);
}

/// How a task acquires a lock again after a wait for a condition variable.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Relock(pub(crate) RelockAs);

/// The task that acquires a lock again.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum RelockAs {
    /// A task as any other that wants the lock.
    Newcomer,
    /// A task that has slept on the lock, as others may still do.
    Requeued,
    /// A task that the kernel has made the owner of the word.
    Owner,
}

/// Implements the traits of [`lock_api`] for a [`RawLock`], so that other crates can use it.
#[cfg(not(loom))]
macro_rules! implement_lock_api {
    ({$($parameter:ident : $bound:path)?} $lock:ty, $is_locked:expr) => {
        $crate::mutex::implement_lock_api!({$($parameter: $bound)?} $lock, $is_locked, lock_api::GuardSend);
    };
    ({$($parameter:ident : $bound:path)?} $lock:ty, $is_locked:expr, $guard:ty) => {
        // SAFETY: `RawMutex` asks for mutual exclusion between `lock` and `unlock`, which `RawLock` promises.
        unsafe impl $(<$parameter: $bound>)? lock_api::RawMutex for $lock {
            #[allow(clippy::declare_interior_mutable_const, reason = "the trait's way to spell a constructor")]
            const INIT: Self = Self::new();
            type GuardMarker = $guard;

            #[inline]
            fn lock(&self) {
                $crate::mutex::RawLock::lock(self);
            }

            #[inline]
            fn try_lock(&self) -> bool {
                $crate::mutex::RawLock::try_lock(self)
            }

            #[inline]
            unsafe fn unlock(&self) {
                // SAFETY: the caller holds the lock: `RawMutex::unlock` asks for the same.
                unsafe { $crate::mutex::RawLock::unlock(self) }
            }

            #[inline]
            fn is_locked(&self) -> bool {
                let is_locked: fn(&Self) -> bool = $is_locked;
                is_locked(self)
            }
        }

        // SAFETY: both calls return true only if the lock is taken, as `RawMutexTimed` asks.
        unsafe impl $(<$parameter: $bound>)? lock_api::RawMutexTimed for $lock {
            type Duration = core::time::Duration;
            type Instant = $crate::time::Deadline;

            #[inline]
            fn try_lock_for(&self, timeout: Self::Duration) -> bool {
                $crate::mutex::RawLock::try_lock(self)
                    || $crate::mutex::RawLock::lock_until(self, $crate::time::Deadline::after(timeout))
            }

            #[inline]
            fn try_lock_until(&self, timeout: Self::Instant) -> bool {
                $crate::mutex::RawLock::lock_until(self, timeout)
            }
        }
    };
}
#[cfg(not(loom))]
pub(crate) use implement_lock_api;
