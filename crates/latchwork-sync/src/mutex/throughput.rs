//! The throughput lock: for data that many tasks use all the time, in short critical sections.
//!
//! It is used as any other mutex:
//!
//! ```
//! use latchwork::mutex::{Mutex, Throughput};
//!
//! static HITS: Mutex<u64, Throughput> = Mutex::throughput(0);
//! *HITS.lock() += 1;
//! ```
//!
//! # What it is
//!
//! Not robust (see [`Robust`](super::Robust)), not recursive, no priority inheritance. Source: W. Long,
//! *throughput-optimized (TP) futexes*, patches to Linux of 2017, here in user space.
//!
//! A lock has four words of 4 bytes:
//!
//! | word | what it says |
//! | --- | --- |
//! | `word` | which task owns the lock |
//! | `gate` | which task is the *top waiter*. The gate is a queueing mutex in front of the lock (`gate.rs`) |
//! | `request` | 1: a top waiter wants the lock handed off. The unlock that does so sets it to 0 |
//! | `threshold` | how long a top waiter waits before it sets the request, in microseconds. It never changes |
//!
//! A task that calls `lock` has up to three roles, one after the other:
//!
//! | role | what it does |
//! | --- | --- |
//! | newcomer | polls the word for a short time, and *steals*: it takes a free word ahead of all waiters |
//! | waiter at the gate | sleeps on the gate until the task that leaves the gate wakes it |
//! | top waiter | has entered the gate, or has slept on it. Polls the word while the owner runs, and sleeps on the word while it does not |
//!
//! So an unlock normally finds no sleeper on the word, and makes no system call. It makes one if the top waiter sleeps,
//! as a rule because the owner was not running. (`owner.rs` says how a waiter knows whether the owner runs.)
//!
//! # States
//!
//! TID is the thread ID of a task, and `WAITERS` is the word's highest bit. The word holds nothing else.
//!
//! | `word` | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free, no task sleeps on it | unlock: CAS TID→0, Release; or swap 0, Release, and the unlock wakes all sleepers on the word |
//! | TID | held, no task sleeps on it | lock, by a newcomer or a top waiter: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, a top waiter may sleep on it | a top waiter, which sets the bit before it sleeps; or the task that takes a reserved word |
//! | `WAITERS` | free, *reserved* for top waiters | unlock, if the request is 1: swap, Release; the unlock wakes one sleeper on the word |
//!
//! | `gate` | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | no top waiter | the task that leaves the gate: CAS TID→0 |
//! | TID | that task is the top waiter | the task that enters: CAS 0→TID |
//! | TID + `WAITERS` | the same, and others may sleep on the gate | a task that is about to sleep on the gate; a task that enters after a sleep |
//! | `WAITERS` | a sleeper was woken, and will enter unless a newcomer enters first | the task that leaves the gate: CAS TID + `WAITERS`→`WAITERS` |
//!
//! # Invariants
//! 1. The task whose TID is in the word has the lock. Each task puts its own TID there, by CAS, into a word without a
//!    TID. A hand-off writes no TID.
//! 2. While a task sleeps on the word, the word has `WAITERS`, or an unlock that has removed the bit is about to wake
//!    all sleepers. A task that takes the word keeps the bit.
//! 3. A task sleeps on the gate only while the gate has `WAITERS`. The bit is removed only after a wake call found no
//!    sleeper; all that came in between are woken then.
//! 4. A task that was woken at the gate goes on to the word, even if another task has the gate by that time.
//! 5. The gate gives its owner two rights only: to poll, and to take a reserved word. Two top waiters at a time, or
//!    none, do no harm.
//! 6. A top waiter may be without the gate: a real-time task does not wait for it, and another task may take it away.
//!    Such a waiter takes the gate, if it is free, before it sets the request and sleeps. Otherwise a newcomer would
//!    take the word that is reserved for it.
//!
//! # Lock, step by step
//! 1. CAS 0→TID. If it succeeds, that is all.
//! 2. As a newcomer, the task polls 20 times, and steals a word that is 0. (If the tasks do little but move the lock
//!    from processor to processor, it rests first: `backoff/crowd.rs`.)
//! 3. It polls up to 1,000 times more, if this thread's recent polls of this lock have paid (`backoff/budget.rs`).
//! 4. It enters the gate, or sleeps on the gate until it is woken. From here on it is a top waiter. (A real-time task
//!    does not wait at a gate that is held: it becomes a top waiter without the gate.)
//! 5. As a top waiter, it polls the word 20 times. If its recent polls as a top waiter have paid, it goes on, 500 polls
//!    between two checks whether the owner runs, until the owner does not run, or the threshold or the deadline has
//!    passed.
//! 6. If it has waited for longer than the threshold, it sets the request. It sets `WAITERS`, sleeps on the word, and
//!    goes back to step 5 when it wakes up. After its first sleep an eighth of the threshold is enough: where owners
//!    sleep in their critical sections, a newcomer would always win against a task that was just woken, and would save
//!    little by it.
//! 7. When it has the word, or gives up, it leaves the gate, and wakes one waiter that sleeps there.
//!
//! # Unlock, step by step
//! 1. CAS TID→0. It succeeds unless the word has `WAITERS`, and then that is all: a top waiter that polls sees the 0.
//! 2. If the request is 1, the unlock hands off: it sets the request to 0, swaps `WAITERS` into the word, and wakes one
//!    sleeper on the word.
//! 3. If the request is 0, the unlock swaps 0 into the word and wakes all sleepers on the word. As a rule that is the
//!    one top waiter. It competes with newcomers for the word, and sets `WAITERS` again before it sleeps again.
//!
//! # Hand-off, step by step
//! 1. The top waiter has waited for longer than the threshold: it sets the request, then `WAITERS`, and sleeps.
//! 2. The owner's CAS fails because of `WAITERS`. Its unlock finds the request, sets it to 0, and *reserves* the word:
//!    the word is `WAITERS` without a TID.
//! 3. Newcomers leave a reserved word alone as long as the gate is not 0. Their fast path does so by itself, since the
//!    word is not 0.
//! 4. The unlock wakes one sleeper on the word. That task, or another top waiter that polls, takes the word by CAS
//!    `WAITERS`→TID + `WAITERS`. Its own unlock will see the bit, and wake a task that still sleeps on the word.
//! 5. The new owner leaves the gate, and wakes the next waiter there, which becomes the top waiter.
//!
//! A reservation names no task. So a task that set the request and then gave up, was interrupted or died does not take
//! the lock with it: the next top waiter takes the word, or a newcomer or `try_lock` that finds no top waiter (the gate
//! is 0). A task that gives up tries to take the word once more; a word that is reserved after that waits for the next
//! task that comes.
//!
//! # Who wakes whom
//!
//! | waker | when | wakes | what the woken task does |
//! | --- | --- | --- | --- |
//! | unlock | the word has `WAITERS`, the request is 1 | one sleeper on the word | takes the reserved word |
//! | unlock | the word has `WAITERS`, the request is 0 | all sleepers on the word | polls again, in competition with newcomers |
//! | a top waiter that leaves the gate | the gate has `WAITERS` | one sleeper on the gate | enters the gate, if it is free; goes on to the word in any case (invariant 4) |
//! | a newcomer whose turn is over | the gate has a TID and `WAITERS` | one sleeper on the gate | goes on to the word, as a second top waiter (invariant 5) |
//! | the kernel | a sleep has lasted for one *nap*: 50 ms on the gate, 100 ms on the word | the sleeper | reads the gate or the word, and goes on as after a wake-up |
//!
//! *Turns.* A thread counts the locks that it has stolen since it last slept on a gate. At 2,000 its turn is over, and
//! the count starts again. If a waiter sleeps on the gate then, the thread wakes it, and sleeps there in its place. The
//! woken task runs on the processor that the thread leaves. (The thread used to sleep without waking a waiter. Its
//! processor was then often idle until the kernel's next tick, because the top waiter had been woken to run on another
//! processor.)
//!
//! # No wake-up is lost
//!
//! On the word, by invariant 2: the kernel compares the word again as it enqueues a sleeper. A sleeper that gives up
//! was not the one that was woken; or its last attempt takes the word for which it was woken; or another task has the
//! word, with the bit.
//!
//! At the gate: a task that was woken enters the gate or goes on without it (invariant 4). A task that enters after a
//! sleep enters with `WAITERS`, so that it wakes the next one when it leaves, whether it got the lock or gave up.
//!
//! A wake-up may go to a task that is killed or stopped before it runs. Naps make up for that: no task sleeps for
//! longer than 50 ms on the gate, or 100 ms on the word, without reading it again.
//!
//! # The rest
//!
//! *Orderings:* the Release of an unlock pairs with the Acquire of the CAS that takes the word. The gate and the
//! request order nothing.
//!
//! *After the CAS or swap in `unlock`* the memory may be gone; only its address is passed to the kernel.
//!
//! *Progress:* a top waiter gets the lock after at most the threshold, the rest of the critical section at that moment,
//! and a wake-up. If there are other top waiters (invariant 5), it may have to wait for them first, and for one
//! critical section that a newcomer stole as one of them left the gate (invariant 6). The *n*th waiter at the gate, in
//! the kernel's order, becomes top waiter after *n* times that; or after 50 ms, out of order. If hand-off is switched
//! off, a top waiter's wait has no bound.
//!
//! *Real-time tasks* poll as newcomers. They do not wait at a gate that is held: they sleep on the word in the order of
//! their priorities, and set the request at once. An ordinary top waiter that is awake may take the word before them.
//!
//! *Hostile events:* EINTR ends interruptible waits only. The death of an owner leaves the lock held for ever;
//! [`Throughput::owner_is_gone`] reports it. The death or stop of a top waiter delays the waiters behind it by one nap.
//! In the child of a fork no lock is held: an inherited guard belongs to the parent, and dropping it in the child
//! aborts. Locking again aborts for [`Private`], and waits for ever for [`Shared`](crate::sharing::Shared). Tasks of
//! two PID namespaces may have the same TID. Mutual exclusion does not depend on TIDs being different; but a task may
//! then end the turn at the gate of another with the same TID, and `owner_is_gone` is wrong. A signal handler must not
//! take a lock that the code it interrupts may hold.
//!
//! *Frozen:* word, gate, request, threshold, each 4 bytes; size 16, alignment 4; zero = unlocked.
//!
//! *Cost, free:* two compare-and-swaps, inlined. *Checked by:* `tests/loom_throughput.rs` (two and three tasks,
//! hand-off, deadlines, gates that are taken away, negative twins), `tests/throughput.rs`, `tests/mutex.rs`. The models
//! leave out polls, turns, and the check whether the owner runs.
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
pub(super) use owner::is_outside;

/// Microseconds.
const DEFAULT_THRESHOLD: u32 = 5_000;
/// The value of `threshold` that means the default.
pub(super) const DEFAULT: u32 = 0;
/// The value of `threshold` that means "never".
const NEVER: u32 = u32::MAX;

/// After how many microseconds a top waiter sets the request; `None`: never.
fn micros(threshold: u32) -> Option<u32> {
    match threshold {
        DEFAULT => Some(DEFAULT_THRESHOLD),
        NEVER => None,
        micros => Some(micros),
    }
}

/// The calling task's ID. (If the thread's record cannot be made, each call asks the kernel.)
fn task_id() -> u32 {
    #[cfg(loom)]
    return Me::current_or_none().tid();
    #[cfg(not(loom))]
    Me::get().map_or_else(|_| crate::sys::thread::thread_id(), Me::tid)
}

/// The throughput protocol, as the parameter of a [`Mutex`]: for short critical sections and many tasks.
///
/// Waiters poll while the owner runs, and sleep while it does not. Newcomers may take a free lock ahead of the waiters;
/// a task that has waited for 5 ms as the first in the queue gets the lock handed off, past the newcomers.
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
/// Sixteen bytes; zero is unlocked; movable while unlocked. For processes that map it, within one PID namespace:
/// `Mutex::from_raw(Throughput::<Shared>::new(), value)`. With [`Counters`] it counts what its slow paths do.
///
/// Owner death leaves it locked. Fork: see [`Private`] and [`Shared`](crate::sharing::Shared); dropping an inherited
/// guard in the child aborts it, as does locking a private one again. [The module](self) says how it works.
#[repr(C)]
pub struct Throughput<S: Sharing = Private, C: Counting = Uncounted> {
    word: AtomicU32,
    gate: Gate,
    request: AtomicU32,
    /// After how many microseconds a top waiter sets the request; 0 is the default.
    threshold: u32,
    counts: C,
    sharing: PhantomData<S>,
}

#[cfg(not(loom))]
impl<T> Mutex<T, Throughput> {
    /// An unlocked mutex for short critical sections and many threads of this process.
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

    /// The counters of the lock.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counts
    }
}

impl<S: Sharing, C: Counting> Throughput<S, C> {
    /// Sets after what time the first waiter in the queue gets the lock handed off: 5 ms by default. Exact to the
    /// microsecond; zero is "at once"; `None` is "never", and the wait then has no bound.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn hand_off_after(mut self, threshold: Option<core::time::Duration>) -> Self {
        self.threshold = match threshold {
            None => NEVER,
            Some(threshold) => {
                let micros = threshold.as_micros();
                // 0 means the default, and the largest number means "never".
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
    /// For a supervisor: the call takes some microseconds. If another task got the owner's ID before this call, that
    /// task counts as the owner, as does a task of another PID namespace with the same ID.
    #[cfg(not(loom))]
    #[must_use]
    pub fn owner_is_gone(&self) -> bool {
        let now = crate::sys::clock::since_boot();
        self.owner().is_some_and(|tid| {
            // Read again: the owner may have released the lock and ended in between.
            owner::is_gone(tid, now) && self.owner() == Some(tid)
        })
    }

    /// Takes a free word; returns whether it did.
    #[inline(always)]
    fn take_free(&self) -> bool {
        let tid = Me::current_or_none().tid();
        // A thread without a record has the ID 0; its CAS 0→0 would succeed and take nothing.
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
        let mut me = Me::current_or_none().tid();
        // A thread's first lock call comes here although the lock may be free: it had no ID yet.
        if me == 0 {
            me = task_id();
            if take(&self.word, me, 0) {
                return Ok(Acquisition::FREE);
            }
        }
        self.words().lock(me, patience)
    }

    /// A `try_lock` whose CAS 0→TID failed: the thread has no ID yet, or the word is reserved and no top waiter is
    /// there.
    #[cold]
    #[inline(never)]
    fn try_lock_contended(&self) -> bool {
        // Relaxed: the compare-and-swap checks the value again.
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
        // Relaxed: the request orders nothing; an unlock that misses it leaves it to the next one.
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
            // Without a deadline only success ends it.
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
        let tid = Me::current_or_none().tid();
        // Release: pairs with the Acquire in `take`. A thread without a record, such as the child of a fork, has the ID
        // 0: the compare-and-swap then changes nothing, and the slow path finds out whose lock it is.
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
            // SAFETY: the caller holds the lock, by the contract of `unlock`.
            unsafe { self.unlock_contended() };
        }
    }
}

// SAFETY: it takes the word by the same compare-and-swap as `lock`; see `RawLock` above.
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
    /// Takes the lock, and returns how it was taken.
    #[inline]
    #[track_caller]
    pub fn lock_traced(&self) -> (MutexGuard<'_, T, Throughput<S, C>>, Acquisition) {
        let at_once = |raw: &Throughput<S, C>| raw.take_free().then_some(Acquisition::FREE);
        let wait = |raw: &Throughput<S, C>| {
            // Without a deadline only success ends it.
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
