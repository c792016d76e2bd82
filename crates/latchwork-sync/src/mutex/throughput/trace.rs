//! What a lock call reports of itself: how it took the lock and, if wanted, how often each event happened. (Reader/writer
//! locks have events of their own, and count them by the same types: `rwlock/trace.rs`.)

#[cfg(not(loom))]
use crate::atomic::AtomicU64;
use crate::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use core::marker::PhantomData;

/// How a task got a [`Throughput`](super::Throughput) lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The lock was free.
    Free,
    /// The lock was held; the task then took it ahead of the waiters in the queue.
    Stolen,
    /// The task waited in the queue, and took the lock when it was free.
    TopWaiter,
    /// The task had waited for too long: the last owner handed the lock off, past all newcomers.
    HandedOff,
}

/// How one lock call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquisition {
    /// How the task took the lock.
    pub entry: Entry,
    /// How often the task went to sleep for it.
    pub sleeps: u32,
}

impl Acquisition {
    pub(in crate::mutex) const FREE: Self = Self {
        entry: Entry::Free,
        sleeps: 0,
    };
}

/// What an unlock did for the tasks that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lock was not marked: no task slept on it, and the unlock freed it. (A task that polls may take it.)
    NoSleeper,
    /// The lock was marked as one on which tasks may sleep: the unlock freed it, and woke all that slept on it. (There
    /// may be none: the waiter had not gone to sleep yet, or had given up; or data of a dead owner was passed on.)
    Woke,
    /// A task had waited for too long: the unlock reserved the lock for it, past all newcomers, and woke one sleeper, if
    /// there was one.
    HandedOff,
}

/// The events that are counted.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A lock call found the lock held.
    LockSlowPath,
    /// An unlock found `WAITERS` in the word: a task may have slept.
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

/// The events that one kind of lock counts.
#[doc(hidden)]
pub trait Countable: 'static {
    /// The event's counter, below 8.
    fn index(self) -> usize;
}

impl Countable for Event {
    fn index(self) -> usize {
        self as usize
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Whether a lock counts the events `E`: [`Uncounted`] or [`Counters`].
pub trait Counting<E = Event>: sealed::Sealed + Send + Sync + 'static {
    /// Whether [`Self::foreign`] returns anything.
    #[doc(hidden)]
    const FOREIGN: bool = false;

    /// Whether [`Self::count`] does anything.
    #[doc(hidden)]
    const COUNTS: bool = false;

    /// Counts one event.
    #[doc(hidden)]
    fn count(&self, event: E);

    /// What the lock has learned, if it stands in for one of another library's.
    #[doc(hidden)]
    #[inline(always)]
    fn foreign(&self) -> Option<&Foreign> {
        None
    }
}

/// Counters of a robust lock: [`Uncounted`] or [`Counters`].
#[doc(hidden)]
pub trait Tally<E = Event>: Counting<E> {
    /// No event has happened.
    const NEW: Self;
}

impl<E> Tally<E> for Uncounted {
    const NEW: Self = Self;
}

#[cfg(not(loom))]
impl<E: Countable> Tally<E> for Counters<E> {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "each use is a new value, as of a constructor"
    )]
    const NEW: Self = Self::new();
}

/// No counters: they take no memory and no time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncounted;

impl sealed::Sealed for Uncounted {}
impl<E> Counting<E> for Uncounted {
    #[inline(always)]
    fn count(&self, _: E) {}
}

/// For a lock that stands in for one of another library's. Its owner may lock it again, and then waits; another task
/// may unlock it, as a semaphore. It goes on working in the child of a fork. Its task may have no record, and must get
/// none: so there are no turns.
///
/// Programs were not written for such locks: in some of them the owner sleeps, or yields its processor, each time it
/// holds the lock, and polls are in vain. So each lock halves its polls when they were in vain, and doubles them when
/// they were not. One wait in sixteen polls in full, to learn whether polls pay again.
#[cfg_attr(not(feature = "foreign"), allow(dead_code))]
#[repr(transparent)]
pub struct Foreign(AtomicU32);

impl Foreign {
    /// Bits of the word: how often polls are halved.
    const HALVED: u32 = 7;
    const MAX_HALVINGS: u32 = 6;
    const SLEEPS_AT_ONCE: u32 = 3;
    /// The bits from this one on count the waits that polled.
    const COUNT: u32 = 3;
    const FULL_POLLS_EVERY: u32 = 16;

    /// From a word beside a lock; zero at first.
    #[cfg(all(feature = "foreign", not(loom)))]
    #[allow(unsafe_code)]
    pub(in crate::mutex) fn from_word(word: &AtomicU32) -> &Self {
        // SAFETY: `Foreign` is `repr(transparent)` over an `AtomicU32`, and the lifetime stays the same.
        unsafe { &*core::ptr::from_ref(word).cast() }
    }

    // Relaxed, here and below: a guess; a task that changes it at the same time guesses as well.
    fn halved(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & Self::HALVED
    }

    /// How many polls a wait makes whose bound is `most`.
    pub(super) fn polls(&self, most: u32) -> u32 {
        let count = self.0.load(Ordering::Relaxed) >> Self::COUNT;
        if count.is_multiple_of(Self::FULL_POLLS_EVERY) {
            most
        } else {
            most >> self.halved()
        }
    }

    /// A wait has stopped polling, with the lock or without it.
    pub(super) fn polled(&self, taken: bool) {
        let count = (self.0.load(Ordering::Relaxed) >> Self::COUNT).wrapping_add(1);
        let halved = if taken {
            self.halved().saturating_sub(1)
        } else {
            (self.halved() + 1).min(Self::MAX_HALVINGS)
        };
        self.0
            .store(count << Self::COUNT | halved, Ordering::Relaxed);
    }

    /// Whether a top waiter sleeps after its first polls, without checking whether the owner runs.
    pub(super) fn sleeps_at_once(&self) -> bool {
        self.halved() >= Self::SLEEPS_AT_ONCE
    }
}

impl sealed::Sealed for Foreign {}
impl Counting for Foreign {
    const FOREIGN: bool = true;
    #[inline(always)]
    fn count(&self, _: Event) {}

    #[inline(always)]
    fn foreign(&self) -> Option<&Foreign> {
        Some(self)
    }
}

/// Counters inside the lock, for a table like that of the Linux patches that brought throughput locks. Each slow path
/// then writes to them; a lock call that finds the lock free costs nothing more. `E` says which events: those of a
/// throughput mutex, or those of a [reader/writer lock](crate::rwlock::Event).
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(C)]
pub struct Counters<E = Event>([AtomicU64; 8], PhantomData<fn(E)>);

#[cfg(not(loom))]
impl<E: Countable> Counters<E> {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 8], PhantomData)
    }

    /// How often the event has happened so far.
    #[must_use]
    pub fn of(&self, event: E) -> u64 {
        // Relaxed: the answer may be stale before it arrives.
        self.0[event.index()].load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
impl<E> sealed::Sealed for Counters<E> {}
#[cfg(not(loom))]
impl<E: Countable> Counting<E> for Counters<E> {
    const COUNTS: bool = true;

    fn count(&self, event: E) {
        // Relaxed: only a number; no other memory depends on it.
        self.0[event.index()].fetch_add(1, Ordering::Relaxed);
    }
}
