//! Mutual exclusion: one [`Mutex`] type, with the protocol as its parameter.
//!
//! | protocol | size | owner death | for |
//! | --- | --- | --- | --- |
//! | [`WaitWake`] | 4 bytes | locked for ever | threads of one process |
//! | [`WaitWake<Shared>`](crate::sharing::Shared) | 4 bytes | locked for ever | processes that cannot be killed, or that die together |
//! | [`Throughput`] | 16 bytes | locked for ever; a supervisor can detect it | many tasks, short critical sections |
//! | [`Protect`] | 8 bytes | locked for ever | real-time tasks: the owner runs at a priority ceiling |
//! | [`Inherit`], [`InheritPlain`] | 8, 4 bytes | reported to every later lock call | real-time tasks: the owner runs at the priority of its waiters |
//! | [`Robust`] | 40 bytes | reported to the next owner | processes that can be killed at any moment |
//! | [`Robust<Inherit>`], [`Robust<Protect>`], [`Robust<Throughput>`] | 40 bytes | reported to the next owner | the same, with the properties of their protocol |
//!
//! [`RecursiveMutex`] lets its owner lock it again, with any protocol but [`Robust`].
//!
//! ```
//! use latchwork::mutex::Mutex;
//!
//! static COUNTER: Mutex<u64> = Mutex::new(0);
//! *COUNTER.lock() += 1;
//! assert_eq!(*COUNTER.lock(), 1);
//! ```
#![allow(unsafe_code)]

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

#[cfg(all(feature = "foreign", not(loom)))]
#[doc(hidden)]
pub mod foreign;
mod inherit;
mod nap;
mod patience;
#[cfg(not(loom))]
mod protect;
mod queue;
#[cfg(not(loom))]
mod recursive;
mod robust;
pub mod throughput;
mod wait_wake;
mod watched;

#[cfg(not(loom))]
pub use crate::task::ProtectFault;
pub use inherit::{Inherit, InheritFault, InheritPlain};
pub(crate) use inherit::{end_of_nap, is_over};
#[doc(hidden)]
pub use patience::Patience;
pub use patience::Unfinished;
#[cfg_attr(loom, allow(unused_imports, reason = "who polls is not modelled"))]
#[cfg(not(loom))]
pub use protect::{KeptBoost, Protect, TrustedPriority};
#[doc(hidden)]
pub use queue::{Arrival, By, Queue, Sleeps};
#[cfg(not(loom))]
pub use recursive::{RecursiveGuard, RecursiveMutex};

#[cfg(not(loom))]
#[doc(hidden)]
pub use robust::Slow;
pub(crate) use robust::methods_of_unpinned;
#[doc(hidden)]
pub use robust::{Acquired, OWNER_DIED, RawError, TID_MASK, WAITERS, owner_of_guard};
pub use robust::{LockError, LockFailure, OwnerDied, Robust, RobustGuard, RobustProtocol};
#[doc(hidden)]
pub use robust::{Pinned, Unpinned};
pub use throughput::Throughput;
pub use wait_wake::WaitWake;
pub(crate) use watched::{lock_of, reports};

use crate::hook::Traits;
use crate::time::Deadline;
use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

/// A lock without data, whose lock calls cannot fail: what a simple protocol provides.
///
/// # Safety
/// Between a `lock`, a `try_lock` or `lock_until` that returned true and the matching `unlock` no other task gets the
/// lock, and all that happened before the unlock is visible to the next owner.
pub unsafe trait RawLock {
    /// What the checker must know of the lock.
    #[doc(hidden)]
    const TRAITS: Traits = Traits::empty();
    /// Takes the lock, however long the wait.
    fn lock(&self);
    /// Takes the lock if it is free at this moment.
    fn try_lock(&self) -> bool;
    /// Takes the lock, or returns false once `deadline` has passed.
    fn lock_until(&self, deadline: Deadline) -> bool;
    /// Releases the lock.
    ///
    /// # Safety
    /// The calling task holds the lock.
    unsafe fn unlock(&self);
    /// The queue to which a condition variable may move the waiters that it releases.
    #[doc(hidden)]
    fn sleepers(&self) -> Queue<'_> {
        Queue::NONE
    }
    /// Takes the lock again, after a wait for a condition variable.
    #[doc(hidden)]
    fn lock_again(&self, _: Arrival) {
        self.lock();
    }
}

/// What every protocol of a [`Mutex`] provides. Each [`RawLock`] is one.
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
    /// Takes the lock, however long the wait.
    ///
    /// # Errors
    /// [`Self::Fault`]: the lock is not taken.
    fn acquire(&self) -> Result<(), Self::Fault>;
    /// Takes the lock if it is free at this moment; returns whether it did.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    fn try_acquire(&self) -> Result<bool, Self::Fault>;
    /// Takes the lock, or returns false once `deadline` has passed.
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
    /// The queue to which a condition variable may move the waiters that it releases.
    #[doc(hidden)]
    fn queue(&self) -> Queue<'_> {
        Queue::NONE
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
    /// Takes the lock again, after a wait for a condition variable.
    #[doc(hidden)]
    fn acquire_again(&self, _: Arrival) -> Result<(), Self::Fault> {
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

    fn queue(&self) -> Queue<'_> {
        self.sleepers()
    }

    fn acquire_again(&self, arrival: Arrival) -> Result<(), Infallible> {
        self.lock_again(arrival);
        Ok(())
    }
}

/// A protocol whose waits a signal handler can end. (The kernel's priority-inheritance futexes cannot offer this: their
/// wait goes on after a signal.)
///
/// # Safety
/// As for [`RawLock`].
pub unsafe trait Interruptible: Protocol {
    /// Takes the lock, or gives up at `deadline`, if there is one, or when a signal handler has run while the task
    /// slept.
    ///
    /// # Errors
    /// [`Protocol::Fault`] outside, [`Unfinished`] inside: the lock is not taken.
    fn acquire_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<Result<(), Unfinished>, Self::Fault>;
}

/// Data that one task at a time may use.
///
/// `P` is the protocol: it decides how tasks wait, and what the death of an owner does; see the [module](self). With
/// [`Robust`] the methods take a pinned reference and return a `Result`.
///
/// ```
/// use latchwork::mutex::{Mutex, Throughput};
///
/// static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// static HITS: Mutex<u64, Throughput> = Mutex::throughput(0);
/// JOBS.lock().push(7);
/// if let Some(mut hits) = HITS.try_lock() {
///     *hits += 1;
/// }
/// ```
///
/// Not recursive: a task that locks it again waits for ever ([`Robust`] reports a deadlock). A panic while it is held
/// releases it; without [`Robust`] there is no poisoning. What the death of an owner does depends on the protocol. The
/// guard of a private mutex must not be dropped in the child of a fork, and a signal handler must not take a lock that
/// the code it interrupts may hold.
///
/// `Mutex<T>` is as large as `T` and 4 bytes; the data lies beside the word, in the same cache line
/// when it fits. A free lock and unlock are one compare-and-swap and one swap.
#[repr(C)]
pub struct Mutex<T: ?Sized, P: Custody = WaitWake> {
    raw: P,
    data: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: the mutex owns its lock and its data, and both may be sent to another thread.
unsafe impl<T: ?Sized + Send, P: Custody + Send> Send for Mutex<T, P> {}
// SAFETY: `&Mutex` gives one task at a time access to `T`, as if `T` was lent across threads: `T: Send` is enough.
unsafe impl<T: ?Sized + Send, P: Custody + Sync> Sync for Mutex<T, P> {}

/// Whether the data that a [`Mutex`] keeps with its lock is whole. With every [`Protocol`] it always is; [`Robust`]
/// detects that an owner died.
pub trait Custody {
    /// Whether the data is a valid value: no owner died while it had it, or the data was repaired.
    #[doc(hidden)]
    fn is_whole(&mut self) -> bool;
}

impl<P: Protocol> Custody for P {
    #[inline]
    fn is_whole(&mut self) -> bool {
        true
    }
}

/// Torn data, left by an owner that died, is leaked: it may be no valid value of its type.
impl<T: ?Sized, P: Custody> Drop for Mutex<T, P> {
    #[inline]
    fn drop(&mut self) {
        watched::ends(&self.raw);
        if self.raw.is_whole() {
            // SAFETY: the data is a valid value, and is dropped once: the mutex is gone after this.
            unsafe { ManuallyDrop::drop(self.data.get_mut()) };
        }
    }
}

#[cfg(not(loom))]
impl<T> Mutex<T, WaitWake> {
    /// An unlocked mutex for the threads of this process.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self::from_raw(WaitWake::new(), value)
    }
}

#[cfg(not(loom))]
impl<T> Mutex<T, WaitWake<crate::sharing::Shared>> {
    /// An unlocked mutex for every process that maps it.
    #[must_use]
    pub const fn shared(value: T) -> Self {
        Self::from_raw(WaitWake::new(), value)
    }
}

impl<T, P: Custody> Mutex<T, P> {
    /// A mutex made from a lock, which must have no other user, and the data that it protects.
    #[must_use]
    pub const fn from_raw(raw: P, value: T) -> Self {
        Self {
            raw,
            data: UnsafeCell::new(ManuallyDrop::new(value)),
        }
    }
}

impl<T: ?Sized, P: Custody> Mutex<T, P> {
    /// The lock itself.
    pub(crate) fn raw(&self) -> &P {
        &self.raw
    }
}

impl<T: ?Sized, P: Protocol> Mutex<T, P> {
    /// The data, without locking: an exclusive reference proves that no other task uses it.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Takes the lock; the calling task sleeps as long as another task holds it.
    ///
    /// If the protocol can fail, the guard comes in a `Result`: [`Protocol::Outcome`].
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> P::Outcome<MutexGuard<'_, T, P>> {
        P::outcome(watched::acquire(&self.raw).map(|()| MutexGuard::new(self)))
    }

    /// Takes the lock if it is free at this moment.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> P::Outcome<Option<MutexGuard<'_, T, P>>> {
        P::outcome(self.guard_if(watched::try_acquire(&self.raw)))
    }

    /// Takes the lock, or returns `None` once `deadline` has passed.
    #[inline]
    #[track_caller]
    pub fn lock_until(&self, deadline: Deadline) -> P::Outcome<Option<MutexGuard<'_, T, P>>> {
        P::outcome(self.guard_if(watched::acquire_until(&self.raw, deadline)))
    }

    /// Takes the lock, or returns `None` after `timeout`.
    #[cfg(not(loom))]
    #[inline]
    #[track_caller]
    pub fn lock_for(
        &self,
        timeout: core::time::Duration,
    ) -> P::Outcome<Option<MutexGuard<'_, T, P>>> {
        let taken = match watched::try_acquire(&self.raw) {
            Ok(false) => watched::acquire_until(&self.raw, Deadline::after(timeout)),
            taken => taken,
        };
        P::outcome(self.guard_if(taken))
    }

    /// Takes the lock, unless `deadline` passes, if there is one, or a signal handler runs in this thread while it
    /// sleeps, with `SA_RESTART` or without. It corresponds to Linux's `mutex_lock_interruptible`. A handler that runs
    /// before the sleep does not end the wait: let the handler set a flag, and read that flag first.
    ///
    /// # Errors
    /// [`Unfinished`], inside what [`lock`](Self::lock) returns.
    #[inline]
    #[track_caller]
    pub fn lock_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> P::Outcome<Result<MutexGuard<'_, T, P>, Unfinished>>
    where
        P: Interruptible,
    {
        let taken = watched::acquire_interruptible(&self.raw, deadline);
        P::outcome(taken.map(|taken| taken.map(|()| MutexGuard::new(self))))
    }

    #[inline]
    fn guard_if(
        &self,
        taken: Result<bool, P::Fault>,
    ) -> Result<Option<MutexGuard<'_, T, P>>, P::Fault> {
        taken.map(|taken| taken.then(|| MutexGuard::new(self)))
    }
}

#[cfg(not(loom))]
impl<T: Default> Default for Mutex<T, WaitWake> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized, P: Custody> fmt::Debug for Mutex<T, P>
where
    P: fmt::Debug,
{
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Mutex")
            .field("raw", &self.raw)
            .finish_non_exhaustive()
    }
}

/// The right to use a mutex's data; dropping it releases the lock.
///
/// Forgetting it leaves the mutex locked. Not `Send`: some protocols record their owner.
#[must_use = "the lock is released at once when the guard is not kept"]
pub struct MutexGuard<'a, T: ?Sized, P: Protocol = WaitWake> {
    mutex: &'a Mutex<T, P>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` and nothing else, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync, P: Protocol + Sync> Sync for MutexGuard<'_, T, P> {}

impl<'a, T: ?Sized, P: Protocol> MutexGuard<'a, T, P> {
    #[inline]
    fn new(mutex: &'a Mutex<T, P>) -> Self {
        Self {
            mutex,
            not_send: PhantomData,
        }
    }

    /// The mutex that this guard holds.
    pub(crate) fn raw(this: &Self) -> &'a P {
        &this.mutex.raw
    }
}

impl<T: ?Sized, P: Protocol> Deref for MutexGuard<'_, T, P> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized, P: Protocol> DerefMut for MutexGuard<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized, P: Protocol> Drop for MutexGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock, and is gone after this.
        unsafe { watched::release(&self.mutex.raw) }
    }
}

impl<T: ?Sized + fmt::Debug, P: Protocol> fmt::Debug for MutexGuard<'_, T, P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
