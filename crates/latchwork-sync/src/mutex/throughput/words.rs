//! The words of a throughput lock, wherever they are: how the lock is taken and released, how long a wait polls, and
//! how a dead task is detected.

use super::gate::Gate;
use super::trace::{Counting, Foreign, Released};
use crate::atomic::{AtomicU32, Ordering, fence, unless_fault};
use crate::backoff::{Budget, SLEEP};
use crate::mutex::{OWNER_DIED, TID_MASK, WAITERS};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Sharing as Flag};
#[cfg(not(loom))]
use crate::sys::running;
use core::marker::PhantomData;

/// The value of `threshold` that means the default.
pub(in crate::mutex) const DEFAULT: u32 = 0;
/// The value of `threshold` that means "never".
pub(super) const NEVER: u32 = u32::MAX;

/// The words of a lock, wherever they are. `ROBUST`: the word is on its owner's robust list. The owner may have died; a
/// task takes the word of a dead owner as if it was free.
pub(in crate::mutex) struct Words<'a, S: Sharing, C: Counting, const ROBUST: bool> {
    pub(in crate::mutex) word: &'a AtomicU32,
    pub(in crate::mutex) gate: Gate<'a>,
    pub(in crate::mutex) request: &'a AtomicU32,
    /// After what time a top waiter sets the request, as `top_waiter::micros` reads it. (A task reads it only when it
    /// is a top waiter: until then the lock's cache line is left to the owner.)
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
) -> Released {
    // After the swap the memory may be gone.
    let address = core::ptr::from_ref(word);
    // Release: pairs with the Acquire in `take`.
    let release = unless_fault!(
        ThroughputUnlockRelaxed,
        Ordering::Release,
        Ordering::Relaxed
    );
    // Acquire: pairs with the Release of the task that has set `WAITERS` after its request.
    let acquire = unless_fault!(
        ThroughputRequestUnordered,
        Ordering::Acquire,
        Ordering::Relaxed
    );
    let mut seen = word.load(acquire);
    // Whether the bit was set, and has been removed.
    let mut sleepers = false;
    loop {
        // A bit that is set again is that of a waiter which polls or is about to sleep. It gets the lock: otherwise it
        // and this unlock could set and remove the bit for ever.
        let is_set_again = sleepers && seen & WAITERS != 0;
        // Relaxed: see `acquire`.
        if is_set_again || request.load(Ordering::Relaxed) != 0 {
            // If this erases a second request, that was made before the reservation which follows, and is served by it.
            request.store(0, Ordering::Relaxed);
            word.swap(WAITERS, release);
            let count = unless_fault!(ThroughputHandOffWakesNobody, 1, 0);
            futex::wake(address, count, S::FLAG);
            return Released::HandedOff;
        }
        if ROBUST {
            futex::clear_and_wake_all(word, S::FLAG);
            // The word of a lock that was taken from a dead owner comes here without sleepers, too.
            return if seen & WAITERS == 0 {
                Released::NoSleeper
            } else {
                Released::Woke
            };
        }
        sleepers |= seen & WAITERS != 0;
        // The bit is removed, and the request read once more, before the word is freed: a request that comes too late
        // for that sets the bit again, and the exchange fails.
        let frees = unless_fault!(ThroughputRequestReadOnce, seen & WAITERS == 0, true);
        let (to, order) = if frees {
            (0, release)
        } else {
            (seen & !WAITERS, acquire)
        };
        match word.compare_exchange(seen, to, order, acquire) {
            Ok(_) if frees => break,
            Ok(_) => seen = to,
            Err(now) => seen = now,
        }
    }
    if sleepers {
        let count = unless_fault!(ThroughputUnlockWakesNobody, u32::MAX, 0);
        futex::wake(address, count, S::FLAG);
        Released::Woke
    } else {
        Released::NoSleeper
    }
}

/// How a lock keeps its threshold: as `top_waiter::micros` reads it.
#[cfg(not(loom))]
pub(in crate::mutex) const fn stored_threshold(threshold: Option<core::time::Duration>) -> u32 {
    match threshold {
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
    }
}

impl<S: Sharing, C: Counting, const ROBUST: bool> Words<'_, S, C, ROBUST> {
    /// Takes the lock if no task has it, and it is not reserved for a top waiter that lives.
    pub(in crate::mutex) fn try_lock(&self, me: u32) -> bool {
        // Relaxed: the compare-and-swap checks the value again.
        let word = self.word.load(Ordering::Relaxed);
        // A newcomer that waits takes a dead top waiter's gate. But all tasks may use `try_lock`. (The caller's own ID
        // in the gate is that of a dead task, too: the caller does not wait.)
        let is_reserved = || {
            is_reserved(word)
                && self
                    .gate
                    .top_waiter()
                    .is_some_and(|tid| tid != me && !is_dead::<S>(tid))
        };
        word & TID_MASK == 0 && !is_reserved() && take(self.word, me, word)
    }

    /// Takes the lock if no task has it, also if it is reserved.
    pub(super) fn take_free(&self, me: u32) -> bool {
        // Relaxed: the compare-and-swap checks the value again.
        let word = self.word.load(Ordering::Relaxed);
        word & TID_MASK == 0 && take(self.word, me, word)
    }

    /// Whether a newcomer may take a word. A reserved word is free if there is no top waiter to take it.
    pub(super) fn is_free_to_newcomers(&self, word: u32) -> bool {
        word & TID_MASK == 0 && (!is_reserved(word) || self.gate.is_free())
    }

    /// How long one wait polls for the lock.
    pub(super) fn polls(&self) -> Polls<'_> {
        match self.counts.foreign() {
            Some(learned) => Polls::OfLock(learned),
            None => Polls::OfWait(Budget::at(core::ptr::from_ref(self.word).addr(), SLEEP)),
        }
    }
}

/// Whether this word is reserved for top waiters, if there is one.
fn is_reserved(word: u32) -> bool {
    let is_reserved = word == WAITERS;
    if is_reserved {
        // Pairs with the Release of the overdue top waiter that has set `WAITERS` after it took the gate: its ID is
        // read there. (The exchange that takes the word would not notice an older value.)
        fence(Ordering::Acquire);
    }
    is_reserved
}

/// Whether a top waiter or an owner is dead. (A private lock in the child of a fork may name a thread that only the
/// parent has.) A process that has ended and was not waited for does not count as dead.
pub(super) fn is_dead<S: Sharing>(task: u32) -> bool {
    match S::FLAG {
        Flag::Private => is_not_in_process(task),
        Flag::Shared => no_such_task(task),
    }
}

/// How many polls one wait makes. A lock that stands in for another library's has learned it itself; else the process
/// has.
pub(super) enum Polls<'a> {
    OfLock(&'a Foreign),
    OfWait(Budget),
}

impl Polls<'_> {
    /// At most `most` polls.
    pub(super) fn most(&self, most: u32) -> u32 {
        match self {
            Self::OfLock(learned) => learned.polls(most),
            Self::OfWait(budget) => budget.most(most),
        }
    }

    pub(super) fn are_spent(&self) -> bool {
        matches!(self, Self::OfWait(budget) if budget.is_spent())
    }

    /// To be called after polls; `success`: they have got the lock.
    pub(super) fn end(&self, success: bool) {
        if let Self::OfLock(learned) = self {
            learned.polled(success);
        }
    }

    /// To be called before polls that may follow a sleep.
    pub(super) fn begin_again(&self) {
        if let Self::OfWait(budget) = self {
            budget.polls_again();
        }
    }

    /// To be called before a sleep.
    pub(super) fn sleeps(&self) {
        if let Self::OfWait(budget) = self {
            budget.sleeps();
        }
    }
}

/// Whether no task has this ID. That is so from soon after the task has ended until the ID is used again. Some 100 ns;
/// cannot fail. (In a model the kernel finds every lock on its dead owner's list.)
#[cfg_attr(loom, expect(unused_variables))]
pub(super) fn no_such_task(tid: u32) -> bool {
    #[cfg(loom)]
    return false;
    #[cfg(not(loom))]
    running::no_such_task(tid)
}

/// For robust locks, after a wait for an owner, whose ID is in `seen`. If no task has that ID, the kernel has not found the
/// lock on that owner's list; this sets the bits that the kernel would have set, and returns true. It would be wrong only if the
/// following happened between the first read here and the swap: the owner released the lock and ended, or another waiter did the
/// same as this one; the kernel gave that ID to a new task, for which it uses up all others first; and that task took the lock.
#[cold]
pub(in crate::mutex) fn mark_if_gone(word: &AtomicU32, seen: u32) -> bool {
    // Relaxed, here and below: the bits carry no data.
    if word.load(Ordering::Relaxed) != seen || !no_such_task(seen & TID_MASK) {
        return false;
    }
    let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
    // If it fails, another task has done it.
    let _ = word.compare_exchange(seen, WAITERS | OWNER_DIED, success, failure);
    true
}

/// Whether this process has no thread of this ID. Some 280 ns. (In a model all tasks are of one process.)
#[cfg_attr(loom, expect(unused_variables))]
pub(in crate::mutex) fn is_not_in_process(tid: u32) -> bool {
    #[cfg(loom)]
    return false;
    #[cfg(not(loom))]
    running::cpu_time(tid).is_none()
}
