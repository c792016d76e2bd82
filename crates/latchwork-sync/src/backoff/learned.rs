//! What a process has learned about a lock: whether its waiters poll or sleep.
//!
//! *What is compared.* The users of a lock work for a share of their time: from the end of one wait to the beginning of
//! the next. The rest is lost to waits: the time of polls, and the [cost](super::SLEEP) of each sleep. (The time asleep is not lost,
//! since other tasks have the processor.) The users poll or sleep, whichever leaves them the larger share of work. There
//! is one exception: where polls succeed and cost no more than [`LOST_TO_POLLS`] of the time, users poll. Two of them
//! together then do more work than one alone.
//!
//! *Why the process learns, and not each thread.* Where owners use a lock nearly all the time, one of them alone does as
//! much work as two that pass the lock to each other. A waiter that polls for it then occupies a second processor for
//! nothing. But a thread that sleeps while others poll loses each race for the lock. So sleeps pay only if all users
//! sleep, and can be tried only by all of them together. (Processes that share a lock learn separately.)
//!
//! | mode | it ends | next mode |
//! | --- | --- | --- |
//! | [`Poll`](Mode::Poll) | after [`WINDOW`] waits, if polls lose too much and a trial is due | `TrySleep` |
//! | [`TrySleep`](Mode::TrySleep) | after [`TRIAL_TIME`] and [`FEW`] waits; earlier if sleeps are worse | `Sleep` if sleeps are better, else `Poll` |
//! | [`Sleep`](Mode::Sleep) | after [`TRIAL`] waits, if a trial is due, or sleeps lose more than polls did | `TryPoll` |
//! | [`TryPoll`](Mode::TryPoll) | after [`TRIAL_TIME`] and [`TRIAL`] waits; earlier if polls are worse | `Sleep` if sleeps are better, else `Poll` |
//!
//! The next trial is due when a multiple of the time has passed that was lost in the last one: first [`APART`] times that
//! time, since a trial may fail by chance, and twice as many after each failure in a row. So in the end trials cost a
//! thousandth of the time.
//!
//! *Races.* All accesses are relaxed. A thread may add its waits to the sums of a window that has just begun, or that
//! another thread clears. The sums are then a little wrong, and a later window corrects the decision. A mode changes by
//! one compare-and-swap.

use super::speed::ticks_in;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Microseconds that count at most, of one time of work or of polls: a thread may be preempted in it, and the clock of the
/// thread itself costs a system call.
pub(super) const MOST: u32 = 80;
/// Waits after which the users of a lock that poll are judged.
const WINDOW: u32 = 128;
/// Waits of a trial, and waits after which users that sleep are judged.
const TRIAL: u32 = 64;
/// Waits of a trial of sleeps that are worse than the polls before. (On two processors, where two tasks pass locks round,
/// a hand-over by a sleep takes 25 µs, and one by polls 0.15.)
const FAILED_TRIAL: u32 = 16;
/// Waits of a trial of sleeps that succeeds, at least: the better sleeps are, the rarer they become.
const FEW: u32 = 8;
/// Microseconds of a trial that succeeds. The scheduler needs one of its time slices until only as many threads are awake
/// as the lock keeps busy, and polls meet no other polls before sleepers have woken up.
const TRIAL_TIME: u32 = 4_000;
/// From one trial to the next passes so many times the time that was lost in the first; twice as many after each further
/// trial that fails, up to [`MOST_DOUBT`] times.
const APART: u64 = 32;
const MOST_DOUBT: u32 = 5;
/// The whole, of which shares are parts.
const WHOLE: u32 = 256;
/// The share of time that may be lost to polls that succeed.
const LOST_TO_POLLS: u32 = WHOLE * 45 / 100;
/// A mode is better if less than this part of the time is lost for the same work, in eighths.
const MARGIN: u32 = 7;

/// Whether less time is lost for the same work where the share of work is `share` than where it is `other`.
fn is_better(share: u32, other: u32) -> bool {
    8 * (WHOLE - share) * other < MARGIN * (WHOLE - other) * share
}

/// How the waiters for a lock wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Poll,
    TrySleep,
    Sleep,
    TryPoll,
}

impl Mode {
    /// Whether it is tried for a short time.
    pub(super) fn is_trial(self) -> bool {
        matches!(self, Self::TrySleep | Self::TryPoll)
    }

    /// Whether waiters poll.
    pub(super) fn polls(self) -> bool {
        matches!(self, Self::Poll | Self::TryPoll)
    }
}

/// The sums of some waits; times in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub waits: u32,
    /// Waits without a sleep.
    pub without_sleep: u32,
    pub worked: u32,
    pub lost: u32,
}

impl Sums {
    /// The share of work. Without a counter of ticks nothing is lost.
    fn share_of_work(self) -> u32 {
        let whole = u64::from(self.worked) + u64::from(self.lost);
        (u64::from(self.worked) * u64::from(WHOLE))
            .checked_div(whole)
            .map_or(WHOLE - 1, |share| (share as u32).min(WHOLE - 1))
    }

    /// Whether waits that poll are as they should be: without a sleep, and not too much is lost.
    fn polls_succeed_cheaply(self) -> bool {
        2 * self.without_sleep >= self.waits && WHOLE - self.share_of_work() <= LOST_TO_POLLS
    }
}

/// A mode, the share of work in the mode before it, how many trials in a row have failed, and a number that changes with
/// the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u32);

impl State {
    const MODE: u32 = 3;
    const SHARE: u32 = 2;
    const DOUBT: u32 = 10;
    const NUMBER: u32 = 1 << 13;

    pub(super) fn mode(self) -> Mode {
        [Mode::Poll, Mode::TrySleep, Mode::Sleep, Mode::TryPoll][(self.0 & Self::MODE) as usize]
    }

    /// The share of work in the mode before.
    fn share_before(self) -> u32 {
        self.0 >> Self::SHARE & (WHOLE - 1)
    }

    /// How many trials in a row have failed, up to [`MOST_DOUBT`].
    fn doubt(self) -> u32 {
        (self.0 % Self::NUMBER) >> Self::DOUBT
    }

    fn next(self, mode: Mode, share: u32) -> Self {
        let doubt = match (self.mode(), mode) {
            (Mode::TrySleep, Mode::Poll) | (Mode::TryPoll, Mode::Sleep) => {
                (self.doubt() + 1).min(MOST_DOUBT)
            }
            (Mode::TrySleep | Mode::TryPoll, _) => 0,
            _ => self.doubt(),
        };
        let number = (self.0 & !(Self::NUMBER - 1)).wrapping_add(Self::NUMBER);
        Self(number | doubt << Self::DOUBT | share << Self::SHARE | mode as u32)
    }

    /// The state after some waits; `None`: the mode goes on. `long`: [`TRIAL_TIME`] has passed since the mode began;
    /// `due`: another mode may be tried.
    fn after(self, sums: Sums, long: bool, due: bool) -> Option<Self> {
        let share = sums.share_of_work();
        let before = self.share_before();
        match self.mode() {
            Mode::Poll => (sums.waits >= WINDOW && due && !sums.polls_succeed_cheaply())
                .then(|| self.next(Mode::TrySleep, share)),
            Mode::TrySleep => {
                let is_better = is_better(share, before);
                let is_worse = share < before;
                let ends = sums.waits >= if is_worse { FAILED_TRIAL } else { TRIAL } && !is_better
                    || long && sums.waits >= FEW;
                let mode = if is_better { Mode::Sleep } else { Mode::Poll };
                ends.then(|| self.next(mode, before))
            }
            Mode::Sleep => (sums.waits >= TRIAL && (due || is_better(before, share)))
                .then(|| self.next(Mode::TryPoll, share)),
            Mode::TryPoll => {
                let is_worse = is_better(before, share) && !sums.polls_succeed_cheaply();
                let mode = if is_worse { Mode::Sleep } else { Mode::Poll };
                (sums.waits >= TRIAL && (is_worse || long)).then(|| self.next(mode, share))
            }
        }
    }

    /// For the end of a trial: after how many times the time that was lost in it the next one is due. Polls that succeeded
    /// in a trial are judged again at once: in the trial some threads still slept.
    fn apart(self, next: Self) -> Option<u64> {
        match (self.mode(), next.mode()) {
            (Mode::Poll | Mode::Sleep, _) => None,
            (Mode::TryPoll, Mode::Poll) => Some(0),
            _ => Some(APART << next.doubt()),
        }
    }
}

/// What the process has learned about the locks of one place.
#[repr(align(64))]
pub(super) struct Learned {
    state: AtomicU32,
    waits: AtomicU32,
    without_sleep: AtomicU32,
    worked: AtomicU32,
    lost: AtomicU32,
    /// The tick at which the mode began.
    began: AtomicU64,
    /// The tick after which the next trial is due.
    due: AtomicU64,
}

/// Places, by which locks are distinguished by their addresses.
const PLACES: usize = 64;

static LEARNED: [Learned; PLACES] = [const { Learned::new() }; PLACES];

impl Learned {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            without_sleep: AtomicU32::new(0),
            worked: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            began: AtomicU64::new(0),
            due: AtomicU64::new(0),
        }
    }

    /// What was learned about the lock at this address.
    pub(super) fn about(address: usize) -> &'static Self {
        &LEARNED[(address >> 2 ^ address >> 8 ^ address >> 14) % PLACES]
    }

    /// The number of the place.
    pub(super) fn group(&self) -> u32 {
        let distance = core::ptr::from_ref(self).addr() - LEARNED.as_ptr().addr();
        (distance / size_of::<Self>()) as u32
    }

    pub(super) fn state(&self) -> State {
        State(self.state.load(Relaxed))
    }

    /// Adds waits in the mode of `state`, and changes the mode if it is time.
    pub(super) fn add(&self, state: State, waits: Sums, now: u64) {
        if self.state() != state {
            return;
        }
        let add = |sum: &AtomicU32, value: u32| sum.fetch_add(value, Relaxed).saturating_add(value);
        let sums = Sums {
            waits: add(&self.waits, waits.waits),
            without_sleep: add(&self.without_sleep, waits.without_sleep),
            worked: add(&self.worked, waits.worked),
            lost: add(&self.lost, waits.lost),
        };
        let passed = now.saturating_sub(self.began.load(Relaxed));
        let long = passed >= ticks_in(TRIAL_TIME);
        let due = now >= self.due.load(Relaxed);
        let next = state.after(sums, long, due);
        let changes = |next: State| {
            let changed = self
                .state
                .compare_exchange(state.0, next.0, Relaxed, Relaxed);
            changed.is_ok()
        };
        if let Some(next) = next
            && changes(next)
        {
            if let Some(apart) = state.apart(next) {
                self.due
                    .store(now.saturating_add(apart * u64::from(sums.lost)), Relaxed);
            }
            self.began.store(now, Relaxed);
            self.clear();
        }
        // The latest waits count more than those before.
        if next.is_none() && sums.waits >= WINDOW {
            self.clear();
        }
    }

    fn clear(&self) {
        for sum in [&self.waits, &self.without_sleep, &self.worked, &self.lost] {
            sum.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of so many waits, of which each follows some work, and loses some time.
    fn sums(waits: u32, without_sleep: u32, worked: u32, lost: u32) -> Sums {
        let [worked, lost] = [worked, lost].map(|time| time * waits);
        Sums {
            waits,
            without_sleep,
            worked,
            lost,
        }
    }

    const POLL: State = State(0);

    /// A state in which sleeps are tried, after polls that lost three quarters of the time.
    fn trial_of_sleeps() -> State {
        POLL.after(sums(WINDOW, WINDOW, 1, 3), true, true).unwrap()
    }

    /// The mode that follows.
    fn next(state: State, sums: Sums, long: bool) -> Option<Mode> {
        state.after(sums, long, true).map(State::mode)
    }

    #[test]
    fn users_go_on_polling_while_polls_succeed_and_lose_less_than_the_work() {
        assert_eq!(next(POLL, sums(WINDOW, WINDOW, 60, 40), true), None);
        assert_eq!(
            next(POLL, sums(WINDOW, WINDOW, 50, 50), true),
            Some(Mode::TrySleep)
        );
        // Polls that fail are not cheap, however much work lies between them.
        assert_eq!(
            next(POLL, sums(WINDOW, 0, 90, 10), true),
            Some(Mode::TrySleep)
        );
        // Too few waits; no trial is due.
        assert_eq!(next(POLL, sums(WINDOW - 1, WINDOW, 1, 99), true), None);
        assert_eq!(POLL.after(sums(WINDOW, WINDOW, 1, 99), true, false), None);
    }

    #[test]
    fn sleeps_that_lose_less_than_polls_become_the_mode_after_the_time_of_a_trial() {
        let state = trial_of_sleeps();
        assert_eq!(state.mode(), Mode::TrySleep);
        let better = sums(TRIAL, 0, 80, 10);
        assert_eq!(next(state, better, false), None);
        assert_eq!(next(state, better, true), Some(Mode::Sleep));
        assert_eq!(next(state, sums(FEW, 0, 80, 10), true), Some(Mode::Sleep));
        assert_eq!(next(state, sums(FEW - 1, 0, 80, 10), true), None);
    }

    #[test]
    fn a_trial_of_sleeps_that_are_worse_is_short() {
        let state = trial_of_sleeps();
        let worse = |waits| sums(waits, 0, 1, 10);
        assert_eq!(next(state, worse(FAILED_TRIAL - 1), false), None);
        assert_eq!(next(state, worse(FAILED_TRIAL), false), Some(Mode::Poll));
        // About as good as the polls.
        let same = |waits| sums(waits, 0, 26, 74);
        assert_eq!(next(state, same(FAILED_TRIAL), false), None);
        assert_eq!(next(state, same(TRIAL), false), Some(Mode::Poll));
    }

    #[test]
    fn polls_are_tried_again_when_a_trial_is_due_or_sleeps_have_become_worse() {
        let sleep = trial_of_sleeps()
            .after(sums(TRIAL, 0, 80, 10), true, true)
            .unwrap();
        let good = sums(TRIAL, 0, 80, 10);
        assert_eq!(sleep.after(good, true, false), None);
        let trial = sleep.after(good, true, true).unwrap();
        assert_eq!(trial.mode(), Mode::TryPoll);
        let bad = sleep.after(sums(TRIAL, 0, 10, 90), true, false).unwrap();
        assert_eq!(bad.mode(), Mode::TryPoll);
        // Polls that lose half of the time are worse than the good sleeps and better than the bad ones.
        let half = sums(TRIAL, TRIAL, 50, 50);
        assert_eq!(next(trial, half, false), Some(Mode::Sleep));
        assert_eq!(next(bad, half, false), None);
        assert_eq!(next(bad, half, true), Some(Mode::Poll));
    }

    #[test]
    fn a_trial_that_fails_defers_the_next_one() {
        let state = trial_of_sleeps();
        let [poll, sleep] = [Mode::Poll, Mode::Sleep].map(|mode| state.next(mode, 0));
        assert_eq!(state.apart(poll), Some(2 * APART));
        assert_eq!(state.apart(sleep), Some(APART));
        let trial = sleep.next(Mode::TryPoll, 0);
        assert_eq!(trial.apart(trial.next(Mode::Sleep, 0)), Some(2 * APART));
        assert_eq!(trial.apart(trial.next(Mode::Poll, 0)), Some(0));
        assert_eq!(poll.apart(state), None);
        let mut state = POLL;
        for failures in 1..20 {
            let trial = state.next(Mode::TrySleep, 0);
            state = trial.next(Mode::Poll, 0);
            assert_eq!(trial.apart(state), Some(APART << failures.min(MOST_DOUBT)));
        }
    }

    /// Each change gives a state that differs from all of the last half a million, so that no thread adds old waits to it.
    #[test]
    fn a_state_does_not_come_back_soon() {
        let mut state = POLL;
        for number in 0..500_000 {
            state = state.next(
                if number % 2 == 0 {
                    Mode::TrySleep
                } else {
                    Mode::Poll
                },
                255,
            );
            assert_ne!(state, POLL);
            assert_eq!((state.share_before(), state.0 >> 13), (255, number + 1));
        }
    }

    /// A lock whose users lose all their time to polls gets a trial of sleeps, by the table.
    #[test]
    fn the_table_learns() {
        let learned = Learned::new();
        learned.add(POLL, sums(WINDOW, WINDOW, 0, 1000), 1);
        let state = learned.state();
        assert_eq!(state.mode(), Mode::TrySleep);
        assert_eq!(learned.waits.load(Relaxed), 0);
        // Waits of the mode before do not count.
        learned.add(POLL, sums(TRIAL, 0, 0, 1000), 2);
        assert_eq!((learned.waits.load(Relaxed), learned.state()), (0, state));
        learned.add(state, sums(TRIAL, 0, 0, 1000), 3);
        assert_eq!(learned.state().mode(), Mode::Poll);
        assert_eq!(
            learned.due.load(Relaxed),
            3 + 2 * APART * 1000 * u64::from(TRIAL)
        );
        learned.add(learned.state(), sums(WINDOW, WINDOW, 0, 1000), 4);
        assert_eq!(learned.state().mode(), Mode::Poll, "no trial is due");
    }
}
