//! The top waiter of a region's throughput lock: it polls while the owner runs, sleeps, requests the hand-off, and takes
//! over from an owner that is gone. The argument is in the [parent](super).

use super::super::forms::RawError;
use super::super::lock::{WAITERS, is_held, owner_of};
use super::super::patience::{Patience, Sleep};
use super::super::wait::Watch;
use super::{Lock, REQUEST};
use crate::atomic::{Ordering, spin_hint, unless_fault};
use crate::backoff::{Budget, FIRST_POLLS, TOP_WAITER, pause};
use crate::mutex::throughput::Timing;
use crate::mutex::wait_mode::check_end;
use crate::mutex::{Acquired, OwnerMonitor, WaitMode, is_over};
use crate::sys::futex::Wait;

/// After how many microseconds a top waiter sets the request: as a throughput lock by default.
const THRESHOLD: u32 = 5_000;

/// Checks of an owner of which it is unknown whether it runs, before the top waiter sleeps: as many polls as a
/// newcomer's.
const CHECKS_IF_UNKNOWN: u32 = 2;

impl Lock<'_> {
    /// Waits as a top waiter, with the gate or without it. With `at_once` it is overdue from the beginning.
    pub(super) fn wait_as_top_waiter(
        &self,
        at_once: bool,
        wait_mode: WaitMode,
        budget: &Budget,
    ) -> Result<Acquired, RawError> {
        let mut timing = Timing::start(Some(if at_once { 0 } else { THRESHOLD }));
        let mut sleep = Sleep::Nap;
        let mut patience = Patience::default();
        loop {
            if let Some(ended) = self.poll_while_owner_runs(&timing, wait_mode, budget) {
                return ended;
            }
            // This task may have bypassed the gate, or lost it (invariant 5).
            let is_overdue = timing.is_overdue();
            if is_overdue {
                self.gate.take_over(self.me.identity());
                self.request_hand_off();
            } else {
                self.gate.enter_if_free(self.me.identity());
            }
            // The watch begins before the check of the owner.
            let watch = Watch::begin(self.word, wait_mode, sleep);
            // Relaxed: the compare-and-swaps below check the value again.
            let word = self.word.load(Ordering::Relaxed);
            if !is_held(word) {
                continue;
            }
            if owner_of(word) == self.me.identity() {
                return Err(RawError::Deadlock);
            }
            if self.is_gone(word) {
                if let Some(taken) = self.take_from_dead(word) {
                    return Ok(taken);
                }
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
            let until = timing.end_of_watch(is_overdue, wait_mode.deadline());
            budget.sleeps();
            let (ended, slept) = watch.sleep_woken(word | WAITERS, until);
            // A sleep that ends with the threshold is no nap of full length.
            if is_overdue && ended == Wait::TimedOut {
                sleep = Sleep::Watch;
            }
            if slept || ended == Wait::TimedOut {
                timing.has_slept();
            }
            // Relaxed: as above.
            let is_same = owner_of(self.word.load(Ordering::Relaxed)) == owner_of(word);
            let lock = core::ptr::from_ref(self.word).addr();
            if is_same
                && patience.is_over(sleep, ended, wait_mode)
                && self.me.has_vanished(owner_of(word), lock)
            {
                // The next round finds the mark.
                continue;
            }
            check_end(ended, wait_mode)?;
        }
    }

    /// Sets the request, so that the next unlock hands off.
    fn request_hand_off(&self) {
        // By one instruction, whoever the owner is: a compare-and-swap could fail again and again while other tasks
        // pass the lock on. This reserves a free word. Release: a newcomer that reads the bit sees the gate.
        unless_fault!(
            RegionRequestIsLost,
            {
                self.word.fetch_or(WAITERS | REQUEST, Ordering::Release);
            },
            {}
        );
        // No other task runs between the request and this.
        #[cfg(loom)]
        latchwork_sys::model::count_request();
    }

    /// Polls as long as the owner runs and polling pays, until it is time to set the request at the latest.
    fn poll_while_owner_runs(
        &self,
        timing: &Timing,
        wait_mode: WaitMode,
        budget: &Budget,
    ) -> Option<Result<Acquired, RawError>> {
        budget.polls_again();
        for _ in 0..FIRST_POLLS {
            if let Some(ended) = self.take_free_as_top_waiter() {
                return Some(ended);
            }
            spin_hint();
        }
        let mut monitor = OwnerMonitor::default();
        let mut unknown = 0;
        let most = budget.most(TOP_WAITER);
        loop {
            let mut round = 0;
            loop {
                if let Some(ended) = self.take_free_as_top_waiter() {
                    return Some(ended);
                }
                if round >= most {
                    break;
                }
                round += pause(round);
            }
            let goes_on = !budget.is_spent()
                && self.owner_has_run(&mut monitor).unwrap_or_else(|| {
                    unknown += 1;
                    unknown < CHECKS_IF_UNKNOWN
                });
            // If the deadline has passed, the sleep that follows reports it.
            if !goes_on || timing.has_polled_enough() || is_over(wait_mode.deadline()) {
                return None;
            }
        }
    }

    /// Whether the owner has had a processor since the check before; `None`: unknown, as of a task of another process.
    fn owner_has_run(&self, monitor: &mut OwnerMonitor) -> Option<bool> {
        // Relaxed: a guess.
        let word = self.word.load(Ordering::Relaxed);
        monitor.has_run(self.me.thread_of(owner_of(word))?)
    }
}
