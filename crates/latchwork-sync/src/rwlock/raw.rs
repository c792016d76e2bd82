//! The protocol of the reader/writer lock: one word of 64 bits.
//!
//! Not recursive for writers, no priority inheritance, not robust. Sources of the ideas: W. Long's shared TP
//! futexes (a count of readers, bounded spinning, hand-off after a time threshold); B. Brandenburg's phase-fair
//! locks (its policy while a task starves). The combination is this crate's own.
//!
//! | bits | name | meaning | changed by |
//! | --- | --- | --- | --- |
//! | 0–23 | `READERS` | without `WRITER`: readers inside | +1 by a reader that enters, −1 by one that leaves |
//! | | `ID` | with `WRITER`: the writer's thread ID, or 0 | set by a writer that enters by the slow path; cleared by it as it leaves |
//! | 24–29 | `STARVING` | tasks that have waited longer than the threshold | +1 by a waiter before it sleeps again, −1 when it enters or gives up |
//! | 30 | `OPEN` | free, although the word is not 0 | set by a release; cleared by a task that enters |
//! | 31 | `WRITER` | a writer is inside | the writer |
//! | 32–59 | `WAITING` | writers that wait | +1 before the first sleep, −1 on entering or giving up |
//! | 60 | `VACANT_TO_ANY` | as `OPEN`, and the release calls readers, or else a writer | as `OPEN` |
//! | 61 | `VACANT_TO_STARVING` | as `OPEN`, and the release calls starving tasks of either kind | as `OPEN` |
//! | 62 | `CALL_WRITER` | the next release has to wake a writer | set by a writer before it sleeps, or that enters or gives up while others wait; cleared by the release |
//! | 63 | `CALL_READERS` | the next release has to wake readers | set by a reader before it sleeps; cleared by the task that wakes them |
//!
//! | word | state |
//! | --- | --- |
//! | 0, or with `OPEN` | free |
//! | `READERS` > 0 | held by readers |
//! | `WRITER` | held by a writer |
//! | none of these, not 0 | the last reader has left and is about to decide which waiters it wakes: that reader holds the lock |
//!
//! Tasks sleep on the *high half* of the word, in one of four groups (readers, writers, starving readers,
//! starving writers) that futex bit masks distinguish. An *entering* task acquires the lock, a *leaving* one
//! releases it, and *calling* a group means waking it.
//!
//! Invariants
//! 1. A task sleeps on a value of the high half that it has read from a word that did not admit it. That value
//!    counts the task as what it is (a writer in `WAITING`, a starving task in `STARVING`) and has its `CALL_…`
//!    bit set. (A task that has just counted itself checks once more: the lock may be free and admit it now.)
//! 2. `WAITING` and `STARVING` are exact as far as living tasks are concerned: each task subtracts what it
//!    added in the same step in which it enters or gives up.
//! 3. If a writer waits and `CALL_WRITER` is clear, then a waiting writer is awake, or the release that cleared
//!    the bit is about to wake one. That writer enters, sleeps again, or gives up, and sets the bit each time
//!    if other writers are left.
//! 4. A task that gives up enters instead if the lock is free.
//!
//! *No wake-up is lost.* Suppose that a waiter is asleep and no task is inside. The lock became free by a
//! release: one compare-and-swap, followed by a wake-up.
//!
//! *The release calls one kind:* it cleared that kind's `CALL_…` bit, if it was set, so the high half changed,
//! and the kernel refuses the sleep of each task that read the word before. (If the half has the same value
//! again, a task has asked for a wake-up since, on a lock that was held again: the release of that holder is
//! yet to come.) A task that slept already is woken, or by 3 a writer is awake.
//!
//! *The release calls either kind* (a task starves; or readers come first, and a writer waits): the readers that were
//! to be called may have given up. So a wake-up that finds no sleeper of the preferred kind goes to the other kind. The
//! release also set a `VACANT_…` bit, so the kernel refuses the sleep of each task that is about to sleep. All other
//! waiters wait for the tasks that are called. (While some tasks starve, others may go to sleep on a lock that is
//! vacant to the starving ones, and thus have read its bit. On a lock that is vacant to any no task goes to sleep,
//! since it admits all. So `VACANT_TO_ANY` is new to every task that is about to sleep. `VACANT_TO_STARVING` is not new
//! to a task that has read it, but such a task does not starve, and waits for those that do.)
//!
//! A woken task enters, or finds a holder, whose release is yet to come; by 4 it does not give up a free lock. Readers
//! that wait only because writers wait are woken by a writer's release, or by the last writer that gives up.
//!
//! *Which waiters a release wakes:* one writer, or all readers, in the kernel's order: by real-time priority, then in
//! order of arrival. While a woken task is on its way (3), the next releases wake no further one.
//!
//! *Orderings:* each step that leaves is a Release and pairs with the Acquire of each step that enters. Steps
//! of other tasks between the two are read-modify-writes, which continue the release sequence. Steps that
//! neither enter nor leave need no ordering: the kernel compares under its own lock.
//!
//! *After the lock is free* a releasing task uses only its address, in wake-ups. That is why the last reader
//! leaves in two steps if any task waits: it reads what it needs between the two.
//!
//! *Polls.* A waiter polls for `HAND_OVER` rounds before each sleep. For a writer that runs it polls on, and stops when the
//! writer does not: it reads the writer's CPU clock after each further `HAND_OVER` rounds, as the top waiter of a
//! throughput mutex does ([`OwnerMonitor`](crate::mutex)). It needs the writer's ID for that. The free path leaves none,
//! since it would cost an instruction there, and the compare-and-swap of a release would need the ID as well; a writer that
//! had to wait for a private lock leaves its ID in the bits that count readers at other times, in the same step in which it enters. So where
//! writers collide, most of them are known. The ID is a guess by which no task decides whether to enter: a task that
//! enters, leaves or sleeps goes by `WRITER`, and bits 0–23 count readers only if that is clear. (A waiter's polls are
//! bounded by the threshold of its preference. Where the process has learned that such polls do not pay, waits do without them.) A waiter polls on
//! only while it would be the first to sleep, so no release takes its slow path longer than without; and a real-time task
//! does not, since sleepers are woken in the order of their priorities. The writers of locks that
//! processes share are not observed: the clock of another process's thread cannot be read, and its ID may be that of a
//! thread of this process. Readers inside leave no IDs.
//!
//! *Progress:* newcomers may pass sleepers. A task that has waited for [`Preference::STARVES_AFTER`] *starves*: newcomers stay out, and
//! releases hand the lock to starving readers and writers in alternation, until no task starves. At most 63 tasks
//! starve at a time; further ones wait until there is room in the count. Starvation takes precedence over real-time
//! priority, once for each task that starves. (A starving reader may not see that readers have been called, if another
//! reader has set `CALL_READERS` again since. That reader calls it as it enters, with all readers that may join.)
//!
//! *Hostile events:* after EINTR a waiter waits again. After the death of a holder, or of a woken task on its way, the
//! lock stays as it is for ever (a [robust mutex](crate::mutex::Robust) reports deaths). Fork: see [`Private`]. A
//! signal handler must not acquire a lock that the code it interrupts may hold. *Frozen:* size 8, alignment 8, the bits
//! above, zero = unlocked. *Cost, free:* a load and a compare-and-swap to read, one compare-and-swap to write, one
//! read-modify-write to leave, inlined. *Checked by:* `tests/loom_rwlock.rs` (two and three tasks, both preferences,
//! deadlines, starvation, spurious wake-ups; negative twins), `state/tests.rs` (the same without a bound on
//! preemptions, over the word's transitions alone), `tests/rwlock.rs`, `tests/rwlock_traced.rs`. The models leave out polling, more than three
//! tasks, and the order in which the kernel wakes.
#![allow(unsafe_code)]

mod state;
mod wait;

use self::state::{
    NO_GROUP, ONE_READER, READERS, SLEEPING_READERS, SLEEPING_WRITERS, STARVING_READERS,
    STARVING_WRITERS, State, WRITER, Waiter,
};
use super::trace::{Acquisition, Event, Released};
use super::{Preference, WritersFirst};
use crate::atomic::{AtomicU64, Ordering, const_unless_loom, unless_fault};
#[cfg(not(loom))]
use crate::mutex::throughput::Counters;
use crate::mutex::throughput::{Counting, Uncounted};
use crate::mutex::{Unfinished, WaitMode};
use crate::sharing::{Private, Sharing};
use crate::sys::futex;
use core::marker::PhantomData;

/// A reader/writer lock without data: the part of [`RwLock`](super::RwLock) that other crates use through [`lock_api`].
///
/// Eight bytes; zero is unlocked; movable while unlocked. With [`Counters`](crate::mutex::throughput::Counters) it is 72
/// bytes, and counts what its slow paths do.
///
/// ```
/// use latchwork::rwlock::RawRwLock;
/// use lock_api::RawRwLock as _;
///
/// // `lock_api::RwLock<RawRwLock, T>` has guards and data.
/// static LOCK: RawRwLock = RawRwLock::INIT;
/// assert!(LOCK.try_lock_shared() && !LOCK.try_lock_exclusive());
/// // SAFETY: it is held, by the call above.
/// unsafe { LOCK.unlock_shared() };
/// ```
#[repr(C)]
pub struct RawRwLock<
    S: Sharing = Private,
    P: Preference = WritersFirst,
    C: Counting<Event> = Uncounted,
> {
    state: AtomicU64,
    counts: C,
    kind: PhantomData<fn() -> (S, P)>,
}

impl<S: Sharing, P: Preference> RawRwLock<S, P> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self::with(Uncounted)
        }
    }
}

#[cfg(not(loom))]
impl<S: Sharing, P: Preference> RawRwLock<S, P, Counters<Event>> {
    /// An unlocked lock that counts.
    #[must_use]
    pub const fn counted() -> Self {
        Self::with(Counters::new())
    }

    /// The counters of the lock.
    #[must_use]
    pub fn counters(&self) -> &Counters<Event> {
        &self.counts
    }
}

impl<S: Sharing, P: Preference, C: Counting<Event>> RawRwLock<S, P, C> {
    /// Frees a lock that no task uses, unless a task is inside. Whoever waited is gone.
    #[cfg(not(loom))]
    pub(super) fn put_to_rest(&mut self) -> bool {
        let state = self.state.get_mut();
        let is_free = *state & (READERS | WRITER) == 0;
        *state = if is_free { 0 } else { *state };
        is_free
    }

    const_unless_loom! {
        fn with(counts: C) -> Self {
            Self { state: AtomicU64::new(0), counts, kind: PhantomData }
        }
    }

    /// Whether a task is inside, and whether as a writer.
    pub(super) fn holders(&self) -> (bool, bool) {
        // Relaxed: the answer may be stale on return.
        let state = State(self.state.load(Ordering::Relaxed));
        (!state.is_free(), state.has(WRITER))
    }

    #[cfg(loom)]
    pub(super) fn is_unused(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
    }

    /// Enters to write, or to read.
    #[inline]
    #[doc(hidden)]
    pub fn enter<const WRITES: bool>(&self, wait_mode: WaitMode) -> Result<(), Unfinished> {
        if self.enter_free::<WRITES>() {
            Ok(())
        } else {
            self.contend::<WRITES>(wait_mode).map(drop)
        }
    }

    /// As [`Self::enter`], and returns how the task entered.
    #[inline]
    pub(super) fn enter_traced<const WRITES: bool>(
        &self,
        wait_mode: WaitMode,
    ) -> Result<Acquisition, Unfinished> {
        if self.enter_free::<WRITES>() {
            Ok(Acquisition::FREE)
        } else {
            self.contend::<WRITES>(wait_mode)
        }
    }

    #[inline]
    #[doc(hidden)]
    pub fn try_enter<const WRITES: bool>(&self) -> bool {
        self.enter_free::<WRITES>() || self.attempt::<WRITES>(Waiter::NEWCOMER).is_ok()
    }

    #[inline]
    fn enter_free<const WRITES: bool>(&self) -> bool {
        // Acquire: pairs with each Release below.
        if WRITES {
            self.state
                .compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        } else {
            // Relaxed: only the compare-and-swap enters.
            let state = self.state.load(Ordering::Relaxed);
            let acquire = unless_fault!(RwLockReadRelaxed, Ordering::Acquire, Ordering::Relaxed);
            state < READERS
                && self
                    .state
                    .compare_exchange_weak(state, state + ONE_READER, acquire, Ordering::Relaxed)
                    .is_ok()
        }
    }

    /// # Safety
    /// The calling task holds the lock as a reader.
    #[inline]
    #[doc(hidden)]
    pub unsafe fn unlock_read(&self) {
        // SAFETY: the same contract.
        unsafe { self.unlock_read_traced() };
    }

    /// As [`Self::unlock_read`], and returns what it did for the waiters.
    ///
    /// # Safety
    /// As for [`Self::unlock_read`].
    #[inline]
    #[doc(hidden)]
    pub unsafe fn unlock_read_traced(&self) -> Released {
        // Release: pairs with the Acquire of a writer.
        let release = unless_fault!(RwLockUnreadRelaxed, Ordering::Release, Ordering::Relaxed);
        let state = self.state.fetch_sub(ONE_READER, release) - ONE_READER;
        if state != 0 && state & READERS == 0 {
            self.release(State(state), false)
        } else {
            Released::NoSleeper
        }
    }

    /// # Safety
    /// The calling task holds the lock as a writer.
    #[inline]
    #[doc(hidden)]
    pub unsafe fn unlock_write(&self) {
        // SAFETY: the same contract.
        unsafe { self.unlock_write_traced() };
    }

    /// As [`Self::unlock_write`], and returns what it did for the waiters.
    ///
    /// # Safety
    /// As for [`Self::unlock_write`].
    #[inline]
    #[doc(hidden)]
    pub unsafe fn unlock_write_traced(&self) -> Released {
        // Release: pairs with the Acquire of the task that enters next.
        match self
            .state
            .compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed)
        {
            Ok(_) => Released::NoSleeper,
            Err(state) => self.release(State(state), true),
        }
    }

    /// Enters if the state admits it; returns the state that does not.
    fn attempt<const WRITES: bool>(&self, waiter: Waiter) -> Result<(), State> {
        // Relaxed: only a compare-and-swap enters.
        let mut state = State(self.state.load(Ordering::Relaxed));
        while state.admits::<P, WRITES>(waiter) {
            let to = state.entered::<WRITES>(waiter);
            let calls = unless_fault!(RwLockEntrantForgetsReaders, true, false);
            // Acquire: pairs with the Release of the tasks that left.
            match self.change_and_call(state, to, Ordering::Acquire, calls) {
                Ok(()) => return Ok(()),
                Err(now) => state = now,
            }
        }
        Err(state)
    }

    /// One step; fails with the word's value if it was not `state`.
    fn change(&self, state: State, to: State, order: Ordering) -> Result<(), State> {
        let changed = self
            .state
            .compare_exchange_weak(state.0, to.0, order, Ordering::Relaxed);
        changed.map(|_| ()).map_err(State)
    }

    /// As [`Self::change`]; also calls the readers, if the new state lets them join those inside. (`calls` is false in
    /// negative twins only.)
    fn change_and_call(
        &self,
        state: State,
        to: State,
        order: Ordering,
        calls: bool,
    ) -> Result<(), State> {
        let called = to.with_readers_called::<P>().filter(|_| calls);
        self.change(state, called.unwrap_or(to), order)?;
        if called.is_some() {
            wake::<S>(&raw const self.state, SLEEPING_READERS | STARVING_READERS);
        }
        Ok(())
    }

    /// Releases a lock that other tasks may wait for.
    #[cold]
    fn release(&self, mut state: State, wrote: bool) -> Released {
        let address = &raw const self.state;
        let mut counted = false;
        let [first, second] = loop {
            // While this task is still inside: after the release the memory may be gone.
            if !counted && !state.counts_only(Waiter::NEWCOMER) {
                counted = true;
                self.counts.count(Event::UnlockSlowPath);
            }
            let (to, groups) = state.released::<P>(wrote);
            // Release: pairs with the Acquire of the task that enters next.
            match self.change(state, to, Ordering::Release) {
                Ok(()) => break groups,
                Err(now) => state = now,
            }
        };
        let none = unless_fault!(RwLockWakesOneKind, 0, usize::MAX);
        if first == NO_GROUP {
            return Released::NoSleeper;
        }
        if wake::<S>(address, first) == none && second != NO_GROUP {
            wake::<S>(address, second);
        }
        if first & (STARVING_READERS | STARVING_WRITERS) != 0 {
            Released::HandedOff
        } else {
            Released::Woke
        }
    }

    /// The writer becomes a reader in one step.
    ///
    /// # Safety
    /// The calling task holds the lock as a writer.
    pub(super) unsafe fn downgrade(&self) {
        let mut state = State(WRITER);
        // Release: pairs with the Acquire of readers.
        while let Err(now) =
            self.change_and_call(state, state.downgraded(), Ordering::Release, true)
        {
            state = now;
        }
    }
}

/// Wakes one writer, or all readers.
fn wake<S: Sharing>(state: *const AtomicU64, mask: u32) -> usize {
    let count = if mask & (SLEEPING_WRITERS | STARVING_WRITERS) != 0 {
        1
    } else {
        u32::MAX
    };
    futex::wake_high(state, count, mask, S::FLAG)
}

impl<S: Sharing, P: Preference> Default for RawRwLock<S, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Sharing, P: Preference, C: Counting<Event>> core::fmt::Debug for RawRwLock<S, P, C> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (locked, by_writer) = self.holders();
        formatter
            .debug_struct("RawRwLock")
            .field("locked", &locked)
            .field("by_writer", &by_writer)
            .finish()
    }
}
