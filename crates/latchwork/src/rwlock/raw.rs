//! The protocol of the reader/writer lock: one word of 64 bits.
//!
//! Not recursive for writers, no priority inheritance, not robust. Source of the ideas: W. Long's
//! shared TP futexes (a count of readers, bounded spinning, hand-off after a time threshold); B.
//! Brandenburg's phase-fair locks (what it becomes while somebody starves). The form is this crate's.
//!
//! | bits | name | meaning | changed by |
//! | --- | --- | --- | --- |
//! | 0–23 | `READERS` | readers inside | +1 by a reader that enters, −1 by one that leaves |
//! | 24–29 | `STARVING` | tasks that have waited for too long | +1 by one before it sleeps again, −1 when it enters or gives up |
//! | 30 | `OPEN` | free, although the word is not 0 | release; cleared by who enters |
//! | 31 | `WRITER` | a writer is inside | the writer |
//! | 32–59 | `WAITING` | writers that wait | +1 before the first sleep, −1 on entering or giving up |
//! | 60 | `VACANT_TO_ANY` | as `OPEN`, and readers are called, or a writer, whoever there is | as `OPEN` |
//! | 61 | `VACANT_TO_STARVING` | as above, of those that starve | as `OPEN` |
//! | 62 | `CALL_WRITER` | the next release is to wake a writer | set by a writer that lies down, or that goes while others wait; cleared by the release |
//! | 63 | `CALL_READERS` | the next release is to wake readers | set by a reader that lies down; cleared by who wakes them |
//!
//! | word | state |
//! | --- | --- |
//! | 0, or with `OPEN` | free |
//! | `READERS` > 0 | held by readers |
//! | `WRITER` | held by a writer |
//! | none of these, not 0 | the last reader has left, and is about to say whom it wakes: held by that one |
//!
//! Tasks sleep on the *high half*, as one of four groups (readers, writers, starving readers, starving
//! writers) that the kernel tells apart by a mask.
//!
//! Invariants
//! 1. A task sleeps on a high half that it has looked at when the word did not admit it, counted as
//!    what it is, with its `CALL_…` bit set. (Whoever has just counted itself looks once more: a free
//!    lock may admit it now.)
//! 2. `WAITING` and `STARVING` are exact, among the living: each task takes back what it added, in the
//!    same step in which it enters or gives up.
//! 3. If a writer waits and `CALL_WRITER` is clear, one that waits is awake, or the release that cleared
//!    it is about to wake one. That one enters, lies down, or gives up, and sets the bit each time, if
//!    others are left.
//! 4. Who gives up enters instead if the lock is free.
//!
//! *No wake-up is lost.* Let a task that waits be asleep, and nobody inside. The lock became free by a
//! release, one compare-and-swap, followed by a wake-up. *For one kind:* the release took that kind's
//! `CALL_…` bit away, if there was one, so the high half changed, and the kernel refuses the sleep of
//! whoever looked before it. (If the half is the same again, somebody lay down since, on a lock that was
//! held again: that holder's release is yet to come.) Whoever slept is woken, or by 3 a writer is awake.
//! *For either kind* (somebody starves; or readers come first, and a writer waits): the readers that
//! were to be called may have given up, so a wake-up that finds none of the kind that is first goes to
//! the other kind, and the release set a `VACANT_…` bit, so whoever is on its way to sleep is refused.
//! Others wait for those. (While some starve, others may lie down on a lock that is vacant to those; on
//! one that is vacant to any, nobody does, since it admits everybody: so the latter's bit is a new one to
//! whoever is on its way, and the former's is not for whoever has seen it.) Whoever is woken enters, or finds a holder, whose release is yet to come; by 4 it
//! does not give up a free lock. Readers kept out by waiting writers alone are woken by a writer's release,
//! or by the last writer that gives up.
//!
//! *Whom a release wakes:* one writer, or all readers, in the kernel's order: by real-time priority,
//! then first come. While one is on its way (3) the next releases wake nobody.
//!
//! *Orderings:* each step that leaves is a Release, and pairs with the Acquire of each that enters;
//! steps of others between the two are read-modify-writes, which continue the release sequence. Steps
//! that neither enter nor leave order nothing: the kernel compares under its own lock.
//!
//! *After the lock is free* only its address is used, in wake-ups. That is why the last reader leaves in
//! two steps if anybody waits: what it has to look at, it looks at in between.
//!
//! *Progress:* newcomers may pass sleepers; a round of polling is `HAND_OVER` long, for the holder's CPU is
//! not known. A task that has waited for [`Preference::STARVES_AFTER`] *starves*: newcomers stay out,
//! and releases hand the lock to starving readers and writers in alternation, until nobody starves.
//! At most 63 starve at a time; further ones wait for their turn to. Starving goes before real-time
//! priority, once for each that starves. (One reader that starves may miss that others have been called,
//! if one more has asked to be since. It is called when that one enters, and so are all who may join.)
//!
//! *Hostile events:* EINTR re-waits. The death of a holder, or of one on its way, leaves the lock as it
//! is, for good (a [robust mutex](crate::mutex::Robust) reports it). Fork: see [`Private`]. A signal handler
//! must not take a lock that the code it interrupts may hold.
//!
//! *Frozen:* size 8, alignment 8, the bits above, zero = unlocked.
//!
//! *Cost, free:* a load and a compare-and-swap to read, one compare-and-swap to write, one
//! read-modify-write to leave, inlined. *Checked by:* `tests/loom_rwlock.rs` (two and three tasks, both
//! preferences, deadlines, starvation, spurious wake-ups; negative twins), `state/tests.rs` (the same
//! without a bound on preemptions, over the word's transitions alone), `tests/rwlock.rs`. The models leave
//! out polling, more than three tasks, and the order in which the kernel wakes.
#![allow(unsafe_code)]

mod state;

use self::state::{
    NOBODY, ONE_READER, READERS, SLEEPING_READERS, SLEEPING_WRITERS, STARVING, STARVING_READERS,
    STARVING_WRITERS, State, WRITER, Waiter,
};
use super::{Preference, WritersFirst};
use crate::atomic::{AtomicU64, Ordering, const_unless_loom, unless_fault};
use crate::backoff::{HAND_OVER, pause};
use crate::mutex::{Patience, Unfinished};
use crate::sharing::{Private, Sharing};
use crate::sys::futex::{self, Wait};
use crate::time::Deadline;
use core::marker::PhantomData;

/// A reader/writer lock without data: what [`RwLock`](super::RwLock) is made of, and what other crates
/// take through [`lock_api`].
///
/// Eight bytes; zero is unlocked; movable while unlocked.
#[repr(C)]
pub struct RawRwLock<S: Sharing = Private, P: Preference = WritersFirst> {
    state: AtomicU64,
    kind: PhantomData<fn() -> (S, P)>,
}

impl<S: Sharing, P: Preference> RawRwLock<S, P> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self { state: AtomicU64::new(0), kind: PhantomData }
        }
    }

    /// Whether somebody is inside, and whether as a writer.
    pub(super) fn holders(&self) -> (bool, bool) {
        // Relaxed: the answer may be stale before it arrives.
        let state = State(self.state.load(Ordering::Relaxed));
        (!state.is_free(), state.has(WRITER))
    }

    #[cfg(loom)]
    pub(super) fn is_unused(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(crate) fn read(&self, patience: Patience) -> Result<(), Unfinished> {
        if self.read_free() {
            Ok(())
        } else {
            self.contend::<false>(patience)
        }
    }

    #[inline]
    pub(crate) fn write(&self, patience: Patience) -> Result<(), Unfinished> {
        if self.write_free() {
            Ok(())
        } else {
            self.contend::<true>(patience)
        }
    }

    #[inline]
    pub(crate) fn try_read(&self) -> bool {
        self.read_free() || self.attempt::<false>(Waiter::NEWCOMER).is_ok()
    }

    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        self.write_free() || self.attempt::<true>(Waiter::NEWCOMER).is_ok()
    }

    #[inline]
    fn read_free(&self) -> bool {
        // Relaxed: only a compare-and-swap enters.
        let state = self.state.load(Ordering::Relaxed);
        // Acquire: pairs with each Release below.
        let acquire = unless_fault!(RwLockReadRelaxed, Ordering::Acquire, Ordering::Relaxed);
        state < READERS
            && self
                .state
                .compare_exchange_weak(state, state + ONE_READER, acquire, Ordering::Relaxed)
                .is_ok()
    }

    #[inline]
    fn write_free(&self) -> bool {
        // Acquire: pairs with each Release below.
        self.state
            .compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// # Safety
    /// The calling task holds the lock as a reader.
    #[inline]
    pub(crate) unsafe fn unlock_read(&self) {
        // Release: pairs with the Acquire of a writer.
        let release = unless_fault!(RwLockUnreadRelaxed, Ordering::Release, Ordering::Relaxed);
        let state = self.state.fetch_sub(ONE_READER, release) - ONE_READER;
        if state != 0 && state & READERS == 0 {
            self.release(State(state), false);
        }
    }

    /// # Safety
    /// The calling task holds the lock as a writer.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self) {
        // Release: pairs with the Acquire of whoever enters.
        if let Err(state) =
            self.state
                .compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed)
        {
            self.release(State(state), true);
        }
    }

    /// Enters as soon as the state admits it; the state that does not.
    fn attempt<const WRITES: bool>(&self, waiter: Waiter) -> Result<(), State> {
        // Relaxed: only a compare-and-swap enters.
        let mut state = State(self.state.load(Ordering::Relaxed));
        while state.admits::<P, WRITES>(waiter) {
            let to = state.entered::<WRITES>(waiter);
            // Acquire: pairs with the Release of those who left.
            let changed = if unless_fault!(RwLockEntrantForgetsReaders, false, true) {
                self.change(state, to, Ordering::Acquire)
            } else {
                self.change_and_call(state, to, Ordering::Acquire)
            };
            match changed {
                Ok(()) => return Ok(()),
                Err(now) => state = now,
            }
        }
        Err(state)
    }

    /// One step; what the word is instead if it was another one.
    fn change(&self, state: State, to: State, order: Ordering) -> Result<(), State> {
        match self
            .state
            .compare_exchange_weak(state.0, to.0, order, Ordering::Relaxed)
        {
            Ok(_) => Ok(()),
            Err(now) => Err(State(now)),
        }
    }

    /// As [`Self::change`]; and calls the readers, if they may join those who are inside after it.
    fn change_and_call(&self, state: State, to: State, order: Ordering) -> Result<(), State> {
        let called = to.with_readers_called::<P>();
        self.change(state, called.unwrap_or(to), order)?;
        if called.is_some() {
            wake::<S>(&raw const self.state, SLEEPING_READERS | STARVING_READERS);
        }
        Ok(())
    }

    /// Looks again and again, for a moment; whether it has entered.
    fn poll<const WRITES: bool>(&self, waiter: Waiter) -> bool {
        let mut polls = 0;
        loop {
            let Err(state) = self.attempt::<WRITES>(waiter) else {
                return true;
            };
            // While others starve it is their turn, and they may need this CPU.
            if polls == HAND_OVER || state.has(STARVING) && !waiter.starves() {
                return false;
            }
            pause(polls);
            polls += 1;
        }
    }

    #[cold]
    fn contend<const WRITES: bool>(&self, patience: Patience) -> Result<(), Unfinished> {
        let mut me = Waiter::NEWCOMER;
        let mut starves_at = None;
        let mut starves = false;
        loop {
            if self.poll::<WRITES>(me) {
                return Ok(());
            }
            loop {
                let Some(state) = self.lie_down::<WRITES>(&mut me, starves) else {
                    return Ok(());
                };
                let end = patience.deadline();
                let until = if me.starves() {
                    end
                } else {
                    let at = *starves_at.get_or_insert_with(starves_after::<P>);
                    match (at, end) {
                        (Some(at), Some(end)) => Some(at.min(end)),
                        (at, end) => at.or(end),
                    }
                };
                let mask = me.group::<WRITES>();
                let (ended, woken) = futex::wait_high(&self.state, state.0, mask, S::FLAG, until);
                if woken {
                    me.called = true;
                    break;
                }
                if ended == Wait::TimedOut && until != end {
                    starves = true;
                    starves_at = None;
                } else if let Err(unfinished) = patience.check(ended) {
                    return self.give_up::<WRITES>(me).then_some(()).ok_or(unfinished);
                }
            }
        }
    }

    /// Counts the waiter in, and asks to be called; `None` if it has entered instead.
    fn lie_down<const WRITES: bool>(&self, me: &mut Waiter, starves: bool) -> Option<State> {
        loop {
            let Err(state) = self.attempt::<WRITES>(*me) else {
                return None;
            };
            let (asked, counted) = state.asked::<WRITES>(*me, starves);
            // Only a look that changes nothing is the last one (invariant 1).
            if asked == state {
                return Some(asked);
            }
            // Relaxed: nothing is entered or left.
            if self.change(state, asked, Ordering::Relaxed).is_ok() {
                me.counted = counted;
                if unless_fault!(RwLockLooksOnce, false, true) {
                    return Some(asked);
                }
            }
        }
    }

    /// Counts the waiter out; true if it has entered instead, since the lock is free.
    fn give_up<const WRITES: bool>(&self, me: Waiter) -> bool {
        let mut state = State(self.state.load(Ordering::Relaxed));
        loop {
            let to = state.left::<WRITES>(me);
            // Acquire: it may enter. (If it was the last writer that waited, the high half says so, and
            // without the call for readers, too.)
            let changed = if unless_fault!(RwLockQuitterForgetsReaders, false, true) {
                self.change(state, to, Ordering::Acquire)
            } else {
                self.change_and_call(state, to, Ordering::Acquire)
            };
            match changed {
                Err(now) => state = now,
                Ok(()) => return state.is_free(),
            }
        }
    }

    /// Releases a lock that somebody waits for, or may.
    #[cold]
    fn release(&self, mut state: State, wrote: bool) {
        let address = &raw const self.state;
        let [first, second] = loop {
            let (to, groups) = state.released::<P>(wrote);
            // Release: pairs with the Acquire of whoever enters.
            match self.change(state, to, Ordering::Release) {
                Ok(()) => break groups,
                Err(now) => state = now,
            }
        };
        let none = unless_fault!(RwLockWakesOneKind, 0, usize::MAX);
        if first != NOBODY && wake::<S>(address, first) == none && second != NOBODY {
            wake::<S>(address, second);
        }
    }

    /// The writer becomes a reader, without a moment in between.
    ///
    /// # Safety
    /// The calling task holds the lock as a writer.
    pub(super) unsafe fn downgrade(&self) {
        let mut state = State(WRITER);
        // Release: pairs with the Acquire of readers.
        while let Err(now) = self.change_and_call(state, state.downgraded(), Ordering::Release) {
            state = now;
        }
    }
}

/// One writer, or all readers.
fn wake<S: Sharing>(state: *const AtomicU64, mask: u32) -> usize {
    let count = if mask & (SLEEPING_WRITERS | STARVING_WRITERS) != 0 {
        1
    } else {
        u32::MAX
    };
    futex::wake_high(state, count, mask, S::FLAG)
}

#[cfg(not(loom))]
fn starves_after<P: Preference>() -> Option<Deadline> {
    Some(Deadline::after(P::STARVES_AFTER))
}
#[cfg(loom)]
fn starves_after<P: Preference>() -> Option<Deadline> {
    crate::model::scene().starving.then_some(crate::model::SOON)
}

impl<S: Sharing, P: Preference> Default for RawRwLock<S, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Sharing, P: Preference> core::fmt::Debug for RawRwLock<S, P> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (locked, by_writer) = self.holders();
        formatter
            .debug_struct("RawRwLock")
            .field("locked", &locked)
            .field("by_writer", &by_writer)
            .finish()
    }
}
