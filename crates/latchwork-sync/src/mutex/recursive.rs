//! The recursive mutex: its owner may lock it again.
//!
//! Source: POSIX `PTHREAD_MUTEX_RECURSIVE`. It consists of a lock of any protocol, and:
//!
//! | field | meaning | changed by |
//! | --- | --- | --- |
//! | `owner` | thread ID of the owner, 0 = none | the owner, after it takes and before it releases the lock |
//! | `depth` | how many guards the owner has | the owner |
//!
//! Invariant: a task reads its own ID in `owner` only while it holds the lock, for no other task stores that ID. So the
//! load may be Relaxed; another task's ID, stale or not, only means "not me".
//!
//! The guards of one task give shared references: exclusive ones would alias. Put data that changes into a
//! [`Cell`](core::cell::Cell) or an atomic.
//!
//! *Hostile events:* as for the protocol. If a new thread gets the thread ID of a dead owner, it counts as the owner of
//! that lock: do not end a thread that holds one.
//!
//! *Cost:* the protocol's, and in each direction a read of the thread's ID and two plain stores. Locking it again takes
//! no atomic read-modify-write at all. *Checked by:* `tests/recursive.rs`.
#![allow(unsafe_code)]

use super::{Protocol, Relock, WaitWake};
use crate::atomic::{AtomicU32, Ordering};
use crate::task;
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::time::Duration;

/// Data that one task at a time may use, and whose owner may lock it again.
///
/// ```
/// use core::cell::Cell;
/// use latchwork::mutex::RecursiveMutex;
///
/// static TREE: RecursiveMutex<Cell<u32>> = RecursiveMutex::new(Cell::new(0));
/// fn visit(depth: u32) {
///     let nodes = TREE.lock();
///     nodes.set(nodes.get() + 1);
///     if depth > 0 {
///         visit(depth - 1);
///     }
/// }
/// visit(3);
/// assert_eq!(TREE.lock().get(), 4);
/// ```
///
/// A task that dies while it holds the lock leaves it locked; in the child of a fork a held lock has no
/// owner. (Unless the child's thread has the ID of the owner, in another PID namespace: then a shared lock lets it in.)
#[repr(C)]
pub struct RecursiveMutex<T: ?Sized, P = WaitWake> {
    raw: P,
    owner: AtomicU32,
    depth: AtomicU32,
    data: T,
}

// SAFETY: the lock gives one task at a time `&T`. The next task may get it on another thread, so `T: Send` is enough.
unsafe impl<T: ?Sized + Send, P: Sync> Sync for RecursiveMutex<T, P> {}

impl<T> RecursiveMutex<T, WaitWake> {
    /// An unlocked mutex for the threads of this process.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self::from_raw(WaitWake::new(), value)
    }
}

impl<T, P> RecursiveMutex<T, P> {
    /// A mutex made from a lock, which must have no other user, and the data that it protects.
    #[must_use]
    pub const fn from_raw(raw: P, value: T) -> Self {
        Self {
            raw,
            owner: AtomicU32::new(0),
            depth: AtomicU32::new(0),
            data: value,
        }
    }
}

impl<T: ?Sized, P: Protocol> RecursiveMutex<T, P> {
    /// Acquires the lock; the calling task sleeps as long as another task holds it.
    ///
    /// Aborts if the task already holds it 2³² − 1 times.
    #[track_caller]
    pub fn lock(&self) -> P::Outcome<RecursiveGuard<'_, T, P>> {
        let taken = match self.take_again() {
            true => Ok(()),
            false => self.raw.acquire(),
        };
        P::outcome(taken.map(|()| self.taken()))
    }

    /// Acquires the lock if no other task holds it at this moment.
    #[track_caller]
    pub fn try_lock(&self) -> P::Outcome<Option<RecursiveGuard<'_, T, P>>> {
        let taken = match self.take_again() {
            true => Ok(true),
            false => self.raw.try_acquire(),
        };
        P::outcome(taken.map(|taken| taken.then(|| self.taken())))
    }

    /// Acquires the lock, or returns `None` once `deadline` has passed.
    #[track_caller]
    pub fn lock_until(&self, deadline: Deadline) -> P::Outcome<Option<RecursiveGuard<'_, T, P>>> {
        let taken = match self.take_again() {
            true => Ok(true),
            false => self.raw.acquire_until(deadline),
        };
        P::outcome(taken.map(|taken| taken.then(|| self.taken())))
    }

    /// Acquires the lock, or returns `None` after `timeout`.
    #[track_caller]
    pub fn lock_for(&self, timeout: Duration) -> P::Outcome<Option<RecursiveGuard<'_, T, P>>> {
        self.lock_until(Deadline::after(timeout))
    }

    /// How often the calling task holds the lock.
    #[cfg(feature = "foreign")]
    pub(crate) fn own_depth(&self) -> u32 {
        // Relaxed: see the invariant.
        if self.owner.load(Ordering::Relaxed) == task::id() {
            self.depth.load(Ordering::Relaxed)
        } else {
            0
        }
    }

    /// Whether a task holds the lock at this moment.
    #[cfg(feature = "foreign")]
    pub(crate) fn is_locked(&self) -> bool {
        // Relaxed: the answer may be stale before it arrives.
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// A guard in place of one that was forgotten.
    ///
    /// # Safety
    /// The calling task has forgotten a guard of this lock.
    #[cfg(feature = "foreign")]
    pub(crate) unsafe fn guard(&self) -> RecursiveGuard<'_, T, P> {
        RecursiveGuard::new(self)
    }

    /// The lock itself.
    pub(crate) fn raw(&self) -> &P {
        &self.raw
    }

    /// Acquires the lock again, after a wait for a condition variable.
    pub(crate) fn lock_again(&self, relock: Relock) -> Result<RecursiveGuard<'_, T, P>, P::Fault> {
        let taken = match self.take_again() {
            true => Ok(()),
            false => self.raw.acquire_again(relock),
        };
        taken.map(|()| self.taken())
    }

    /// Acquires the lock once more, if this task holds it.
    #[inline]
    fn take_again(&self) -> bool {
        let me = task::id();
        // Relaxed, here and below: see the invariant; only the owner uses the depth.
        if self.owner.load(Ordering::Relaxed) != me {
            return false;
        }
        let depth = self.depth.load(Ordering::Relaxed);
        let Some(deeper) = depth.checked_add(1) else {
            crate::fatal(format_args!(
                "recursive mutex locked too many times by task {me}"
            ));
        };
        self.depth.store(deeper, Ordering::Relaxed);
        true
    }

    /// The guard of a lock that this task has taken: for the first time, if it has no owner.
    #[inline]
    fn taken(&self) -> RecursiveGuard<'_, T, P> {
        if self.depth.load(Ordering::Relaxed) == 0 {
            self.owner.store(task::id(), Ordering::Relaxed);
            self.depth.store(1, Ordering::Relaxed);
        }
        RecursiveGuard::new(self)
    }
}

impl<T: Default> Default for RecursiveMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized, P> fmt::Debug for RecursiveMutex<T, P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RecursiveMutex")
            .field("owner", &self.owner.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

/// The right to read a recursive mutex's data. When the last guard of a task is dropped, the lock is released.
#[must_use = "the lock is released immediately if the guard is not kept"]
pub struct RecursiveGuard<'a, T: ?Sized, P: Protocol = WaitWake> {
    mutex: &'a RecursiveMutex<T, P>,
    not_send: PhantomData<*const ()>,
}

impl<'a, T: ?Sized, P: Protocol> RecursiveGuard<'a, T, P> {
    fn new(mutex: &'a RecursiveMutex<T, P>) -> Self {
        Self {
            mutex,
            not_send: PhantomData,
        }
    }

    /// The mutex of this guard. Aborts unless the guard is the only one of its task.
    pub(crate) fn only(this: &Self) -> &'a RecursiveMutex<T, P> {
        // Relaxed: only the owner changes it, and the caller is the owner.
        if this.mutex.depth.load(Ordering::Relaxed) != 1 {
            crate::fatal(format_args!(
                "wait for a condition with a recursive mutex that was taken more than once"
            ));
        }
        this.mutex
    }
}

// SAFETY: a shared guard gives `&T` and nothing else, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync, P: Protocol + Sync> Sync for RecursiveGuard<'_, T, P> {}

impl<T: ?Sized, P: Protocol> Deref for RecursiveGuard<'_, T, P> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.mutex.data
    }
}

impl<T: ?Sized, P: Protocol> Drop for RecursiveGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.mutex.depth.load(Ordering::Relaxed);
        if depth > 1 {
            self.mutex.depth.store(depth - 1, Ordering::Relaxed);
            return;
        }
        self.mutex.owner.store(0, Ordering::Relaxed);
        self.mutex.depth.store(0, Ordering::Relaxed);
        // SAFETY: this task holds the lock, and this was its last guard.
        unsafe { self.mutex.raw.release_of_guard() };
    }
}

impl<T: ?Sized + fmt::Debug, P: Protocol> fmt::Debug for RecursiveGuard<'_, T, P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
