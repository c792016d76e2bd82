//! The top waiter of a throughput lock: it polls while the owner runs, sleeps, and requests the hand-off. The argument is
//! in [the parent](super).

use super::owner::{self, OwnerMonitor};
use super::timing::Timing;
use super::trace::{Counting, Entry, Event, Foreign};
use super::words::{Polls, Words, take};
use crate::atomic::{Ordering, spin_hint, unless_fault};
use crate::backoff::{FIRST_POLLS, TOP_WAITER, pause};
use crate::mutex::wait_mode::{Ended, is_over, sleep};
use crate::mutex::{OWNER_DIED, TID_MASK, Unfinished, WAITERS, WaitMode};
use crate::sharing::Sharing;

impl<S: Sharing, C: Counting, const ROBUST: bool> Words<'_, S, C, ROBUST> {
    /// Waits as a top waiter, with the gate or without it. With `at_once` it is overdue from the beginning.
    pub(super) fn wait_as_top_waiter(
        &self,
        me: u32,
        at_once: bool,
        wait_mode: WaitMode,
        sleeps: &mut u32,
    ) -> Result<Entry, Unfinished> {
        let threshold = super::timing::micros(*self.threshold);
        // A lock that is never handed off is not handed off to a real-time task, either.
        let mut timing = Timing::start(if at_once {
            threshold.map(|_| 0)
        } else {
            threshold
        });
        let mut nap = None;
        loop {
            if let Some(entry) = self.poll_while_owner_runs(me, &timing, wait_mode) {
                return Ok(entry);
            }
            // This task may have bypassed the gate, or lost it (invariant 6). With the gate at 0, newcomers would take
            // the reserved word; with the gate at another task, one task after another would pass it.
            let is_overdue = timing.is_overdue();
            if is_overdue {
                self.gate.take_over(me);
                self.request_hand_off();
            } else {
                self.gate.enter_if_free(me);
            }
            let word = self.word.load(Ordering::Relaxed);
            if word & TID_MASK == 0 {
                continue;
            }
            // Release: as in `request_hand_off`, for a request of an earlier round.
            if word & WAITERS == 0
                && self
                    .word
                    .compare_exchange(word, word | WAITERS, Ordering::Release, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            self.counts.count(Event::TopSleep);
            *sleeps = sleeps.saturating_add(1);
            let seen = word | WAITERS;
            let end = *nap.get_or_insert_with(|| timing.end_of_nap(is_overdue));
            match sleep(self.word, seen, S::FLAG, wait_mode, end) {
                Ok(Ended::Interrupted) => {}
                Ok(Ended::Refused) => nap = None,
                Ok(ended) => {
                    nap = None;
                    timing.has_slept();
                    if ROBUST && ended == Ended::NapOver {
                        self.report_owner_death(seen);
                    }
                }
                Err(unfinished) => {
                    if ROBUST {
                        self.report_owner_death(seen);
                    }
                    // A hand-off may have come with the end of the wait: the lock is then taken.
                    return self.try_take(me).ok_or(unfinished);
                }
            }
        }
    }

    /// Sets the request, and then `WAITERS`, so that the next unlock hands off.
    fn request_hand_off(&self) {
        // Relaxed: the bit that follows publishes it.
        self.request.store(1, Ordering::Relaxed);
        // By one instruction, whoever the owner is: a compare-and-swap could fail again and again while other tasks pass
        // the lock on. This reserves a free word. Release: an unlock that reads the bit sees the request.
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
        // No other task runs between the request and this.
        #[cfg(loom)]
        crate::model::count_request();
    }

    /// Polls as long as the owner runs and polling pays, until it is time to set the request at the latest.
    fn poll_while_owner_runs(
        &self,
        me: u32,
        timing: &Timing,
        wait_mode: WaitMode,
    ) -> Option<Entry> {
        for _ in 0..FIRST_POLLS {
            if let Some(entry) = self.try_take(me) {
                return Some(entry);
            }
            spin_hint();
        }
        let mut monitor = OwnerMonitor::default();
        let learned = self.counts.foreign();
        let sleeps_at_once = learned.is_some_and(Foreign::sleeps_at_once);
        let polls = self.polls(core::ptr::from_ref(self.gate.0).addr(), TOP_WAITER);
        let most = polls.most();
        let mut made = 0;
        loop {
            for round in 0..=most {
                if let Some(entry) = self.try_take(me) {
                    polls.made(made + round, true);
                    return Some(entry);
                }
                if round < most {
                    pause(round);
                }
            }
            made += most;
            let owner = self.word.load(Ordering::Relaxed) & TID_MASK;
            let goes_on = !sleeps_at_once && !polls.are_spent() && monitor.check(owner);
            // If the deadline has passed, the sleep that follows reports it.
            if !goes_on || timing.has_polled_enough() || is_over(wait_mode.deadline()) {
                if let Polls::OfThread(budget) = polls {
                    budget.made(made, false);
                }
                return None;
            }
        }
    }

    /// Takes the word if it is free, or reserved for top waiters.
    fn try_take(&self, me: u32) -> Option<Entry> {
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
    fn report_owner_death(&self, seen: u32) {
        if owner::no_such_task(seen & TID_MASK) {
            // Relaxed: the bits carry no data. If it fails, another task has done it.
            let _ = self.word.compare_exchange(
                seen,
                WAITERS | OWNER_DIED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}
