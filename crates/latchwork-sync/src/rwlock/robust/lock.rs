//! The robust reader/writer lock with its data. How it is acquired is in `acquire.rs`.
#![allow(unsafe_code)]

use super::parts::{Part, SeatLock};
use super::raw::RawRobust;
use crate::atomic::const_unless_loom;
use crate::mutex::Robust;
#[cfg(not(loom))]
use crate::mutex::throughput::Counters;
use crate::mutex::throughput::{Counting, Uncounted};
use crate::rwlock::trace::Event;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::ManuallyDrop;

/// Data that many tasks may read at a time, or one may change, each of which may be killed at any instruction.
///
/// 64 bytes, and 64 for each of at most `READERS` readers that are inside at a time, beside the data; one more reader
/// waits. The lock must not move while it is in use, hence the pinned methods; see [`Robust`]. Processes share it in a
/// region or another mapping. [`RegionRwLock`](super::RegionRwLock) is the kind that may move, for regions alone.
///
/// The death of a writer, or its panic, is reported to the next task by
/// [`LockError::OwnerDied`](super::LockError::OwnerDied). That of a reader is detected by a task that waits for it, and
/// needs no report. Data that no task has repaired is not dropped with the lock.
///
/// ```
/// use core::pin::Pin;
/// use latchwork::rwlock::{LockError, RobustRwLock};
///
/// static LIMITS: RobustRwLock<[u32; 2]> = RobustRwLock::new([1, 9]);
/// let limits = Pin::static_ref(&LIMITS);
/// match limits.read() {
///     Ok(limits) => assert!(limits[0] <= limits[1]),
///     // A writer died; what it was doing is ours to find out, with the lock held to write.
///     Err(LockError::OwnerDied(died)) => {
///         let repaired = died.replace([1, 9]);
///         assert_eq!(repaired[0], 1);
///     }
///     Err(error) => panic!("{error}"),
/// }
/// ```
///
/// [`read_traced`](Self::read_traced), [`write_traced`](Self::write_traced) and `unlock_traced` of the guards say what a
/// call did. [`hand_off_after`](Self::hand_off_after) sets the bound on waits. With
/// [`Counters`](crate::mutex::throughput::Counters) ([`RobustRwLock::counted`]) the lock counts what its slow paths do, in
/// 64 bytes more.
#[repr(C)]
pub struct RobustRwLock<
    T: ?Sized,
    const READERS: usize = 16,
    C: Counting<Event> = Uncounted,
    K: SeatLock = Robust,
> {
    pub(super) raw: RawRobust<READERS, C, K>,
    /// Dropped if it is not torn.
    pub(crate) data: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: a writer has the data alone, and it may be on any thread: hence `T: Send`.
unsafe impl<T: ?Sized + Send, const READERS: usize, C: Counting<Event>, K: SeatLock> Send
    for RobustRwLock<T, READERS, C, K>
{
}
// SAFETY: readers on several threads share `&T` (`T: Sync`); a writer on any thread has `&mut T` (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync, const READERS: usize, C: Counting<Event>, K: SeatLock> Sync
    for RobustRwLock<T, READERS, C, K>
{
}

impl<T, const READERS: usize> RobustRwLock<T, READERS> {
    const_unless_loom! {
        /// An unlocked lock, for threads and processes alike.
        ///
        /// A lock without seats (`READERS == 0`) does not compile.
        #[must_use]
        pub fn new(value: T) -> Self {
            Self { raw: RawRobust::new(), data: UnsafeCell::new(ManuallyDrop::new(value)) }
        }
    }
}

#[cfg(not(loom))]
impl<T, const READERS: usize> RobustRwLock<T, READERS, Counters<Event>> {
    /// An unlocked lock that counts what its slow paths do.
    ///
    /// ```
    /// use core::pin::pin;
    /// use latchwork::rwlock::{Event, RobustRwLock};
    ///
    /// let table = pin!(RobustRwLock::<_, 16, _>::counted(1));
    /// assert_eq!(*table.as_ref().read().unwrap(), 1);
    /// assert_eq!(table.counters().of(Event::WriteSlowPath), 0);
    /// ```
    ///
    /// Owner death: a task that dies in a call may have counted some of its events and not others.
    #[must_use]
    pub const fn counted(value: T) -> Self {
        Self {
            raw: RawRobust::with(Counters::new()),
            data: UnsafeCell::new(ManuallyDrop::new(value)),
        }
    }
}

#[cfg(not(loom))]
impl<T: ?Sized, const READERS: usize, K: SeatLock> RobustRwLock<T, READERS, Counters<Event>, K> {
    /// The counters of the lock.
    #[must_use]
    pub fn counters(&self) -> &Counters<Event> {
        self.raw.counts()
    }
}

#[cfg(not(loom))]
impl<T, const READERS: usize, C: Counting<Event>> RobustRwLock<T, READERS, C> {
    /// Sets after what time the first waiter gets the lock handed off, past all tasks that came later: 5 ms by default.
    /// Exact to the microsecond; zero is "at once"; `None` is "never", and a wait then has no bound. It is the threshold of
    /// the gate (see the module's documentation of the protocol), which all writers pass, and all readers that wait.
    ///
    /// ```
    /// use core::pin::pin;
    /// use core::time::Duration;
    /// use latchwork::rwlock::RobustRwLock;
    ///
    /// let table = RobustRwLock::<_>::new(1).hand_off_after(Some(Duration::from_micros(500)));
    /// let table = pin!(table);
    /// assert_eq!(*table.as_ref().read().unwrap(), 1);
    /// ```
    #[must_use]
    pub const fn hand_off_after(mut self, threshold: Option<core::time::Duration>) -> Self {
        self.raw.gate.set_hand_off(threshold);
        self
    }
}

impl<T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock> Drop
    for RobustRwLock<T, READERS, C, K>
{
    fn drop(&mut self) {
        if !self.raw.is_torn() {
            // SAFETY: the data is not torn, and is not used after this.
            unsafe { ManuallyDrop::drop(self.data.get_mut()) };
        }
    }
}

impl<T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock> fmt::Debug
    for RobustRwLock<T, READERS, C, K>
{
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seats = self.raw.seats.iter();
        formatter
            .debug_struct("RobustRwLock")
            .field("writer", &self.raw.gate.holder().map(K::shown))
            .field("readers", &seats.filter_map(|seat| seat.0.holder()).count())
            .finish_non_exhaustive()
    }
}
