//! Reader/writer locks: many readers at a time, or one writer.
//!
//! | lock | size | if a holder dies | for |
//! | --- | --- | --- | --- |
//! | [`RwLock<T>`](RwLock) | 8 bytes | held for ever | threads of one process |
//! | [`RwLock<T, Shared>`](RwLock) | 8 bytes | held for ever | processes that cannot be killed, or that die together |
//! | [`RobustRwLock<T>`](RobustRwLock) | 64 bytes, and 64 for each reader at a time | a writer's death is reported to the next task; a dead reader's share is released | processes that can be killed at any moment |
//!
//! Use one where critical sections are long, or readers many. For critical sections below a microsecond a
//! [`Mutex`](crate::mutex::Mutex) is as fast.
//!
//! *Preference* is a type, [`WritersFirst`] (the default) or [`ReadersFirst`]. It bounds for how long others
//! may pass a waiter: a task that has waited for [`Preference::STARVES_AFTER`] has its turn before all that
//! come later, readers and writers in alternation. (Starving readers enter together: a reader that came later
//! may be the first of them.)
//!
//! *Reading while reading.* A task that acquires a read lock while it holds one waits for ever if a writer
//! waits in between: always under `WritersFirst`, after the threshold under `ReadersFirst`. A reader that waits
//! for another task to enter as a reader waits for ever in the same cases. `try_read` never waits. Writing
//! while reading, and reading while writing, always wait for ever. [`RobustRwLock`] reports all of these as
//! [`LockError::Deadlock`], except where tasks wait for each other outside the lock.
//!
//! ```
//! use latchwork::rwlock::RwLock;
//!
//! static ROUTES: RwLock<Vec<u32>> = RwLock::new(Vec::new());
//! ROUTES.write().push(7);
//! assert_eq!(ROUTES.read().first(), Some(&7));
//! ```
#![allow(unsafe_code)]

mod guard;
mod raw;
mod robust;
#[cfg(not(loom))]
mod traits;
mod watched;

pub use guard::{ReadGuard, WriteGuard};
pub use raw::RawRwLock;
#[cfg(loom)]
pub(crate) use robust::{Entered, RawRobust};
pub use robust::{LockError, OwnerDied, RobustReadGuard, RobustRwLock, RobustWriteGuard};

use crate::atomic::const_unless_loom;
use crate::mutex::{Unfinished, WaitMode};
use crate::sharing::{Private, Sharing};
use crate::time::Deadline;
use core::cell::UnsafeCell;
use core::fmt;
use core::time::Duration;

/// Which side a reader/writer lock prefers, and for how long. A program may implement its own:
///
/// ```
/// use core::time::Duration;
/// use latchwork::rwlock::{Preference, RwLock};
/// use latchwork::sharing::Private;
///
/// struct Patient;
/// impl Preference for Patient {
///     const READERS_FIRST: bool = true;
///     const STARVES_AFTER: Duration = Duration::from_millis(50);
/// }
/// static LOCK: RwLock<u32, Private, Patient> = RwLock::new_in(0);
/// ```
pub trait Preference: 'static {
    /// Whether readers that come while a writer waits enter before that writer.
    const READERS_FIRST: bool;
    /// How long others may pass a waiter. Much shorter values cost throughput when there are more tasks than
    /// CPUs: the time in which a task waits for its CPU counts as waiting.
    const STARVES_AFTER: Duration = Duration::from_millis(5);
}

/// A reader that comes while a writer waits has to wait, too.
#[derive(Debug)]
pub struct WritersFirst;

/// A writer waits until no reader holds the lock.
#[derive(Debug)]
pub struct ReadersFirst;

impl Preference for WritersFirst {
    const READERS_FIRST: bool = false;
}

impl Preference for ReadersFirst {
    const READERS_FIRST: bool = true;
}

/// Data that many tasks may read at a time, or one may change.
///
/// ```
/// use latchwork::rwlock::RwLock;
///
/// let limits = RwLock::new([1, 2]);
/// {
///     let (one, other) = (limits.read(), limits.read());
///     assert_eq!(*one, *other);
///     assert!(limits.try_write().is_none());
/// }
/// limits.write()[0] = 3;
/// ```
///
/// A panic releases the lock; there is no poisoning. The guards of a private lock must not be dropped in the
/// child of a fork. The death of a holder leaves the lock held.
///
/// The data lies beside the lock word of eight bytes. Without contention, lock and unlock cost one atomic
/// read-modify-write each.
#[repr(C)]
pub struct RwLock<T: ?Sized, S: Sharing = Private, P: Preference = WritersFirst> {
    raw: RawRwLock<S, P>,
    data: UnsafeCell<T>,
}

// SAFETY: a writer has the data alone, and it may be on any thread: hence `T: Send`.
unsafe impl<T: ?Sized + Send, S: Sharing, P: Preference> Send for RwLock<T, S, P> {}
// SAFETY: readers on several threads share `&T` (`T: Sync`); a writer on any thread has `&mut T` (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync, S: Sharing, P: Preference> Sync for RwLock<T, S, P> {}

#[cfg(not(loom))]
impl<T> RwLock<T> {
    /// An unlocked lock for the threads of this process that prefers writers.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self::new_in(value)
    }
}

#[cfg(not(loom))]
impl<T> RwLock<T, crate::sharing::Shared> {
    /// An unlocked lock for every process that maps it; it prefers writers.
    #[must_use]
    pub const fn shared(value: T) -> Self {
        Self::new_in(value)
    }
}

impl<T, S: Sharing, P: Preference> RwLock<T, S, P> {
    const_unless_loom! {
        /// An unlocked lock of any kind.
        #[must_use]
        pub fn new_in(value: T) -> Self {
            Self { raw: RawRwLock::new(), data: UnsafeCell::new(value) }
        }
    }

    /// Consumes the lock and returns its data.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized, S: Sharing, P: Preference> RwLock<T, S, P> {
    /// The data, without locking: an exclusive reference proves that no other task uses it.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Whether the word is 0 again, for models.
    #[cfg(loom)]
    pub fn is_unused(&self) -> bool {
        self.raw.is_unused()
    }

    /// Acquires the lock to read. Waits without a limit.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, S, P> {
        // Only success ends an endless wait.
        let _ = watched::enter::<_, _, false>(&self.raw, WaitMode::FOREVER);
        ReadGuard::new(self)
    }

    /// Acquires the lock to read, if readers may enter at this moment.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T, S, P>> {
        watched::try_enter::<_, _, false>(&self.raw).then(|| ReadGuard::new(self))
    }

    /// Acquires the lock to read, or returns `None` once `deadline` has passed.
    #[inline]
    #[track_caller]
    pub fn read_until(&self, deadline: Deadline) -> Option<ReadGuard<'_, T, S, P>> {
        let taken = watched::enter::<_, _, false>(&self.raw, WaitMode::until(Some(deadline)));
        taken.is_ok().then(|| ReadGuard::new(self))
    }

    /// Acquires the lock to read, or returns `None` after `timeout`.
    #[cfg(not(loom))]
    #[inline]
    #[track_caller]
    pub fn read_for(&self, timeout: Duration) -> Option<ReadGuard<'_, T, S, P>> {
        match self.try_read() {
            Some(guard) => Some(guard),
            None => self.read_until(Deadline::after(timeout)),
        }
    }

    /// Acquires the lock to read. Gives up at `deadline`, if there is one, and when a signal handler runs in
    /// this thread while it sleeps; see [`Mutex::lock_interruptible`](crate::mutex::Mutex::lock_interruptible).
    ///
    /// # Errors
    /// [`Unfinished`]: the lock is not acquired.
    #[inline]
    #[track_caller]
    pub fn read_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<ReadGuard<'_, T, S, P>, Unfinished> {
        watched::enter::<_, _, false>(&self.raw, WaitMode::interruptible(deadline))?;
        Ok(ReadGuard::new(self))
    }

    /// Acquires the lock to write. Waits without a limit.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T, S, P> {
        // Only success ends an endless wait.
        let _ = watched::enter::<_, _, true>(&self.raw, WaitMode::FOREVER);
        WriteGuard::new(self)
    }

    /// Acquires the lock to write, if it is free at this moment.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T, S, P>> {
        watched::try_enter::<_, _, true>(&self.raw).then(|| WriteGuard::new(self))
    }

    /// Acquires the lock to write, or returns `None` once `deadline` has passed.
    #[inline]
    #[track_caller]
    pub fn write_until(&self, deadline: Deadline) -> Option<WriteGuard<'_, T, S, P>> {
        let taken = watched::enter::<_, _, true>(&self.raw, WaitMode::until(Some(deadline)));
        taken.is_ok().then(|| WriteGuard::new(self))
    }

    /// Acquires the lock to write, or returns `None` after `timeout`.
    #[cfg(not(loom))]
    #[inline]
    #[track_caller]
    pub fn write_for(&self, timeout: Duration) -> Option<WriteGuard<'_, T, S, P>> {
        match self.try_write() {
            Some(guard) => Some(guard),
            None => self.write_until(Deadline::after(timeout)),
        }
    }

    /// Acquires the lock to write, as [`Self::read_interruptible`] does to read.
    ///
    /// # Errors
    /// [`Unfinished`]: the lock is not acquired.
    #[inline]
    #[track_caller]
    pub fn write_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<WriteGuard<'_, T, S, P>, Unfinished> {
        watched::enter::<_, _, true>(&self.raw, WaitMode::interruptible(deadline))?;
        Ok(WriteGuard::new(self))
    }
}

#[cfg(not(loom))]
impl<T: Default, S: Sharing, P: Preference> Default for RwLock<T, S, P> {
    fn default() -> Self {
        Self::new_in(T::default())
    }
}

impl<T: ?Sized, S: Sharing, P: Preference> fmt::Debug for RwLock<T, S, P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RwLock")
            .field("raw", &self.raw)
            .finish_non_exhaustive()
    }
}
