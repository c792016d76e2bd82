//! The slow path of a throughput lock: newcomers, the gate, the top waiter. The argument is in [the parent](super).

use super::gate::Gate;
use super::owner::{self, Runs, Watch};
use super::trace::{Acquisition, Counting, Entry, Event};
use crate::atomic::{AtomicU32, Ordering, spin_hint, unless_fault};
use crate::backoff::{Budget, FIRST_POLLS, NEWCOMER, REST, TOP_WAITER, pause, rest_if_crowded};
use crate::mutex::nap::{Nap, sleep};
use crate::mutex::{OWNER_DIED, Patience, TID_MASK, Unfinished, WAITERS};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Sharing as Flag, Wait};
use crate::sys::futex_pi::is_real_time;
#[cfg(not(loom))]
use crate::sys::own_record::with_habits;
use core::marker::PhantomData;

/// Checks of an owner that may or may not run ([`Runs::Unknown`]), before the top waiter sleeps: as many polls as a
/// newcomer's.
const BLIND_LOOKS: u32 = 2;

/// A top waiter that has slept sets the request after this part of the threshold. Measured with critical sections that
/// sleep, 36 tasks on 2 processors, as the share of the average that the slowest task made in a second: 16 % if all
/// critical sections sleep, and 40 % if one in 1,024 does, without it; 89 and 66 % with it. The total work was the same
/// (0.98–1.01).
#[cfg(not(loom))]
const HURRY: u32 = 8;

/// Locks that a thread may steal before it queues up, if there is a queue. Measured on a prototype, as the share of the
/// average that the slowest of 36 tasks made in a second: on 2 quiet processors 57–68 % without it, and 73–85 % with
/// 1,000 or 3,000; on a noisy machine 45–67 % with 1,000 to 3,000.
#[cfg(not(loom))]
const TURN: u32 = 2000;

/// Counts a steal.
fn has_stolen() {
    #[cfg(not(loom))]
    with_habits(|mine| mine.steals.set(mine.steals.get().saturating_add(1)));
}

/// Whether the thread's turn is over. If so, the next turn begins. (A model has no turns.)
fn turn_ends() -> bool {
    #[cfg(loom)]
    return false;
    #[cfg(not(loom))]
    with_habits(|mine| {
        let ends = mine.steals.get() >= TURN;
        if ends {
            mine.steals.set(0);
        }
        ends
    })
}

fn begin_turn() {
    #[cfg(not(loom))]
    with_habits(|mine| mine.steals.set(0));
}

/// The words of a lock, wherever they are. `ROBUST`: the word is on its owner's robust list. The owner may have died; a
/// task takes the word of a dead owner as if it was free.
pub(in crate::mutex) struct Words<'a, S: Sharing, C: Counting, const ROBUST: bool> {
    pub(in crate::mutex) word: &'a AtomicU32,
    pub(in crate::mutex) gate: &'a Gate,
    pub(in crate::mutex) request: &'a AtomicU32,
    /// After what time a top waiter sets the request, as [`super::micros`] reads it. (A task reads it only when it is a
    /// top waiter: until then the lock's cache line is left to the owner.)
    pub(in crate::mutex) threshold: &'a u32,
    pub(in crate::mutex) counts: &'a C,
    pub(in crate::mutex) sharing: PhantomData<S>,
}

/// Takes a word without a TID, and keeps its other bits: that others may sleep, that its owner died.
#[inline(always)]
pub(in crate::mutex) fn take(word: &AtomicU32, me: u32, seen: u32) -> bool {
    let kept = unless_fault!(ThroughputTakerForgetsSleepers, seen, seen & !WAITERS);
    // Acquire: pairs with the Release of the unlock.
    let acquire = unless_fault!(ThroughputLockRelaxed, Ordering::Acquire, Ordering::Relaxed);
    word.compare_exchange(seen, me | kept, acquire, Ordering::Relaxed)
        .is_ok()
}

/// Releases a word that has `WAITERS`, or may have: hands it off if a top waiter has requested that, else wakes all.
/// (`ROBUST`: a kill must not come between the store and the wake-up of all.)
#[inline]
pub(in crate::mutex) fn release_contended<S: Sharing, const ROBUST: bool>(
    word: &AtomicU32,
    request: &AtomicU32,
) {
    // After the swap the memory may be gone.
    let address = core::ptr::from_ref(word);
    // Release: pairs with the Acquire in `take`.
    let release = unless_fault!(
        ThroughputUnlockRelaxed,
        Ordering::Release,
        Ordering::Relaxed
    );
    // Acquire: pairs with the Release of the task that has set `WAITERS` after its request.
    word.load(unless_fault!(
        ThroughputRequestUnordered,
        Ordering::Acquire,
        Ordering::Relaxed
    ));
    if request.load(Ordering::Relaxed) != 0 {
        // A request that comes between the two, and is lost, is served all the same: the word is reserved after it.
        request.store(0, Ordering::Relaxed);
        word.swap(WAITERS, release);
        let count = unless_fault!(ThroughputHandOffWakesNobody, 1, 0);
        futex::wake(address, count, S::FLAG);
    } else if ROBUST {
        futex::clear_and_wake_all(word, S::FLAG);
    } else if word.swap(0, release) & WAITERS != 0 {
        let count = unless_fault!(ThroughputUnlockWakesNobody, u32::MAX, 0);
        futex::wake(address, count, S::FLAG);
    }
}

/// How many polls one wait makes. A lock that stands in for another library's has learned it itself; else the thread
/// has.
enum Polls {
    OfLock(u32),
    OfThread(Budget),
}

impl Polls {
    fn most(&self) -> u32 {
        match self {
            Self::OfLock(most) => *most,
            Self::OfThread(budget) => budget.most(),
        }
    }

    fn are_spent(&self) -> bool {
        matches!(self, Self::OfThread(budget) if budget.is_spent())
    }

    fn made<C: Counting>(&self, polls: u32, success: bool, counts: &C) {
        match self {
            Self::OfLock(_) => counts.polled(success),
            Self::OfThread(budget) => budget.made(polls, success),
        }
    }
}

impl<S: Sharing, C: Counting, const ROBUST: bool> Words<'_, S, C, ROBUST> {
    /// Takes the lock for the task `me`.
    #[inline]
    pub(in crate::mutex) fn lock(
        &self,
        me: u32,
        patience: Patience,
    ) -> Result<Acquisition, Unfinished> {
        let mut sleeps = 0_u32;
        let gives_way = !C::FOREIGN && turn_ends() && self.gate.wake_another::<S>();
        let entered = if !gives_way && self.steal_at_once(me) {
            Ok(Entry::Stolen)
        } else {
            self.enter(me, gives_way, patience, &mut sleeps)
        };
        let event = match entered {
            Ok(Entry::Free) => None,
            Ok(Entry::Stolen) => Some(Event::Stolen),
            Ok(Entry::TopWaiter) => Some(Event::TopWaiter),
            Ok(Entry::HandedOff) => Some(Event::HandedOff),
            Err(_) => Some(Event::GivenUp),
        };
        if let Some(event) = event {
            self.counts.count(Event::LockSlowPath);
            self.counts.count(event);
        }
        entered.map(|entry| Acquisition { entry, sleeps })
    }

    #[cold]
    #[inline(never)]
    fn enter(
        &self,
        me: u32,
        gives_way: bool,
        patience: Patience,
        sleeps: &mut u32,
    ) -> Result<Entry, Unfinished> {
        if !gives_way && self.steal(me) {
            return Ok(Entry::Stolen);
        }
        if !ROBUST && !C::FOREIGN {
            self.refuse_recursion(me, patience);
        }
        // Real-time tasks bypass the gate and sleep on the word: the kernel wakes them in the order of their
        // priorities.
        if !self.gate.is_free() && is_real_time() {
            let entered = self.wait_on_top(me, true, patience, sleeps);
            self.gate.leave::<S>(me);
            return entered;
        }
        // In the child of a fork, a gate may name a thread that only the parent has.
        let is_dead = |top_waiter| {
            top_waiter != 0
                && (ROBUST && owner::is_nobody(top_waiter)
                    || C::FOREIGN && owner::is_outside(top_waiter))
        };
        self.gate.enter::<S>(me, gives_way, patience, is_dead, || {
            if !C::FOREIGN {
                begin_turn();
            }
            self.counts.count(Event::QueueSleep);
            *sleeps = sleeps.saturating_add(1);
        })?;
        let entered = self.wait_on_top(me, false, patience, sleeps);
        if unless_fault!(ThroughputKeepsGate, true, false) {
            self.gate.leave::<S>(me);
        }
        entered
    }

    /// A newcomer's first polls. Any other work here would be time in which no task has the lock.
    #[inline]
    fn steal_at_once(&self, me: u32) -> bool {
        rest_if_crowded(REST, || self.is_for_all(self.word.load(Ordering::Relaxed)));
        for _ in 0..FIRST_POLLS {
            if self.takes(me) {
                return true;
            }
            spin_hint();
        }
        false
    }

    /// Takes the lock, if it is free, ahead of all waiters. Leaves a reserved word alone while there may be a top
    /// waiter.
    #[inline]
    fn takes(&self, me: u32) -> bool {
        // Relaxed: only a compare-and-swap takes the lock.
        let word = self.word.load(Ordering::Relaxed);
        let taken = self.is_for_all(word) && take(self.word, me, word);
        if taken && !C::FOREIGN {
            has_stolen();
        }
        taken
    }

    /// Polls for a short time.
    fn steal(&self, me: u32) -> bool {
        let polls = self.polls(core::ptr::from_ref(self.word).addr(), NEWCOMER);
        let most = polls.most();
        for made in 0..=most {
            if self.takes(me) {
                polls.made(made, true, self.counts);
                return true;
            }
            if made < most {
                pause(made);
            }
        }
        polls.made(most, false, self.counts);
        false
    }

    /// How long to poll for the lock, at most `most` polls. `part` is an address that stands for the newcomers or for
    /// the top waiter: the two learn separately, since their waits differ.
    fn polls(&self, part: usize, most: u32) -> Polls {
        if C::FOREIGN {
            Polls::OfLock(self.counts.polls(most))
        } else {
            Polls::OfThread(Budget::at(part, most))
        }
    }

    /// Takes the lock if no task has it, and it is not reserved for a top waiter that lives.
    pub(in crate::mutex) fn try_lock(&self, me: u32) -> bool {
        // Relaxed: the compare-and-swap checks the value again.
        let word = self.word.load(Ordering::Relaxed);
        // Newcomers that wait take a dead top waiter's gate. If there is none, nobody else would find out.
        let is_reserved =
            || word == WAITERS && self.gate.top_waiter().is_some_and(|tid| !is_dead::<S>(tid));
        word & TID_MASK == 0 && !is_reserved() && take(self.word, me, word)
    }

    /// Whether a newcomer may take a word. A reserved word is free if there is no top waiter to take it.
    pub(super) fn is_for_all(&self, word: u32) -> bool {
        word & TID_MASK == 0 && (word != WAITERS || self.gate.is_free())
    }

    /// Waits as a top waiter. An `urgent` one sets the request at once.
    fn wait_on_top(
        &self,
        me: u32,
        urgent: bool,
        patience: Patience,
        sleeps: &mut u32,
    ) -> Result<Entry, Unfinished> {
        let threshold = super::micros(*self.threshold);
        // A lock that is never handed off is not handed off to a real-time task, either.
        let mut clock = Clock::start(if urgent {
            threshold.map(|_| 0)
        } else {
            threshold
        });
        let mut nap = None;
        loop {
            if let Some(entry) = self.poll_while_owner_runs(me, &clock, patience) {
                return Ok(entry);
            }
            // This task may have bypassed the gate, or lost it (invariant 6). With the gate at 0, newcomers would take
            // the reserved word.
            if clock.has_waited_long() {
                self.gate.take_over(me);
                self.request_hand_off();
            } else {
                self.gate.stand(me);
            }
            let word = self.word.load(Ordering::Relaxed);
            if word & TID_MASK == 0 {
                continue;
            }
            // Relaxed: the bit carries no data, and no request precedes it.
            if word & WAITERS == 0
                && self
                    .word
                    .compare_exchange(word, word | WAITERS, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            self.counts.count(Event::TopSleep);
            *sleeps = sleeps.saturating_add(1);
            let seen = word | WAITERS;
            let end = *nap.get_or_insert_with(|| clock.end_of_nap());
            match sleep(self.word, seen, S::FLAG, patience, end) {
                Ok(Wait::Interrupted) => {}
                Ok(ended) => {
                    nap = None;
                    clock.hurry();
                    if ROBUST && ended == Wait::TimedOut {
                        self.bury(seen);
                    }
                }
                Err(unfinished) => {
                    if ROBUST {
                        self.bury(seen);
                    }
                    // A hand-off may have come with the end of the wait: the lock is then taken.
                    return self.look(me).ok_or(unfinished);
                }
            }
        }
    }

    /// Sets the request, and `WAITERS`, so that the next unlock hands off.
    fn request_hand_off(&self) {
        #[cfg(loom)]
        crate::model::count_request();
        // Relaxed: the bit that follows publishes it.
        self.request.store(1, Ordering::Relaxed);
        // Whatever the owner, and even if the word is free: a compare-and-swap could fail again and again while others
        // pass the lock on. A free word becomes reserved by this. Release: an unlock that reads the bit sees the request.
        let release = unless_fault!(
            ThroughputRequestUnordered,
            Ordering::Release,
            Ordering::Relaxed
        );
        unless_fault!(
            ThroughputRequestByCas,
            {
                self.word.fetch_or(WAITERS, release);
            },
            {}
        );
    }

    /// Polls as long as the owner runs and polling pays, until it is time to set the request at the latest.
    fn poll_while_owner_runs(&self, me: u32, clock: &Clock, patience: Patience) -> Option<Entry> {
        for _ in 0..FIRST_POLLS {
            if let Some(entry) = self.look(me) {
                return Some(entry);
            }
            spin_hint();
        }
        let mut watch = Watch::default();
        let mut blind = 0;
        let is_tired = self.counts.is_tired();
        let polls = self.polls(core::ptr::from_ref(self.gate).addr(), TOP_WAITER);
        let most = polls.most();
        let mut made = 0;
        loop {
            for looks in 0..=most {
                if let Some(entry) = self.look(me) {
                    polls.made(made + looks, true, self.counts);
                    return Some(entry);
                }
                if looks < most {
                    pause(looks);
                }
            }
            made += most;
            let owner = self.word.load(Ordering::Relaxed) & TID_MASK;
            let goes_on = !is_tired
                && !polls.are_spent()
                && match watch.look(owner) {
                    Runs::No => false,
                    Runs::Unknown => {
                        blind += 1;
                        blind < BLIND_LOOKS
                    }
                    Runs::Yes => true,
                };
            // If the deadline has passed, the sleep that follows reports it.
            if !goes_on || clock.has_polled_enough() || is_over(patience) {
                if let Polls::OfThread(budget) = polls {
                    budget.made(made, false);
                }
                return None;
            }
        }
    }

    /// Takes the word if it is free, or reserved for top waiters.
    fn look(&self, me: u32) -> Option<Entry> {
        let word = self.word.load(Ordering::Relaxed);
        (word & TID_MASK == 0 && take(self.word, me, word)).then_some(if word & WAITERS == 0 {
            Entry::TopWaiter
        } else {
            Entry::HandedOff
        })
    }

    /// To be called after a nap on the word `seen`. If no task has the owner's ID, the kernel has not found the lock on
    /// that owner's list; this sets the bits that the kernel would have set. (It would be wrong only if three things
    /// happened between the check and the swap: another waiter did the same, the kernel gave that ID to a new task,
    /// having used up all others, and that task took the lock.)
    #[cold]
    fn bury(&self, seen: u32) {
        if owner::is_nobody(seen & TID_MASK) {
            // Relaxed: the bits carry no data. If it fails, another task has done it.
            let _ = self.word.compare_exchange(
                seen,
                WAITERS | OWNER_DIED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Aborts if the task holds the lock: it would wait for itself for ever. Private locks only: IDs are unique within
    /// a process, but a task of another PID namespace may have the same one.
    fn refuse_recursion(&self, me: u32, patience: Patience) {
        let is_mine = self.word.load(Ordering::Relaxed) & TID_MASK == me;
        if is_mine && patience.deadline().is_none() && S::FLAG == Flag::Private {
            crate::fatal(format_args!(
                "a throughput mutex was locked again by task {me}, which holds it"
            ));
        }
    }
}

/// Whether a top waiter of a lock that is not robust is dead. (A private lock in the child of a fork may name a thread
/// that only the parent has.)
fn is_dead<S: Sharing>(top_waiter: u32) -> bool {
    match S::FLAG {
        Flag::Private => owner::is_outside(top_waiter),
        Flag::Shared => owner::is_nobody(top_waiter),
    }
}

#[cfg(not(loom))]
fn is_over(patience: Patience) -> bool {
    patience
        .deadline()
        .is_some_and(crate::time::Deadline::has_passed)
}

#[cfg(loom)]
fn is_over(_: Patience) -> bool {
    true
}

/// When a top waiter stops polling, and when it sets the request.
#[cfg(not(loom))]
struct Clock {
    /// `None`: never.
    asks: Option<crate::time::Deadline>,
    /// The same, for a top waiter that has slept.
    asks_sooner: Option<crate::time::Deadline>,
    stops_polling: crate::time::Deadline,
}

#[cfg(not(loom))]
impl Clock {
    /// `threshold`, in microseconds.
    fn start(threshold: Option<u32>) -> Self {
        let now = crate::time::Deadline::now();
        let after =
            |micros: u32| now.saturating_add(core::time::Duration::from_micros(micros.into()));
        let polls = threshold.unwrap_or(super::DEFAULT_THRESHOLD);
        Self {
            asks: threshold.map(after),
            asks_sooner: threshold.map(|threshold| after(threshold / HURRY)),
            stops_polling: after(polls),
        }
    }

    /// To be called after a sleep. Where owners sleep in their critical sections, a newcomer would always win against a
    /// task that was just woken, and would save little by it.
    fn hurry(&mut self) {
        self.asks = self.asks_sooner;
    }

    fn has_waited_long(&self) -> bool {
        self.asks.is_some_and(crate::time::Deadline::has_passed)
    }

    /// When a sleep that begins now ends by itself: in time for the request.
    fn end_of_nap(&self) -> crate::time::Deadline {
        let end = Nap::OnTop.end();
        match self.asks {
            Some(asks) if !asks.has_passed() => asks.min(end),
            _ => end,
        }
    }

    fn has_polled_enough(&self) -> bool {
        self.stops_polling.has_passed()
    }
}

/// In a model all top waiters set the request at once, or none does.
#[cfg(loom)]
struct Clock {
    urgent: bool,
}

#[cfg(loom)]
impl Clock {
    fn start(threshold: Option<u32>) -> Self {
        Self {
            urgent: threshold == Some(0) || crate::model::scene().hands_off,
        }
    }

    fn hurry(&mut self) {}

    fn end_of_nap(&self) -> Nap {
        Nap::OnTop.end()
    }

    fn has_waited_long(&self) -> bool {
        self.urgent
    }

    fn has_polled_enough(&self) -> bool {
        true
    }
}
