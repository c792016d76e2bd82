//! What a process has learned about a lock: whether its waiters poll or sleep.
//!
//! *What is compared.* Of the time of the threads that use a lock, a share is work: all that they do from the end of one
//! wait to the beginning of the next. The rest is lost to waits: the time of their polls, and [`SLEEP`] for each sleep.
//! (The time asleep is not lost: others have the processor.) The mode in which the share of work is higher is the better
//! one, with one exception: if polls succeed, and no more than [`LOST_TO_POLLS`] of the time is lost to them, two threads
//! that poll do more work together than one thread alone, so the lock's users poll.
//!
//! *Why the process and not the thread.* Where the owner runs nearly all the time, waiters that poll for it use a second
//! processor and gain nothing: alone, the owner does as much. But a thread that sleeps while others poll loses each
//! race for the lock. So it pays only if all of them sleep, and all try it at the same time. (Processes that share a
//! lock learn separately.)
//!
//! | mode | ends after | next mode |
//! | --- | --- | --- |
//! | [`Poll`](Mode::Poll) | [`WINDOW`] waits, if too much is lost, and a trial is due | `TrySleep` |
//! | [`TrySleep`](Mode::TrySleep) | 4 ms and [`FEW`] waits; or [`TRIAL`] waits, if more is lost than before | `Sleep`, if that is better; else `Poll` |
//! | [`Sleep`](Mode::Sleep) | [`TRIAL`] waits, if more is lost than to polls before, or a trial is due | `TryPoll` |
//! | [`TryPoll`](Mode::TryPoll) | [`TRIAL`] waits | `Sleep`, if that is better; else `Poll` |
//!
//! A trial is due when [`APART`] times as much time has passed since the trial before as was lost in it.
//!
//! *Races.* All accesses are relaxed, and a thread may add its waits to the sums of a window that has just begun. Then
//! the sums are a little wrong, and a later window corrects the decision. A mode changes by one compare-and-swap.

use super::speed::ticks_in;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Microseconds of polls that cost as much as a sleep. The cost of a sleep is the time of a futex wait and its wake-up
/// on both processors, and the time in which no task has the lock. (With 3 here, two tasks that pass three throughput
/// locks round on two processors take 4.1 to 9.4 µs for a hand-over, and 0.45 with 10.)
pub(super) const SLEEP: u32 = 10;
/// Microseconds that count at most, of one time of work or of polls: a thread may be preempted in it, and the clock of the
/// thread itself costs a system call.
pub(super) const MOST: u32 = 8 * SLEEP;
/// Waits after which the users of a lock that poll are judged.
const WINDOW: u32 = 128;
/// Waits of a trial, and waits after which users that sleep are judged.
const TRIAL: u32 = 64;
/// Waits of a trial of sleeps, at least.
const FEW: u32 = 8;
/// Microseconds of a trial of sleeps. The scheduler needs a few of its time slices until only as many threads are awake
/// as the lock keeps busy.
const TRIAL_TIME: u32 = 4_000;
/// From one trial to the next passes so many times the time that was lost in the first.
const APART: u64 = 512;
/// The whole, of which shares are parts.
const WHOLE: u32 = 256;
/// The share of time that may be lost to polls that succeed.
const LOST_TO_POLLS: u32 = WHOLE * 45 / 100;
/// A mode is better if its share of work is larger by more than this.
const MARGIN: u32 = WHOLE / 16;

/// How the waiters for a lock wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Poll,
    TrySleep,
    Sleep,
    TryPoll,
}

impl Mode {
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

/// A mode, the share of work in the mode before it, and a number that changes with the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u32);

impl State {
    const MODE: u32 = 3;
    const SHARE: u32 = 2;
    const NUMBER: u32 = 1 << 10;

    pub(super) fn mode(self) -> Mode {
        [Mode::Poll, Mode::TrySleep, Mode::Sleep, Mode::TryPoll][(self.0 & Self::MODE) as usize]
    }

    /// The share of work in the mode before.
    fn share_before(self) -> u32 {
        self.0 >> Self::SHARE & (WHOLE - 1)
    }

    fn next(self, mode: Mode, share: u32) -> Self {
        let number = (self.0 & !(Self::NUMBER - 1)).wrapping_add(Self::NUMBER);
        Self(number | share << Self::SHARE | mode as u32)
    }

    /// The state after some waits, `time` since the mode began; `due`: another mode may be tried. `None`: the mode goes
    /// on.
    fn after(self, sums: Sums, time: Time, due: bool) -> Option<Self> {
        let share = sums.share_of_work();
        let before = self.share_before();
        match self.mode() {
            Mode::Poll => (sums.waits >= WINDOW && due && !sums.polls_succeed_cheaply())
                .then(|| self.next(Mode::TrySleep, share)),
            Mode::TrySleep => {
                let sleeps = share > before + MARGIN;
                let mode = if sleeps { Mode::Sleep } else { Mode::Poll };
                // If it fails, it ends early.
                let is_over = time == Time::Long && sums.waits >= FEW;
                (is_over || !sleeps && sums.waits >= TRIAL).then(|| self.next(mode, before))
            }
            Mode::Sleep => (sums.waits >= TRIAL && (due || share + MARGIN < before))
                .then(|| self.next(Mode::TryPoll, share)),
            Mode::TryPoll => {
                let sleeps = before > share + MARGIN && !sums.polls_succeed_cheaply();
                let mode = if sleeps { Mode::Sleep } else { Mode::Poll };
                (sums.waits >= TRIAL && (sleeps || time == Time::Long))
                    .then(|| self.next(mode, if sleeps { share } else { before }))
            }
        }
    }
}

/// How long a mode has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// Less than a trial of sleeps lasts.
    Short,
    Long,
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
        let time = if passed < ticks_in(TRIAL_TIME) {
            Time::Short
        } else {
            Time::Long
        };
        let due = now >= self.due.load(Relaxed);
        match state.after(sums, time, due) {
            Some(next) => {
                if self
                    .state
                    .compare_exchange(state.0, next.0, Relaxed, Relaxed)
                    .is_ok()
                {
                    if matches!(state.mode(), Mode::TrySleep | Mode::TryPoll) {
                        self.due.store(now + APART * u64::from(sums.lost), Relaxed);
                    }
                    self.began.store(now, Relaxed);
                    self.clear();
                }
            }
            // The latest waits count more than those before.
            None if sums.waits >= WINDOW => self.clear(),
            None => {}
        }
    }

    fn clear(&self) {
        for sum in [&self.waits, &self.without_sleep, &self.worked, &self.lost] {
            sum.store(0, Relaxed);
        }
    }
}
