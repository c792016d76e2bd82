//! Bounded sleeps: a waiter whose wake-up may have gone to a task that died checks the word for itself.

use super::{Unfinished, WaitMode};
use crate::atomic::{AtomicU32, unless_fault};
use crate::sys::futex::{self, Sharing, Wait};
#[cfg(not(loom))]
use crate::time::Deadline;
#[cfg(not(loom))]
use core::time::Duration;

/// The word that a waiter sleeps on. It decides how long one nap lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nap {
    /// A throughput lock's gate. A nap normally lasts longer than a round of 36 tasks on 2 processors: a waiter that
    /// wakes up by itself does so out of order.
    AtGate,
    /// A throughput lock's word.
    TopWaiter,
    /// A throughput lock's word, up to the threshold.
    #[cfg(loom)]
    BeforeRequest,
    /// A robust lock's word. Nearly always a wake-up ends the sleep; a lost wake-up costs a second at most.
    RobustWord,
}

/// When a nap ends; in a model, which one it is.
#[cfg(not(loom))]
pub(super) type End = Deadline;
#[cfg(loom)]
pub(super) type End = Nap;

#[cfg(not(loom))]
impl Nap {
    const fn length(self) -> Duration {
        match self {
            Self::RobustWord => Duration::from_secs(1),
            Self::AtGate => Duration::from_millis(50),
            Self::TopWaiter => Duration::from_millis(100),
        }
    }

    /// When a nap that begins now ends.
    pub(super) fn end(self) -> Deadline {
        Deadline::after(self.length())
    }
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By a wake-up.
    Woken,
    /// It did not begin, or did not begin again: the word had another value. No wake-up was meant for this task.
    Refused,
    /// The nap has ended.
    NapOver,
    /// A signal handler ran.
    Interrupted,
}

/// Sleeps while `word` is `expected`, at most until the nap ends, and as long as the wait mode allows.
pub(super) fn sleep(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    wait_mode: WaitMode,
    end: End,
) -> Result<Ended, Unfinished> {
    let (wait, woken) = sleep_until(word, expected, sharing, wait_mode, end);
    check_end(wait, wait_mode)?;
    let counts_as_woken = unless_fault!(ThroughputRefusedSleepCounts, woken, true);
    Ok(match wait {
        Wait::Again if counts_as_woken => Ended::Woken,
        Wait::Again => Ended::Refused,
        Wait::TimedOut => Ended::NapOver,
        Wait::Interrupted => Ended::Interrupted,
    })
}

#[cfg(not(loom))]
fn sleep_until(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    wait_mode: WaitMode,
    end: End,
) -> (Wait, bool) {
    let end = wait_mode
        .deadline()
        .map_or(end, |deadline| deadline.min(end));
    match futex::wait_woken(word, expected, sharing, Some(end)) {
        // The kernel compares the word first: without this, a word that changes all the time would extend the nap.
        (Wait::Again, false) if end.has_passed() => (Wait::TimedOut, false),
        ended => ended,
    }
}

#[cfg(not(loom))]
fn check_end(ended: Wait, wait_mode: WaitMode) -> Result<(), Unfinished> {
    match ended {
        Wait::TimedOut if !wait_mode.deadline().is_some_and(Deadline::has_passed) => Ok(()),
        ended => wait_mode.check(ended),
    }
}

/// Sleeps while `word` is `expected`, for one nap that begins now, and as long as the wait mode allows.
#[cfg(not(loom))]
pub(super) fn sleep_once(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    wait_mode: WaitMode,
    nap: Nap,
) -> Result<(), Unfinished> {
    let ended = match wait_mode.deadline() {
        Some(deadline) => futex::wait(word, expected, sharing, Some(nap.end().min(deadline))),
        // Without a deadline the nap's length is enough: the clock need not be read.
        None => futex::wait_for(word, expected, sharing, nap.length()),
    };
    check_end(ended, wait_mode)
}

#[cfg(loom)]
impl Nap {
    pub(super) fn end(self) -> Self {
        self
    }
}

/// In a model either all naps on a gate, and on a word up to the threshold, may end at any moment, or none ends.
#[cfg(loom)]
fn sleep_until(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    wait_mode: WaitMode,
    nap: End,
) -> (Wait, bool) {
    let ends = nap != Nap::TopWaiter && latchwork_sys::model::scene().naps_end;
    let end = ends.then_some(latchwork_sys::model::SOON);
    futex::wait_woken(word, expected, sharing, wait_mode.deadline().or(end))
}

#[cfg(loom)]
fn check_end(ended: Wait, wait_mode: WaitMode) -> Result<(), Unfinished> {
    if ended == Wait::TimedOut && wait_mode.deadline().is_none() {
        return Ok(());
    }
    wait_mode.check(ended)
}

/// In a model a nap on a robust lock's word ends when a task dies whose wake-up no other task passes on
/// (`model/mortal.rs`).
#[cfg(loom)]
pub(super) fn sleep_once(
    word: &AtomicU32,
    expected: u32,
    _: Sharing,
    wait_mode: WaitMode,
    _: Nap,
) -> Result<(), Unfinished> {
    check_end(futex::nap(word, expected, wait_mode.deadline()), wait_mode)
}
