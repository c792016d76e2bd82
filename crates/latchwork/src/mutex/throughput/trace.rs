//! What can be told of a lock call: how it got in, and, if wanted, how often everything happened.

#[cfg(not(loom))]
use crate::atomic::{AtomicU64, Ordering};

/// How a task got a [`Throughput`](super::Throughput) lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It was free.
    Free,
    /// It was held, and then taken ahead of those who wait in turn.
    Stolen,
    /// The task waited in turn, and took it when it was free.
    TopWaiter,
    /// The task had waited too long: the last holder passed it on, past all others.
    HandedOff,
}

/// How one lock call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquisition {
    /// How the lock was got.
    pub entry: Entry,
    /// How often the task went to sleep for it.
    pub sleeps: u32,
}

impl Acquisition {
    pub(super) const FREE: Self = Self {
        entry: Entry::Free,
        sleeps: 0,
    };
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A lock call found the lock held.
    LockSlowPath,
    /// An unlock had somebody to wake.
    UnlockSlowPath,
    /// [`Entry::Stolen`].
    Stolen,
    /// [`Entry::TopWaiter`].
    TopWaiter,
    /// [`Entry::HandedOff`].
    HandedOff,
    /// A task went to sleep in the queue.
    QueueSleep,
    /// A task went to sleep as the top waiter.
    TopSleep,
    /// A lock call ended without the lock.
    GivenUp,
}

mod sealed {
    pub trait Sealed {}
}

/// Whether a lock counts: [`Uncounted`] or [`Counters`].
pub trait Counting: sealed::Sealed + Send + Sync + 'static {
    /// Whether the lock stands in for one of another library's; see [`Foreign`].
    #[doc(hidden)]
    const FOREIGN: bool = false;

    /// Counts.
    #[doc(hidden)]
    fn count(&self, event: Event);
}

/// No counters: no memory, no time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncounted;

impl sealed::Sealed for Uncounted {}
impl Counting for Uncounted {
    #[inline(always)]
    fn count(&self, _: Event) {}
}

/// Of a lock that stands in for one of another library's. It may be locked again by its holder, which
/// waits, and unlocked by another task, as a semaphore. In the child of a fork it goes on. Its task may
/// not have a record, nor get one: so it has no turns.
#[cfg(not(loom))]
pub(in crate::mutex) struct Foreign;

#[cfg(not(loom))]
impl sealed::Sealed for Foreign {}
#[cfg(not(loom))]
impl Counting for Foreign {
    const FOREIGN: bool = true;
    #[inline(always)]
    fn count(&self, _: Event) {}
}

/// Counters inside the lock, for a table like that of the Linux patches that brought such locks. Each
/// slow path then writes to them; what is free costs nothing.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(C)]
pub struct Counters([AtomicU64; 8]);

#[cfg(not(loom))]
impl Counters {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 8])
    }

    /// How often it happened so far.
    #[must_use]
    pub fn of(&self, event: Event) -> u64 {
        // Relaxed: the answer may be stale before it arrives.
        self.0[event as usize].load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
impl sealed::Sealed for Counters {}
#[cfg(not(loom))]
impl Counting for Counters {
    fn count(&self, event: Event) {
        // Relaxed: a number, and nothing that follows from it.
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
    }
}
