//! The top waiter of a throughput lock: it polls while the owner runs, sleeps, and requests the hand-off. The argument
//! is in [the parent](super).
//!
//! *Does the owner run?* The waiter's [`OwnerMonitor`] knows, if owner and waiter are of one process.

use super::dead_owner::report_if_dead;
use super::trace::{Counting, Entry, Event, Foreign};
use super::words::{DEFAULT, NEVER, Polls, Words, mark_if_gone, take};
use crate::atomic::{Ordering, spin_hint, unless_fault};
use crate::backoff::{FIRST_POLLS, TOP_WAITER, pause};
use crate::mutex::wait_mode::{Ended, Nap, is_over, sleep};
use crate::mutex::{OwnerMonitor, TID_MASK, Unfinished, WAITERS, WaitMode};
use crate::sharing::Sharing;
use crate::time::Deadline;
#[cfg(loom)]
use latchwork_sys::model::HandsOff;

/// Microseconds.
const DEFAULT_THRESHOLD: u32 = 5_000;

/// After how many microseconds a top waiter sets the request; `None`: never.
pub(super) fn micros(threshold: u32) -> Option<u32> {
    match threshold {
        DEFAULT => Some(DEFAULT_THRESHOLD),
        NEVER => None,
        micros => Some(micros),
    }
}
impl<S: Sharing, C: Counting, const ROBUST: bool> Words<'_, S, C, ROBUST> {
    /// Waits as a top waiter, with the gate or without it. With `at_once` it is overdue from the beginning.
    pub(super) fn wait_as_top_waiter(
        &self,
        me: u32,
        at_once: bool,
        wait_mode: WaitMode,
        polls: &Polls<'_>,
        sleeps: &mut u32,
    ) -> Result<Entry, Unfinished> {
        let threshold = micros(*self.threshold);
        // A lock that is never handed off is not handed off to a real-time task, either.
        let mut timing = Timing::start(if at_once {
            threshold.map(|_| 0)
        } else {
            threshold
        });
        let mut nap = None;
        loop {
            if let Some(entry) = self.poll_while_owner_runs(me, &timing, wait_mode, polls) {
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
            polls.sleeps();
            *sleeps = sleeps.saturating_add(1);
            let seen = word | WAITERS;
            let end = *nap.get_or_insert_with(|| timing.end_of_nap(is_overdue));
            match sleep(self.word, seen, S::FLAG, wait_mode, end) {
                Ok(Ended::Interrupted) => {}
                Ok(Ended::Refused) => nap = None,
                Ok(ended) => {
                    nap = None;
                    timing.has_slept();
                    if ended == Ended::NapOver {
                        self.look_after_owner(me, seen);
                    }
                }
                Err(unfinished) => {
                    self.look_after_owner(me, seen);
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
        // By one instruction, whoever the owner is: a compare-and-swap could fail again and again while other tasks
        // pass the lock on. This reserves a free word. Release: an unlock that reads the bit sees the request.
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
        polls: &Polls<'_>,
    ) -> Option<Entry> {
        polls.begin_again();
        for _ in 0..FIRST_POLLS {
            if let Some(entry) = self.try_take(me) {
                return Some(entry);
            }
            spin_hint();
        }
        let mut monitor = OwnerMonitor::default();
        let mut unknown = 0;
        let learned = self.counts.foreign();
        let sleeps_at_once = learned.is_some_and(Foreign::sleeps_at_once);
        let most = polls.most(TOP_WAITER);
        loop {
            let mut round = 0;
            loop {
                if let Some(entry) = self.try_take(me) {
                    polls.end(true);
                    return Some(entry);
                }
                if round >= most {
                    break;
                }
                round += pause(round);
            }
            let owner = self.word.load(Ordering::Relaxed) & TID_MASK;
            let goes_on = !sleeps_at_once
                && !polls.are_spent()
                && monitor.has_run(owner).unwrap_or_else(|| {
                    unknown += 1;
                    unknown < CHECKS_IF_UNKNOWN
                });
            // If the deadline has passed, the sleep that follows reports it.
            if !goes_on || timing.has_polled_enough() || is_over(wait_mode.deadline()) {
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

    /// To be called after a nap on the word `seen`: its owner may be dead. A robust lock is then free; of another one
    /// that is reported. (A lock that stands in for another library's may be released by any thread.)
    fn look_after_owner(&self, me: u32, seen: u32) {
        if ROBUST {
            mark_if_gone(self.word, seen);
        } else if !C::FOREIGN {
            report_if_dead::<S>(self.word, me, seen);
        }
    }
}

/// A top waiter that has slept sets the request after this part of the threshold. Measured with critical sections that
/// sleep, 36 tasks on 2 processors, as the share of the average that the slowest task made in a second: 16 % if all
/// critical sections sleep, and 40 % if one in 1,024 does, without it; 89 and 66 % with it. The total work was the same
/// (0.98–1.01).
#[cfg(not(loom))]
const DIVISOR_AFTER_SLEEP: u32 = 8;

/// When a top waiter stops polling, and when it sets the request.
#[cfg(not(loom))]
pub(in crate::mutex) struct Timing {
    /// `None`: never.
    requests_at: Option<Deadline>,
    /// The same, for a top waiter that has slept.
    requests_after_sleep_at: Option<Deadline>,
    stops_polling: Deadline,
}

#[cfg(not(loom))]
impl Timing {
    /// `threshold`, in microseconds.
    pub(in crate::mutex) fn start(threshold: Option<u32>) -> Self {
        let now = Deadline::now();
        let after =
            |micros: u32| now.saturating_add(core::time::Duration::from_micros(micros.into()));
        let polls = threshold.unwrap_or(DEFAULT_THRESHOLD);
        Self {
            requests_at: threshold.map(after),
            requests_after_sleep_at: threshold
                .map(|threshold| after(threshold / DIVISOR_AFTER_SLEEP)),
            stops_polling: after(polls),
        }
    }

    /// To be called after a sleep.
    pub(in crate::mutex) fn has_slept(&mut self) {
        self.requests_at = self.requests_after_sleep_at;
    }

    /// Whether it is time to request the hand-off.
    pub(in crate::mutex) fn is_overdue(&self) -> bool {
        self.requests_at.is_some_and(Deadline::has_passed)
    }

    /// When a nap that begins now ends: if the task is not overdue yet, in time for its request.
    pub(super) fn end_of_nap(&self, is_overdue: bool) -> Deadline {
        let end = Nap::TopWaiter.end();
        match self.requests_at {
            Some(requests_at) if !is_overdue => requests_at.min(end),
            _ => end,
        }
    }

    /// When a sleep ends that begins now, beside what else ends it: at the deadline, and, if the task is not overdue yet,
    /// in time for its request.
    pub(in crate::mutex) fn end_of_watch(
        &self,
        is_overdue: bool,
        deadline: Option<Deadline>,
    ) -> Option<Deadline> {
        let requests_at = self.requests_at.filter(|_| !is_overdue);
        requests_at.into_iter().chain(deadline).min()
    }

    pub(in crate::mutex) fn has_polled_enough(&self) -> bool {
        self.stops_polling.has_passed()
    }
}

/// In a model the scene says when top waiters are overdue.
#[cfg(loom)]
pub(in crate::mutex) struct Timing {
    hands_off: HandsOff,
    is_overdue: bool,
}

#[cfg(loom)]
impl Timing {
    pub(in crate::mutex) fn start(threshold: Option<u32>) -> Self {
        let hands_off = latchwork_sys::model::scene().hands_off;
        let is_overdue = threshold == Some(0) || hands_off == HandsOff::AtOnce;
        Self {
            hands_off,
            is_overdue,
        }
    }

    pub(in crate::mutex) fn has_slept(&mut self) {
        self.is_overdue |= self.hands_off == HandsOff::AfterSleep;
    }

    pub(super) fn end_of_nap(&self, is_overdue: bool) -> Nap {
        if self.hands_off == HandsOff::AfterSleep && !is_overdue {
            Nap::BeforeRequest
        } else {
            Nap::TopWaiter
        }
    }

    pub(in crate::mutex) fn end_of_watch(
        &self,
        is_overdue: bool,
        deadline: Option<Deadline>,
    ) -> Option<Deadline> {
        let ends = self.end_of_nap(is_overdue) == Nap::BeforeRequest
            && latchwork_sys::model::scene().naps_end;
        deadline.or(ends.then_some(latchwork_sys::model::SOON))
    }

    pub(in crate::mutex) fn is_overdue(&self) -> bool {
        self.is_overdue
    }

    pub(in crate::mutex) fn has_polled_enough(&self) -> bool {
        true
    }
}

/// Checks of an owner of which it is unknown whether it runs, before the top waiter sleeps: as many polls as a
/// newcomer's.
const CHECKS_IF_UNKNOWN: u32 = 2;
