//! The throughput form of the region lock: stealing, one top waiter, hand-off; and owner death as in every region lock.
//!
//! [`Throughput`] says what the roles of a waiter are (newcomer, waiter at the gate, top waiter), how it polls, what a
//! turn is, and how long waits last; the [parent](super) says what an identity is, and when its task is *gone*. This
//! text says what is different. The lock has two words of 64 bits, and no setting: a top waiter is overdue after 5 ms, and
//! at once if it is a real-time task. Sleepers sleep on the high half of either word.
//!
//! | word: bits | meaning |
//! | --- | --- |
//! | 0–34, 48–63 | as in the parent; `WAITERS` says that a top waiter may sleep on the word |
//! | 35 | `REQUEST`: beside an owner, a top waiter wants the lock handed off; without one, the lock is *reserved* for top waiters |
//!
//! | gate: bits | meaning |
//! | --- | --- |
//! | 0–31, 48–63 | the identity of the top waiter, or 0 |
//! | 40 | `GATE_WAITERS`: a task may sleep on the gate |
//!
//! | word | state | entered by |
//! | --- | --- | --- |
//! | 0 | free, no task sleeps on it | unlock: CAS from the identity, Release; with `WAITERS` in it, the unlock wakes all that sleep on the word |
//! | identity (+ `INCONSISTENT`) | held | lock, by a newcomer or a top waiter: CAS from a free word, Acquire. It keeps `WAITERS` and `INCONSISTENT`, and ends a reservation |
//! | identity + `WAITERS` | held, a top waiter may sleep on it | a top waiter: CAS. Or a task that has taken a reserved word, or that of a task that is gone |
//! | identity + `WAITERS` + `REQUEST` | the same, and the lock is to be handed off | an overdue top waiter: fetch-or, Release |
//! | `WAITERS` + `REQUEST` (+ `INCONSISTENT`) | free, reserved | unlock: CAS from a word with `REQUEST`, which removes the identity; it wakes one that sleeps on the word. Or the fetch-or of an overdue top waiter, in a free word |
//! | `NOT_RECOVERABLE` (+ other flags) | free for ever | unlock without a repair; it wakes all that sleep on the word. Each top waiter that gives up wakes the next one at the gate |
//!
//! The gate has the states of a throughput lock's gate, with an identity for the TID and `GATE_WAITERS` for `WAITERS`.
//!
//! Invariants
//! 1. Those of the parent that speak of the word's identity hold (1 to 4). A hand-off writes no identity: a task to
//!    which the lock is handed off, and which dies before it takes it, has had nothing, and nothing is reported.
//! 2. While a task sleeps on the word, the word has `WAITERS`, or an unlock that has removed the bit is about to wake all
//!    sleepers. A task that takes the word keeps the bit.
//! 3. A task sleeps on the gate only while the gate has `GATE_WAITERS`. The bit is removed only after a wake call found
//!    no sleeper; all that came in between are woken then.
//! 4. The gate gives its owner two rights only: to poll, and to take a reserved word. Two top waiters at a time, or none,
//!    do no harm. A task that was woken at the gate goes on to the word, even if another has the gate by that time.
//! 5. A top waiter takes a free gate before it sleeps, and an overdue one takes any gate, before it sets `REQUEST`. So the
//!    gate is not 0 while a word is reserved for a top waiter, which keeps newcomers away.
//! 6. A sleep on the word ends within 4 ms (in an interruptible wait, within 50 ms), or it also watches the life-words of
//!    the region's other tasks; such a watch begins before the waiter checks that the owner is not gone. A sleep on the
//!    gate ends within 50 ms.
//!
//! *Request and hand-off in one word.* The throughput lock of threads has its request beside the word, and its unlock
//! reads both. Here the fetch-or that sets `REQUEST` and the CAS of the unlock are on one word: an unlock that comes after
//! the request hands off, and one that comes before it has freed the lock.
//!
//! *No lock is lost:* let an owner die. The top waiter, if there is one, checks by 6 whether the owner is gone, within
//! 4 ms or when the death wakes it; a newcomer takes the lock if no hand-off is requested, and otherwise becomes the top
//! waiter, or sleeps on the gate for at most 50 ms. Each of them replaces exactly the word that it read, as the parent says.
//!
//! *A waiter dies.*
//! - *The top waiter,* asleep, woken, polling or about to leave the gate. Its identity stays in the gate. A newcomer asks
//!   before it sleeps on the gate whether the top waiter is gone, and takes the gate if so; a task that sleeps there
//!   takes it within 50 ms. A word that was reserved for the dead task waits for one of them; or for a `try_lock`, or a
//!   waiter that gives up, which take a reserved word in any case. (So the bound of a top waiter's wait does not count
//!   their critical sections.)
//! - *A task that was woken at the gate.* The gate has no identity then. The next newcomer enters it, or the first task
//!   whose sleep on it ends.
//! - *An unlock between its CAS and its wake-up, or a woken top waiter before it takes the word.* Other top waiters, asleep on
//!   the word: by 6, the death or the time ends their sleep, and each sets `WAITERS` again before the next one.
//! - *A task between the CAS by which it leaves the gate and its wake-up:* as a task that was woken there.
//!
//! *A kill between any two lines* of taking, holding and releasing the word: as in the parent.
//!
//! *A mutex that is moved* may take the identity of a dead top waiter along, and in another region that identity may be a
//! living task's. It keeps others from the gate for one sleep, of at most 50 ms.
//!
//! *Does the owner run?* The region knows which thread an identity is, and whether of the same process (`thread_of`); its
//! CPU clock can be read then (`owner_monitor.rs`). Otherwise it is unknown, and the top waiter polls for as long as a
//! newcomer. A wrong answer costs time.
//!
//! *Orderings:* those of the parent. The Release of the fetch-or that sets `REQUEST` pairs with a newcomer's Acquire fence
//! between its reads of a reserved word and of the gate. The gate orders nothing else.
//!
//! *Progress:* a top waiter polls at most 520 times between two checks, and gets in as in the throughput lock: if it is the
//! only one that is overdue, at the next unlock after its request. *Fork, signal handlers, hostile events:* as in the
//! parent. A handler that waits for the lock for which its thread is the top waiter shares the gate, and leaves it.
//! A top waiter that is stopped delays others by one sleep on the gate.
//!
//! *Frozen:* size 16, alignment 8, the bits above, zero = unlocked. *Cost, free:* that of every region lock. *Checked by:*
//! `tests/loom_in_region_throughput.rs` (deaths of owners, waiters and wakers at each of their steps, hand-off,
//! deadlines, naps that end, negative twins), `tests/in_region_throughput.rs`, `tests/mutex.rs`,
//! `tests/kill_in_region.rs` and `tests/kill_in_region_throughput.rs`.
#![allow(unsafe_code)]

mod gate;
mod top_waiter;
#[cfg(not(loom))]
mod traced;

use self::gate::Gate;
use super::forms::{RawError, RegionOps};
use super::lock::{INCONSISTENT, NOT_RECOVERABLE, WAITERS, is_held, owner_of};
use super::membership::Member;
use crate::atomic::{AtomicU64, Ordering, fence, spin_hint, unless_fault};
use crate::backoff::{Budget, FIRST_POLLS, NEWCOMER, REST, SLEEP, pause, rest_if_contended};
use crate::mutex::throughput::{change_steals, end_turn_if_due};
use crate::mutex::{Acquired, Throughput, WaitMode};
use crate::sharing::Shared;
use crate::sys::futex_pi::is_real_time;
use core::cell::Cell;

/// Bit 35: beside an owner, a top waiter wants the lock handed off; without one, the lock is reserved for top waiters.
pub(super) const REQUEST: u64 = 1 << 35;

// SAFETY: `take_word` and `take_from_dead` do what the contract says.
unsafe impl RegionOps for Throughput<Shared> {
    type Gate = Gate;

    #[cfg(not(loom))]
    const GATE: Gate = Gate::new();

    const RESERVED: u64 = WAITERS | REQUEST;

    #[inline]
    fn take(
        word: &AtomicU64,
        gate: &Gate,
        me: Member,
        wait_mode: WaitMode,
    ) -> Result<Acquired, RawError> {
        Lock::new(word, gate, me).take_in(wait_mode)
    }

    #[inline(always)]
    fn hand_on(word: u64, flags: u64, _: u32) -> (u64, u32) {
        if word & REQUEST != 0 && flags & NOT_RECOVERABLE == 0 {
            let wakes = unless_fault!(RegionHandOffWakesNobody, 1, 0);
            let kept = unless_fault!(
                RegionHandOffForgetsSleepers,
                word & (WAITERS | REQUEST),
                REQUEST
            );
            (kept, wakes)
        } else {
            (0, unless_fault!(RegionUnlockForgetsSleepers, u32::MAX, 0))
        }
    }
}

/// A lock as its task uses it that waits for it.
struct Lock<'a> {
    word: &'a AtomicU64,
    gate: &'a Gate,
    me: Member,
    /// The word that it took was reserved, and this task was a top waiter.
    handed_off: Cell<bool>,
}

impl<'a> Lock<'a> {
    fn new(word: &'a AtomicU64, gate: &'a Gate, me: Member) -> Self {
        Self {
            word,
            gate,
            me,
            handed_off: Cell::new(false),
        }
    }

    fn take_in(&self, wait_mode: WaitMode) -> Result<Acquired, RawError> {
        if wait_mode.is_try() {
            self.take_at_once()
        } else {
            self.take(wait_mode)
        }
    }

    fn take(&self, wait_mode: WaitMode) -> Result<Acquired, RawError> {
        let _collision = rest_if_contended(REST);
        let ends_turn = end_turn_if_due() && self.gate.wake_another();
        if !ends_turn && let Some(ended) = self.steal_in_first_polls() {
            return ended;
        }
        self.enter(ends_turn, wait_mode)
    }

    #[cold]
    #[inline(never)]
    fn enter(&self, ends_turn: bool, wait_mode: WaitMode) -> Result<Acquired, RawError> {
        // Relaxed: no other task writes, or removes, the identity of the calling one.
        let word = self.word.load(Ordering::Relaxed);
        if owner_of(word) == self.me.identity() {
            return Err(RawError::Deadlock);
        }
        // A dead owner is not polled for. With a request, the lock is left to the top waiter; if that is dead, too, the gate
        // says so.
        let is_requested = unless_fault!(RegionNewcomerIgnoresRequest, word & REQUEST != 0, false);
        if is_held(word)
            && !is_requested
            && !ends_turn
            && self.is_gone(word)
            && let Some(taken) = self.take_from_dead(word)
        {
            return Ok(taken);
        }
        let budget = Budget::at(core::ptr::from_ref(self.word).addr(), SLEEP);
        if !ends_turn && let Some(ended) = self.steal_by_polling(&budget) {
            return ended;
        }
        let me = self.me.identity();
        // Real-time tasks bypass the gate, free or held, and sleep on the word: the kernel wakes them in the order of
        // their priorities.
        let is_real_time = is_real_time();
        let ended = if is_real_time {
            Ok(())
        } else {
            let is_gone = |top_waiter| self.is_gone_task(top_waiter);
            let before_sleep = || {
                budget.sleeps();
                change_steals(|_| 0);
            };
            self.gate
                .enter(me, ends_turn, wait_mode, is_gone, before_sleep)
                .map_err(RawError::from)
        };
        let ended = ended.and_then(|()| {
            let ended = self.wait_as_top_waiter(is_real_time, wait_mode, &budget);
            unless_fault!(RegionGateIsKept, self.gate.leave(me), ());
            ended
        });
        match ended {
            // The lock may be free, and reserved for a task that is dead; or the owner is. (If all waits are short, they end
            // at the gate, and nobody else asks whether the owner's thread exists.)
            Err(unfinished @ (RawError::TimedOut | RawError::Interrupted)) => {
                // Relaxed: a hint.
                let owner = owner_of(self.word.load(Ordering::Relaxed));
                if owner != 0 && !self.is_gone_task(owner) {
                    let lock = core::ptr::from_ref(self.word).addr();
                    self.me.has_vanished(owner, lock);
                }
                match self.take_at_once() {
                    Err(RawError::WouldBlock) => Err(unfinished),
                    ended => ended,
                }
            }
            ended => ended,
        }
    }

    /// A newcomer's first polls. Any other work here would be time in which no task has the lock.
    #[inline]
    fn steal_in_first_polls(&self) -> Option<Result<Acquired, RawError>> {
        for _ in 0..FIRST_POLLS {
            if let Some(ended) = self.try_steal() {
                return Some(ended);
            }
            spin_hint();
        }
        None
    }

    /// Polls for a short time.
    fn steal_by_polling(&self, budget: &Budget) -> Option<Result<Acquired, RawError>> {
        let most = budget.most(NEWCOMER);
        let mut made = 0;
        loop {
            if let Some(ended) = self.try_steal() {
                return Some(ended);
            }
            if made >= most {
                return None;
            }
            made += pause(made);
        }
    }

    /// Takes the lock, if it is free, ahead of all waiters. Leaves a reserved word alone while there may be a top
    /// waiter.
    #[inline]
    fn try_steal(&self) -> Option<Result<Acquired, RawError>> {
        // Relaxed: only a compare-and-swap acquires the lock.
        let word = self.word.load(Ordering::Relaxed);
        if is_held(word) {
            return None;
        }
        if word & (REQUEST | NOT_RECOVERABLE) == REQUEST {
            // Pairs with the Release of the overdue top waiter that has set the bit after it took the gate.
            fence(Ordering::Acquire);
            if unless_fault!(RegionNewcomerTakesReserved, !self.gate.is_free(), false) {
                return None;
            }
        }
        let ended = self.take_word(word);
        if let Some(Ok(_)) = ended {
            change_steals(|count| count.saturating_add(1));
        }
        ended
    }

    /// Takes the word if it has no owner, also a reserved one.
    #[inline]
    fn take_free(&self) -> Option<Result<Acquired, RawError>> {
        // Relaxed: only a compare-and-swap acquires the lock.
        let word = self.word.load(Ordering::Relaxed);
        (!is_held(word)).then(|| self.take_word(word)).flatten()
    }

    /// Takes the lock if it is free, reserved or not, or its owner is gone.
    #[cold]
    fn take_at_once(&self) -> Result<Acquired, RawError> {
        loop {
            if let Some(ended) = self.take_free() {
                return ended;
            }
            // Relaxed: as above.
            let word = self.word.load(Ordering::Relaxed);
            if !is_held(word) {
                continue;
            }
            if owner_of(word) == self.me.identity() {
                return Err(RawError::Deadlock);
            }
            if !self.is_gone(word) {
                return Err(RawError::WouldBlock);
            }
            if let Some(taken) = self.take_from_dead(word) {
                return Ok(taken);
            }
        }
    }

    /// As [`Self::take_free`], for a top waiter.
    #[inline]
    fn take_free_as_top_waiter(&self) -> Option<Result<Acquired, RawError>> {
        // Relaxed: as above.
        let word = self.word.load(Ordering::Relaxed);
        let ended = (!is_held(word)).then(|| self.take_word(word)).flatten();
        if let Some(Ok(_)) = ended {
            self.handed_off.set(word & REQUEST != 0);
        }
        ended
    }

    /// Takes a word without an owner, and ends a reservation; `None`: it has changed.
    #[inline]
    fn take_word(&self, word: u64) -> Option<Result<Acquired, RawError>> {
        if word & NOT_RECOVERABLE != 0 {
            return Some(Err(RawError::NotRecoverable));
        }
        let kept = unless_fault!(RegionTakerForgetsSleepers, WAITERS, 0) | INCONSISTENT;
        self.replace(word, self.me.identity() | word & kept)
            .then_some(Ok(if word & INCONSISTENT == 0 {
                Acquired::Clean
            } else {
                Acquired::OwnerDied
            }))
    }

    /// Takes a word whose owner is gone; `None`: it has changed.
    fn take_from_dead(&self, word: u64) -> Option<Acquired> {
        let taken = self.me.identity() | WAITERS | INCONSISTENT;
        let reported = unless_fault!(RegionHidesDeath, Acquired::OwnerDied, Acquired::Clean);
        self.replace(word, taken)
            .then_some(crate::atomic::unless_disabled!(
                RegionThroughputReportsDeath,
                reported,
                Acquired::Clean
            ))
    }

    /// Whether the owner is gone that a word names.
    fn is_gone(&self, word: u64) -> bool {
        crate::atomic::unless_disabled!(
            RegionThroughputTakesOver,
            self.is_gone_task(owner_of(word)),
            false
        )
    }

    fn is_gone_task(&self, identity: u64) -> bool {
        // Acquire: pairs with the Release fence of a task's first attachment, so its life is not read as it was before.
        unless_fault!(RegionReadsOldLife, fence(Ordering::Acquire), ());
        self.me.is_gone(identity)
    }

    fn replace(&self, word: u64, taken: u64) -> bool {
        // Acquire: pairs with the Release of the last owner.
        let acquire = Ordering::Acquire;
        self.word
            .compare_exchange(word, taken, acquire, Ordering::Relaxed)
            .is_ok()
    }
}
