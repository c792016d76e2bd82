//! The reader/writer lock with its data. How it is acquired is in `acquire.rs`.
#![allow(unsafe_code)]

use super::raw::RawRwLock;
use super::trace::Event;
use super::{Preference, WritersFirst};
use crate::atomic::const_unless_loom;
#[cfg(not(loom))]
use crate::mutex::throughput::Counters;
use crate::mutex::throughput::{Counting, Uncounted};
use crate::sharing::{Private, Sharing};
use core::cell::UnsafeCell;
use core::fmt;

/// Data that many tasks may read at a time, or one may change: see the [module](super).
///
/// A panic releases the lock; there is no poisoning. The child of a fork must not drop a guard of its parent's: if the lock
/// is shared, that would release the parent's. The death of a holder leaves the lock held.
///
/// The lock word takes eight bytes. Without contention, lock and unlock cost one atomic read-modify-write each.
/// [`read_traced`](Self::read_traced), [`write_traced`](Self::write_traced) and `unlock_traced` of the guards say what a
/// call did; with [`Counters`](crate::mutex::throughput::Counters) ([`RwLock::counted`]) the lock counts it.
#[repr(C)]
pub struct RwLock<
    T: ?Sized,
    S: Sharing = Private,
    P: Preference = WritersFirst,
    C: Counting<Event> = Uncounted,
> {
    pub(super) raw: RawRwLock<S, P, C>,
    pub(crate) data: UnsafeCell<T>,
}

// SAFETY: a writer has the data alone, and it may be on any thread: hence `T: Send`.
unsafe impl<T: ?Sized + Send, S: Sharing, P: Preference, C: Counting<Event>> Send
    for RwLock<T, S, P, C>
{
}
// SAFETY: readers on several threads share `&T` (`T: Sync`); a writer on any thread has `&mut T` (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync, S: Sharing, P: Preference, C: Counting<Event>> Sync
    for RwLock<T, S, P, C>
{
}

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
}

#[cfg(not(loom))]
impl<T, S: Sharing, P: Preference> RwLock<T, S, P, Counters<Event>> {
    /// An unlocked lock of any kind that counts what its slow paths do, in 64 bytes more.
    ///
    /// ```
    /// use latchwork::rwlock::{Event, RwLock};
    /// use latchwork::sharing::Private;
    ///
    /// let table = RwLock::<_, Private, latchwork::rwlock::WritersFirst, _>::counted(1);
    /// assert_eq!(*table.read(), 1);
    /// assert_eq!(table.counters().of(Event::ReadSlowPath), 0);
    /// ```
    #[must_use]
    pub const fn counted(value: T) -> Self {
        Self {
            raw: RawRwLock::counted(),
            data: UnsafeCell::new(value),
        }
    }
}

#[cfg(not(loom))]
impl<T: ?Sized, S: Sharing, P: Preference> RwLock<T, S, P, Counters<Event>> {
    /// The counters of the lock.
    #[must_use]
    pub fn counters(&self) -> &Counters<Event> {
        self.raw.counters()
    }
}

impl<T, S: Sharing, P: Preference, C: Counting<Event>> RwLock<T, S, P, C> {
    /// Consumes the lock and returns its data.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized, S: Sharing, P: Preference, C: Counting<Event>> RwLock<T, S, P, C> {
    /// The data, without locking: an exclusive reference proves that no other task uses it.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Whether the word is 0 again, for models.
    #[cfg(loom)]
    pub fn is_unused(&self) -> bool {
        self.raw.is_unused()
    }
}

#[cfg(not(loom))]
impl<T: Default, S: Sharing, P: Preference> Default for RwLock<T, S, P> {
    fn default() -> Self {
        Self::new_in(T::default())
    }
}

impl<T: ?Sized, S: Sharing, P: Preference, C: Counting<Event>> fmt::Debug for RwLock<T, S, P, C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RwLock")
            .field("raw", &self.raw)
            .finish_non_exhaustive()
    }
}
