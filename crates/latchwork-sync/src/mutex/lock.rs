//! The mutex itself: the data beside its lock, and the guard that gives access to the data.
#![allow(unsafe_code)]

use super::{DataState, Interruptible, Protocol, Unfinished, WaitWake, report};
use crate::time::Deadline;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

/// Data that one task at a time may use.
///
/// `P` is the protocol: it decides how tasks wait, and what the death of an owner does; see the [module](super). With
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
/// child of a fork must not drop a guard of its parent's: of a private mutex, and of a shared one without an owner
/// (wait-wake, `protect`, a spinlock), whose lock it would release. (A robust guard aborts there. A throughput or
/// inheriting one changes nothing or aborts, unless the child's thread has the ID of the owner, in another PID
/// namespace.) A signal handler must not acquire a lock
/// that the code it interrupts may hold.
///
/// `Mutex<T>` is as large as `T` and 4 bytes; the data follows the word, in the same cache line when it fits. A free
/// lock and unlock are one compare-and-swap and one swap.
///
/// [`Robust`]: super::Robust
#[repr(C)]
pub struct Mutex<T: ?Sized, P: DataState = WaitWake> {
    pub(super) raw: P,
    pub(crate) data: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: the mutex owns its lock and its data, and both may be sent to another thread.
unsafe impl<T: ?Sized + Send, P: DataState + Send> Send for Mutex<T, P> {}
// SAFETY: `&Mutex` gives one task at a time access to `T`, as if `T` was lent across threads: `T: Send` is enough.
unsafe impl<T: ?Sized + Send, P: DataState + Sync> Sync for Mutex<T, P> {}

/// Torn data, left by an owner that died, is leaked: it may be no valid value of its type.
impl<T: ?Sized, P: DataState> Drop for Mutex<T, P> {
    #[inline]
    fn drop(&mut self) {
        report::destroyed(&self.raw);
        if self.raw.is_whole() {
            // SAFETY: the data is a valid value, and is dropped once: the mutex is gone after this.
            unsafe { ManuallyDrop::drop(self.data.get_mut()) };
        }
    }
}

/// Constructors of a mutex, each for a lock whose constructor needs no argument.
macro_rules! constructors {
    ($($(#[$attribute:meta])* $name:ident: $raw:ty;)*) => {$(
        impl<T> $crate::mutex::Mutex<T, $raw> {
            $crate::atomic::const_unless_loom! {
                $(#[$attribute])*
                #[must_use]
                pub fn $name(value: T) -> Self {
                    Self::from_raw(<$raw>::new(), value)
                }
            }
        }
    )*};
}
pub(crate) use constructors;

constructors! {
    /// An unlocked mutex for the threads of this process.
    new: WaitWake;
    /// An unlocked mutex for every process that maps it.
    shared: WaitWake<crate::sharing::Shared>;
}

impl<T, P: DataState> Mutex<T, P> {
    /// A mutex made from a lock, which must have no other user, and the data that it protects.
    #[must_use]
    pub const fn from_raw(raw: P, value: T) -> Self {
        Self {
            raw,
            data: UnsafeCell::new(ManuallyDrop::new(value)),
        }
    }
}

impl<T: ?Sized, P: DataState> Mutex<T, P> {
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

    /// Acquires the lock; the calling task sleeps as long as another task holds it.
    ///
    /// If the protocol can fail, the guard comes in a `Result`: [`Protocol::Outcome`].
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> P::Outcome<MutexGuard<'_, T, P>> {
        P::outcome(report::acquire(&self.raw).map(|()| MutexGuard::new(self)))
    }

    /// Acquires the lock if it is free at this moment.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> P::Outcome<Option<MutexGuard<'_, T, P>>> {
        P::outcome(self.guard_if(report::try_acquire(&self.raw)))
    }

    /// Acquires the lock, or returns `None` once `deadline` has passed.
    #[inline]
    #[track_caller]
    pub fn lock_until(&self, deadline: Deadline) -> P::Outcome<Option<MutexGuard<'_, T, P>>> {
        P::outcome(self.guard_if(report::acquire_until(&self.raw, deadline)))
    }

    /// Acquires the lock, or returns `None` after `timeout`.
    #[cfg(not(loom))]
    #[inline]
    #[track_caller]
    pub fn lock_for(
        &self,
        timeout: core::time::Duration,
    ) -> P::Outcome<Option<MutexGuard<'_, T, P>>> {
        let taken = match report::try_acquire(&self.raw) {
            Ok(false) => report::acquire_until(&self.raw, Deadline::after(timeout)),
            taken => taken,
        };
        P::outcome(self.guard_if(taken))
    }

    /// Acquires the lock, unless `deadline` passes, if there is one, or a signal handler runs in this thread while it
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
        let taken = report::acquire_interruptible(&self.raw, deadline);
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

impl<T: ?Sized, P: DataState> fmt::Debug for Mutex<T, P>
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
#[must_use = "the lock is released immediately if the guard is not kept"]
pub struct MutexGuard<'a, T: ?Sized, P: Protocol = WaitWake> {
    mutex: &'a Mutex<T, P>,
    not_send: PhantomData<*const ()>,
}

impl<'a, T: ?Sized, P: Protocol> MutexGuard<'a, T, P> {
    #[inline]
    pub(super) fn new(mutex: &'a Mutex<T, P>) -> Self {
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

impl<T: ?Sized, P: Protocol> Drop for MutexGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock, and is gone after this.
        unsafe { report::release(&self.mutex.raw) }
    }
}

/// What a guard of a `T`, with the field `mutex`, does with the data: it lends it. The references may go to other threads
/// if its parameters are `$shared`, and change the data if `T` is `$unpin`.
#[doc(hidden)]
#[macro_export]
macro_rules! lends_data {
    ({$($parameters:tt)*} $guard:ty, {$($shared:tt)*}, {$($unpin:tt)*}) => {
        // SAFETY: a shared guard gives `&T` and nothing else, and `T` is `Sync`.
        unsafe impl<T: ?Sized + Sync, $($shared)*> Sync for $guard {}

        impl<T: ?Sized, $($parameters)*> Deref for $guard {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the guard holds the lock.
                unsafe { &*self.mutex.data.get() }
            }
        }

        impl<T: ?Sized $($unpin)*, $($parameters)*> DerefMut for $guard {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: the guard holds the lock, and is borrowed exclusively.
                unsafe { &mut *self.mutex.data.get() }
            }
        }

        impl<T: ?Sized + fmt::Debug, $($parameters)*> fmt::Debug for $guard {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(formatter)
            }
        }
    };
}
pub(crate) use lends_data;
lends_data!({P: Protocol} MutexGuard<'_, T, P>, {P: Protocol + Sync}, {});
