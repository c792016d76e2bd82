//! The slow path of a throughput lock: newcomers, turns, and the way through the gate. The argument is in
//! [the parent](super).

use super::trace::{Acquisition, Counting, Entry, Event};
use super::words::{Polls, Words, is_not_in_process, mark_if_gone, no_such_task, take};
use crate::atomic::{Ordering, spin_hint, unless_fault};
use crate::backoff::{ALL, FIRST_POLLS, NEWCOMER, REST, pause, rest_if_contended};
use crate::mutex::{TID_MASK, Unfinished, WaitMode};
use crate::sharing::Sharing;
use crate::sys::futex::Sharing as Flag;
use crate::sys::futex_pi::is_real_time;
#[cfg(not(loom))]
use crate::sys::own_record::with_habits;

/// Locks that a thread may steal before it queues up, if there is a queue. Measured on a prototype, as the share of the
/// average that the slowest of 36 tasks made in a second: on 2 quiet processors 57–68 % without it, and 73–85 % with
/// 1,000 or 3,000; on a noisy machine 45–67 % with 1,000 to 3,000.
const STEALS_PER_TURN: u32 = 2000;

/// Changes the thread's count of steals, and returns the old one. (A model has no turns.)
#[cfg_attr(loom, expect(unused_variables))]
pub(in crate::mutex) fn change_steals(change: impl FnOnce(u32) -> u32) -> u32 {
    #[cfg(loom)]
    return 0;
    #[cfg(not(loom))]
    with_habits(|mine| mine.steals.replace(change(mine.steals.get())))
}

/// Whether the thread's turn is over. If so, the count starts again.
pub(in crate::mutex) fn end_turn_if_due() -> bool {
    let steals = change_steals(|count| if count < STEALS_PER_TURN { count } else { 0 });
    steals >= STEALS_PER_TURN
}

impl<S: Sharing, C: Counting, const ROBUST: bool> Words<'_, S, C, ROBUST> {
    /// Takes the lock for the task `me`.
    #[inline]
    pub(in crate::mutex) fn lock(
        &self,
        me: u32,
        wait_mode: WaitMode,
    ) -> Result<Acquisition, Unfinished> {
        let mut sleeps = 0_u32;
        let _collision = rest_if_contended(REST);
        let ends_turn = !C::FOREIGN && end_turn_if_due() && self.gate.wake_another::<S>();
        let entered = if !ends_turn && self.steal_in_first_polls(me) {
            Ok(Entry::Stolen)
        } else {
            self.enter(me, ends_turn, wait_mode, &mut sleeps)
        };
        self.counts.count(Event::LockSlowPath);
        self.counts.count(match entered {
            Ok(Entry::Free | Entry::Stolen) => Event::Stolen,
            Ok(Entry::TopWaiter) => Event::TopWaiter,
            Ok(Entry::HandedOff) => Event::HandedOff,
            Err(_) => Event::GivenUp,
        });
        entered.map(|entry| Acquisition { entry, sleeps })
    }

    #[cold]
    #[inline(never)]
    fn enter(
        &self,
        me: u32,
        ends_turn: bool,
        wait_mode: WaitMode,
        sleeps: &mut u32,
    ) -> Result<Entry, Unfinished> {
        let polls = self.polls();
        if !ends_turn && self.steal_by_polling(me, &polls) {
            return Ok(Entry::Stolen);
        }
        if !ROBUST && !C::FOREIGN {
            self.refuse_recursion(me, wait_mode);
        }
        // Real-time tasks bypass the gate, free or held, and sleep on the word: the kernel wakes them in the order of
        // their priorities.
        let is_real_time = unless_fault!(
            ThroughputRealTimeEntersGate,
            is_real_time(),
            !self.gate.is_free() && is_real_time()
        );
        if is_real_time {
            let entered = self.wait_as_top_waiter(me, true, wait_mode, &polls, sleeps);
            self.gate.leave::<S>(me);
            return entered;
        }
        // The caller's own ID was a dead task's. In the child of a fork, a gate may name a thread that only the parent
        // has.
        let is_dead = |top_waiter| {
            top_waiter != 0
                && (top_waiter == me
                    || ROBUST && no_such_task(top_waiter)
                    || C::FOREIGN && is_not_in_process(top_waiter))
        };
        let before_sleep = || {
            if !C::FOREIGN {
                change_steals(|_| 0);
            }
            self.counts.count(Event::QueueSleep);
            polls.sleeps();
            *sleeps = sleeps.saturating_add(1);
        };
        let at_gate = self
            .gate
            .enter::<S>(me, ends_turn, wait_mode, is_dead, before_sleep);
        if let Err(unfinished) = at_gate {
            // The word may be reserved for a top waiter that is dead, or stopped: if all waits are short, no nap ends. Nor does
            // anyone else ask then whether the owner's thread exists.
            if ROBUST {
                let word = self.word.load(Ordering::Relaxed);
                if word & TID_MASK != 0 {
                    mark_if_gone(self.word, word);
                }
            }
            let taken = self.try_lock(me) || ROBUST && self.take_free(me);
            return taken.then_some(Entry::Stolen).ok_or(unfinished);
        }
        let entered = self.wait_as_top_waiter(me, false, wait_mode, &polls, sleeps);
        if unless_fault!(ThroughputKeepsGate, true, false) {
            self.gate.leave::<S>(me);
        }
        entered
    }

    /// A newcomer's first polls. Any other work here would be time in which no task has the lock.
    #[inline]
    fn steal_in_first_polls(&self, me: u32) -> bool {
        for _ in 0..FIRST_POLLS {
            if self.try_steal(me) {
                return true;
            }
            spin_hint();
        }
        false
    }

    /// Takes the lock, if it is free, ahead of all waiters. Leaves a reserved word alone while there may be a top
    /// waiter.
    #[inline]
    fn try_steal(&self, me: u32) -> bool {
        // Relaxed: only a compare-and-swap takes the lock.
        let word = self.word.load(Ordering::Relaxed);
        let taken = self.is_free_to_newcomers(word) && take(self.word, me, word);
        if taken && !C::FOREIGN {
            change_steals(|count| count.saturating_add(1));
        }
        taken
    }

    /// Polls for a short time.
    fn steal_by_polling(&self, me: u32, polls: &Polls<'_>) -> bool {
        let most = polls.most(NEWCOMER);
        let mut made = 0;
        loop {
            if self.try_steal(me) {
                polls.end(true);
                return true;
            }
            if made >= most {
                // Of polls that ended early nothing is learned.
                if made < ALL {
                    polls.end(false);
                }
                return false;
            }
            made += pause(made);
        }
    }

    /// Aborts if the task holds the lock: it would wait for itself for ever. Private locks only: IDs are unique within
    /// a process, but a task of another PID namespace may have the same one.
    fn refuse_recursion(&self, me: u32, wait_mode: WaitMode) {
        let is_mine = self.word.load(Ordering::Relaxed) & TID_MASK == me;
        if is_mine && wait_mode.deadline().is_none() && S::FLAG == Flag::Private {
            crate::fatal(format_args!(
                "a throughput mutex was locked again by task {me}, which holds it"
            ));
        }
    }
}
