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

    /// How many polls are made where `most` may be.
    #[doc(hidden)]
    #[inline(always)]
    fn polls(&self, most: u32) -> u32 {
        most
    }

    /// Polls have ended, with the lock or without it.
    #[doc(hidden)]
    #[inline(always)]
    fn polled(&self, _taken: bool) {}

    /// Whether a top waiter sleeps after its first polls, and does not look at the owner.
    #[doc(hidden)]
    #[inline(always)]
    fn is_tired(&self) -> bool {
        false
    }
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
///
/// The programs are not made for such locks: in some the holder sleeps, or gives its processor away, with each
/// lock it takes, and polls are in vain. So they are halved, for each lock, when they were, and doubled when they
/// were not; and one in sixteen is made in full, to find out.
#[cfg(all(feature = "foreign", not(loom)))]
#[repr(transparent)]
pub(in crate::mutex) struct Foreign(crate::atomic::AtomicU32);

#[cfg(all(feature = "foreign", not(loom)))]
impl Foreign {
    /// How often polls are halved.
    const HALVED: u32 = 7;
    const MOST: u32 = 6;
    const TIRED: u32 = 3;
    /// From there on it is counted how often there were polls.
    const COUNT: u32 = 3;
    const EVERY: u32 = 16;

    /// A word beside a lock; zero at first.
    #[allow(unsafe_code)]
    pub(in crate::mutex) fn of(word: &crate::atomic::AtomicU32) -> &Self {
        // SAFETY: the same, under another name.
        unsafe { &*core::ptr::from_ref(word).cast() }
    }

    // Relaxed, here and below: a guess; who changes it at the same time guesses as well.
    fn halved(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & Self::HALVED
    }
}

#[cfg(all(feature = "foreign", not(loom)))]
impl sealed::Sealed for Foreign {}
#[cfg(all(feature = "foreign", not(loom)))]
impl Counting for Foreign {
    const FOREIGN: bool = true;
    #[inline(always)]
    fn count(&self, _: Event) {}

    fn polls(&self, most: u32) -> u32 {
        let count = self.0.load(Ordering::Relaxed) >> Self::COUNT;
        if count.is_multiple_of(Self::EVERY) {
            most
        } else {
            most >> self.halved()
        }
    }

    fn polled(&self, taken: bool) {
        let count = (self.0.load(Ordering::Relaxed) >> Self::COUNT).wrapping_add(1);
        let halved = if taken {
            self.halved().saturating_sub(1)
        } else {
            (self.halved() + 1).min(Self::MOST)
        };
        self.0
            .store(count << Self::COUNT | halved, Ordering::Relaxed);
    }

    fn is_tired(&self) -> bool {
        self.halved() >= Self::TIRED
    }
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
