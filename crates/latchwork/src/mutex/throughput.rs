//! The throughput lock: most work done with many tasks at it, and nobody left behind.
//!
//! For data that many tasks use all the time, in short sections. It is used as any other mutex:
//!
//! ```
//! use latchwork::mutex::{Mutex, Throughput};
//!
//! static HITS: Mutex<u64, Throughput> = Mutex::throughput(0);
//! *HITS.lock() += 1;
//! ```
//!
//! # How it works
//!
//! Not robust (see [`Robust`](super::Robust)), not recursive, no priority inheritance. Source: W. Long,
//! *throughput-optimized (TP) futexes*, patches to Linux of 2017, here in user space. Newcomers steal; who is
//! not lucky queues up at the *gate*; only the *top waiter*, who has passed the gate, goes on polling, as
//! long as the holder runs. (How that is known stands in `owner.rs`.) So an unlock finds nobody asleep on the word, and makes no system call,
//! but when the holder did not run.
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free, nobody sleeps on it | unlock: CAS TID→0, Release; or swap 0, Release, and all who sleep on it are woken |
//! | TID | held, nobody sleeps on it | lock, newcomers, top waiters: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, a top waiter may sleep | a top waiter sets the bit before it sleeps; or takes what was reserved |
//! | `WAITERS` | free, *reserved* for top waiters | unlock, if asked to hand off: swap, Release; one is woken |
//!
//! | gate | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | no top waiter | leaving it: CAS TID→0 |
//! | TID | that task is the top waiter | entering: CAS 0→TID |
//! | TID + `WAITERS` | and others may sleep for the gate | a sleeper, before it sleeps; who enters after a sleep |
//! | `WAITERS` | a sleeper was woken, and will enter | leaving it |
//!
//! The *request* is 1 while a top waiter wants the lock to be handed off; an unlock that does so sets it
//! to 0. Nothing of all this stands in the word but the TID and `WAITERS`.
//!
//! Invariants
//! 1. Who has its TID in the word has the lock. Tasks put their own there, by CAS, from a word without
//!    a TID; a hand-off puts nobody's there.
//! 2. While a task sleeps on the word, the word has `WAITERS`, or an unlock that has removed it is about
//!    to wake all. Takers keep the bit.
//! 3. A task sleeps for the gate only while the gate has `WAITERS`. That goes only when nobody was found
//!    asleep, and all are woken then.
//! 4. Who was woken at the gate goes on to the word, whoever has the gate by then.
//! 5. Holding the gate entitles to nothing but polling and what is reserved: two top waiters, or none,
//!    do no harm.
//! 6. A top waiter that came past the gate, or whose gate was taken away, takes the gate before it asks and sleeps,
//!    if nobody has it: what is reserved for it would be a newcomer's.
//!
//! *A lock:* CAS 0→TID. If that fails, a newcomer
//! 1. polls 20 times, and steals a word that is 0. (Where tasks only move the lock between processors it rests first, see
//!    `backoff/crowd.rs`.)
//! 2. polls up to 1,000 times more, if polls at this lock have paid lately (`backoff/budget.rs`).
//! 3. takes the gate, or sleeps for it. Now it is a top waiter. (A real-time task passes a gate that is held.)
//! 4. polls 20 times; then, if polls of top waiters have paid lately, 500 times for each check whether the owner runs,
//!    until it does not.
//! 5. sets the request if it has waited for longer than the threshold; sets `WAITERS`; sleeps; goes on at 4. Once it has
//!    slept, an eighth of the threshold is enough: where owners sleep in their sections, a newcomer that steals from a task
//!    that was just woken wins always, and saves little.
//! 6. leaves the gate when it has the word, and so wakes one that sleeps there.
//!
//! *Turns:* a thread that has stolen 2,000 times since it last slept for the gate wakes one of those that sleep there, and
//! sleeps there in its place. The one that was woken goes on at 4, beside the top waiter (5). It runs on the processor that
//! the other leaves. (The thread used to sleep without waking anybody: its processor was then often idle until the kernel's
//! next tick, since the top waiter had been woken to run on another one.)
//!
//! *An unlock:* CAS TID→0. With `WAITERS`: if there is a request, clear it, make the word `WAITERS`, and
//! wake one; else make it 0, and wake all who sleep on it: that is the one top waiter, as a rule.
//!
//! *Hand-off.* Reserving names nobody. So a task that asked and then gave up, was interrupted or died
//! takes no lock with it: whoever is top waiter by then takes it, or a newcomer that finds no top waiter (a
//! `try_lock`, too). Who gives up looks at the word once more; what is reserved after that look waits
//! for the next comer.
//!
//! *No wake-up is lost.* On the word: by 2, and the kernel compares again as it enqueues; a sleeper that
//! leaves was not the one that was woken, or sees what it was woken for in its last look, or another task
//! has the word, with the bit. At the gate: who was woken enters or goes on (4), and each who enters
//! after a sleep enters with `WAITERS`, so that it wakes the next as it leaves, whether it got the lock or
//! gave up. A wake-up that went to a task that then was killed or stopped is made up for by naps: nobody
//! sleeps longer than 50 ms at the gate, or 100 ms on the word, without looking for itself.
//!
//! *Orderings:* the Release of an unlock pairs with the Acquire of the CAS that takes the word. The gate
//! and the request order nothing.
//!
//! *After the CAS or swap in `unlock`* the memory may be gone; only its address is passed to the kernel.
//!
//! *Progress:* a top waiter gets the lock after at most the threshold, the section that is under way then,
//! and a wake-up; with other top waiters (5), after theirs, and a section that was stolen as one of them
//! left the gate (6). A waiter at the gate is *n*th in the kernel's order, and becomes top waiter after *n* times that; or after 50 ms, out of turn. With hand-off
//! switched off there is no bound on the top waiter's wait but luck.
//!
//! *Real-time tasks* poll as newcomers, then pass by a gate that is held, sleep on the word in the order
//! of their priorities, and ask for the lock at once. An ordinary top waiter that is awake may come first.
//!
//! *Hostile events:* EINTR ends interruptible waits only. The death of an owner leaves the lock held for
//! ever; [`Throughput::owner_is_gone`] tells. The death or stop of a top waiter delays those behind it by a
//! nap. In the child of a fork nothing is held: a guard that was inherited is the parent's, and dropping
//! it there aborts. Locking again aborts for [`Private`], waits for ever for
//! [`Shared`](crate::sharing::Shared). TIDs of two PID namespaces may be the same: exclusion does not depend
//! on that, a task of the same TID may end another's turn at the gate, and `owner_is_gone` is wrong. A
//! signal handler must not take a lock that the code it interrupts may hold.
//!
//! *Frozen:* word, gate, request, threshold, each 4 bytes; size 16, alignment 4; zero = unlocked.
//!
//! *Cost, free:* two compare-and-swaps, inlined. *Checked by:* `tests/loom_throughput.rs` (two and three
//! tasks, hand-off, deadlines, gates that are taken away, negative twins), `tests/throughput.rs`,
//! `tests/mutex.rs`. Left out of the models: polls, turns, looks at the owner.
#![allow(unsafe_code)]

mod contended;
mod gate;
mod owner;
mod trace;

#[cfg(not(loom))]
pub use trace::Counters;
#[cfg(all(feature = "foreign", not(loom)))]
pub(super) use trace::Foreign;
pub use trace::{Acquisition, Counting, Entry, Event, Uncounted};

use super::{
    Interruptible, Mutex, MutexGuard, Patience, RawLock, TID_MASK, Unfinished, WAITERS, watched,
};
use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::hook::{Traits, traits_of};
use crate::sharing::{Private, Sharing};
use crate::sys::futex;
use crate::task::Me;
use crate::time::Deadline;
pub(super) use contended::Words;
pub(super) use contended::take;
use core::fmt;
use core::marker::PhantomData;
pub(super) use gate::Gate;
#[cfg(all(feature = "foreign", not(loom)))]
pub(super) use owner::is_outside;

/// Microseconds.
const DEFAULT_THRESHOLD: u32 = 5_000;
/// What stands for the default threshold where the threshold does.
pub(super) const DEFAULT: u32 = 0;
/// What stands for "never" there.
const NEVER: u32 = u32::MAX;

/// When a top waiter asks for the lock, in microseconds; `None`: never.
fn micros(threshold: u32) -> Option<u32> {
    match threshold {
        DEFAULT => Some(DEFAULT_THRESHOLD),
        NEVER => None,
        micros => Some(micros),
    }
}

/// The calling task's ID. (A task that cannot keep it asks each time.)
fn task_id() -> u32 {
    #[cfg(loom)]
    return Me::whoever().tid();
    #[cfg(not(loom))]
    Me::get().map_or_else(|_| crate::sys::thread::thread_id(), Me::tid)
}

/// The throughput protocol, as the parameter of a [`Mutex`]: for short sections and many tasks.
///
/// Waiters poll while the holder runs and sleep while it does not; a task that has waited for 5 ms as the
/// first in the queue gets the lock handed over, past those who steal.
///
/// ```
/// use latchwork::mutex::Mutex;
///
/// static HITS: Mutex<u64, latchwork::mutex::Throughput> = Mutex::throughput(0);
/// *HITS.lock() += 1;
/// let (hits, how) = HITS.lock_traced();
/// assert_eq!((*hits, how.sleeps), (1, 0));
/// ```
///
/// Sixteen bytes; zero is unlocked; movable while unlocked. For processes that map it, within one PID
/// namespace: `Mutex::from_raw(Throughput::<Shared>::new(), value)`. With [`Counters`] it counts its slow
/// paths.
///
/// Owner death leaves it locked. Fork: see [`Private`] and [`Shared`](crate::sharing::Shared); dropping an
/// inherited guard in the child aborts it, as does locking a private one again.
#[repr(C)]
pub struct Throughput<S: Sharing = Private, C: Counting = Uncounted> {
    word: AtomicU32,
    gate: Gate,
    request: AtomicU32,
    /// When a top waiter asks for the lock, in microseconds; 0 is the default.
    threshold: u32,
    counts: C,
    sharing: PhantomData<S>,
}

#[cfg(not(loom))]
impl<T> Mutex<T, Throughput> {
    /// An unlocked mutex for short sections and many threads of this process.
    #[must_use]
    pub const fn throughput(value: T) -> Self {
        Self::from_raw(Throughput::new(), value)
    }
}

impl<S: Sharing> Throughput<S> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self {
                word: AtomicU32::new(0),
                gate: Gate::new(),
                request: AtomicU32::new(0),
                threshold: 0,
                counts: Uncounted,
                sharing: PhantomData,
            }
        }
    }
}

#[cfg(not(loom))]
impl<S: Sharing> Throughput<S, Counters> {
    /// An unlocked lock that counts.
    #[must_use]
    pub const fn counted() -> Self {
        Self {
            word: AtomicU32::new(0),
            gate: Gate::new(),
            request: AtomicU32::new(0),
            threshold: 0,
            counts: Counters::new(),
            sharing: PhantomData,
        }
    }

    /// What it has counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counts
    }
}

impl<S: Sharing, C: Counting> Throughput<S, C> {
    /// Sets when the first in the queue gets the lock handed over: after 5 ms unless said otherwise, to
    /// the microsecond, at once if zero; `None` for never, which promises no end of the wait.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn hand_off_after(mut self, threshold: Option<core::time::Duration>) -> Self {
        self.threshold = match threshold {
            None => NEVER,
            Some(threshold) => {
                let micros = threshold.as_micros();
                // 0 is taken, and so is the largest number.
                if micros == 0 {
                    1
                } else if micros >= NEVER as u128 {
                    NEVER - 1
                } else {
                    micros as u32
                }
            }
        };
        self
    }

    /// The task that holds the lock at this moment, by its thread ID.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        // Relaxed: the answer may be stale before it arrives.
        let tid = self.word.load(Ordering::Relaxed) & TID_MASK;
        (tid != 0).then_some(tid)
    }

    /// Whether the task that holds the lock has ended. The lock then stays locked.
    ///
    /// For a supervisor: it takes some microseconds. An ID that another task got before this call is
    /// taken for the owner's; so is one of another PID namespace.
    #[cfg(not(loom))]
    #[must_use]
    pub fn owner_is_gone(&self) -> bool {
        let now = crate::sys::clock::since_boot();
        self.owner().is_some_and(|tid| {
            // Looked at again: it may have released the lock and ended in between.
            owner::is_gone(tid, now) && self.owner() == Some(tid)
        })
    }

    /// Takes a free word; whether it did.
    #[inline(always)]
    fn take_free(&self) -> bool {
        let tid = Me::whoever().tid();
        // A thread that is not known would take it for nobody.
        tid != 0 && take(&self.word, tid, 0)
    }

    fn words(&self) -> Words<'_, S, C, false> {
        Words {
            word: &self.word,
            gate: &self.gate,
            request: &self.request,
            threshold: &self.threshold,
            counts: &self.counts,
            sharing: PhantomData,
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, patience: Patience) -> Result<Acquisition, Unfinished> {
        let mut me = Me::whoever().tid();
        // The first lock call of a thread.
        if me == 0 {
            me = task_id();
            if take(&self.word, me, 0) {
                return Ok(Acquisition::FREE);
            }
        }
        self.words().lock(me, patience)
    }

    /// A `try_lock` that did not find a 0.
    #[cold]
    #[inline(never)]
    fn try_lock_contended(&self) -> bool {
        // Relaxed: the compare-and-swap looks again.
        let word = self.word.load(Ordering::Relaxed);
        self.words().is_for_all(word) && take(&self.word, task_id(), word)
    }

    /// # Safety
    /// The calling task holds the lock, unless it is the child of a fork.
    #[cold]
    #[inline(never)]
    unsafe fn unlock_contended(&self) {
        let me = task_id();
        if self.owner() != Some(me) {
            crate::fatal(format_args!(
                "unlock of a throughput mutex by task {me}, which does not hold it (a guard inherited across fork is the parent's)"
            ));
        }
        self.counts.count(Event::UnlockSlowPath);
        let address = &raw const self.word;
        // Release: pairs with the Acquire in `take`.
        let release = unless_fault!(
            ThroughputUnlockRelaxed,
            Ordering::Release,
            Ordering::Relaxed
        );
        // Relaxed: see where it is stored.
        if self.request.load(Ordering::Relaxed) != 0 {
            self.request.store(0, Ordering::Relaxed);
            self.word.swap(WAITERS, release);
            futex::wake(
                address,
                unless_fault!(ThroughputHandOffWakesNobody, 1, 0),
                S::FLAG,
            );
        } else {
            self.word.swap(0, release);
            futex::wake(
                address,
                unless_fault!(ThroughputUnlockWakesNobody, u32::MAX, 0),
                S::FLAG,
            );
        }
    }
}

// SAFETY: by invariant 1 one task has the word, which it takes with Acquire and releases with Release.
unsafe impl<S: Sharing, C: Counting> RawLock for Throughput<S, C> {
    const TRAITS: Traits = traits_of::<S>(Traits::empty());

    #[inline]
    fn lock(&self) {
        if !self.take_free() {
            // Nothing ends it but success.
            let _ = self.lock_contended(Patience::ENDLESS);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.take_free() || self.try_lock_contended()
    }

    #[inline]
    fn lock_until(&self, deadline: Deadline) -> bool {
        self.take_free() || self.lock_contended(Patience::until(Some(deadline))).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        let tid = Me::whoever().tid();
        // Release: pairs with the Acquire in `take`. The ID of a thread that is not known, such as the
        // child of a fork, is 0: the swap changes nothing then.
        let release = unless_fault!(
            ThroughputUnlockRelaxed,
            Ordering::Release,
            Ordering::Relaxed
        );
        if self
            .word
            .compare_exchange(tid, 0, release, Ordering::Relaxed)
            .is_err()
        {
            // SAFETY: by the caller's contract.
            unsafe { self.unlock_contended() };
        }
    }
}

// SAFETY: as above.
unsafe impl<S: Sharing, C: Counting> Interruptible for Throughput<S, C> {
    #[inline]
    fn acquire_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<Result<(), Unfinished>, Self::Fault> {
        if self.take_free() {
            return Ok(Ok(()));
        }
        Ok(self
            .lock_contended(Patience::interruptible(deadline))
            .map(drop))
    }
}

impl<T: ?Sized, S: Sharing, C: Counting> Mutex<T, Throughput<S, C>> {
    /// Takes the lock, and tells how it was got.
    #[inline]
    #[track_caller]
    pub fn lock_traced(&self) -> (MutexGuard<'_, T, Throughput<S, C>>, Acquisition) {
        let at_once = |raw: &Throughput<S, C>| raw.take_free().then_some(Acquisition::FREE);
        let wait = |raw: &Throughput<S, C>| {
            // Nothing ends it but success.
            raw.lock_contended(Patience::ENDLESS)
                .unwrap_or(Acquisition::FREE)
        };
        let acquisition = watched::acquire_by(self.raw(), at_once, wait);
        (MutexGuard::new(self), acquisition)
    }

    /// The lock itself: its owner, its counters.
    #[must_use]
    pub fn protocol(&self) -> &Throughput<S, C> {
        self.raw()
    }
}

impl<S: Sharing> Default for Throughput<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Sharing, C: Counting> fmt::Debug for Throughput<S, C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Throughput")
            .field("owner", &self.owner())
            .finish()
    }
}

#[cfg(not(loom))]
super::implement_lock_api!({S: Sharing} Throughput<S>, |lock: &Throughput<S>| lock.owner().is_some(), lock_api::GuardNoSend);
