//! Bounded sleeps: a waiter whose wake-up may have gone to a task that died checks the word for itself.

use super::{Unfinished, WaitMode};
use crate::atomic::AtomicU32;
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
    /// A robust lock's word. Nearly always a wake-up ends the sleep; a lost wake-up costs a second at most.
    RobustWord,
}

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

/// Sleeps while `word` is `expected`, at most until the nap ends, and as long as the wait mode allows.
/// [`Wait::TimedOut`] means that the nap ended.
#[cfg(not(loom))]
pub(super) fn sleep(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    wait_mode: WaitMode,
    end: Deadline,
) -> Result<Wait, Unfinished> {
    let deadline = wait_mode.deadline();
    let end = deadline.map_or(end, |deadline| deadline.min(end));
    check_end(futex::wait(word, expected, sharing, Some(end)), wait_mode)
}

#[cfg(not(loom))]
fn check_end(ended: Wait, wait_mode: WaitMode) -> Result<Wait, Unfinished> {
    match ended {
        Wait::TimedOut if !wait_mode.deadline().is_some_and(Deadline::has_passed) => {}
        ended => wait_mode.check(ended)?,
    }
    Ok(ended)
}

/// As [`sleep`], for one nap that begins now.
pub(super) fn sleep_once(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    wait_mode: WaitMode,
    nap: Nap,
) -> Result<Wait, Unfinished> {
    // Without a deadline the nap's length is enough: the clock need not be read.
    #[cfg(not(loom))]
    if wait_mode.deadline().is_none() {
        let ended = futex::wait_for(word, expected, sharing, nap.length());
        return check_end(ended, wait_mode);
    }
    sleep(word, expected, sharing, wait_mode, nap.end())
}

#[cfg(loom)]
impl Nap {
    pub(super) fn end(self) -> Self {
        self
    }
}

/// In a model either all naps on a gate may end at any moment, or none ends; a nap on a robust lock's word ends when a
/// task dies whose wake-up no other task passes on (`model/mortal.rs`).
#[cfg(loom)]
pub(super) fn sleep(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    wait_mode: WaitMode,
    nap: Nap,
) -> Result<Wait, Unfinished> {
    let deadline = wait_mode.deadline();
    let ended = if nap == Nap::RobustWord {
        futex::nap(word, expected, deadline)
    } else {
        let ends = nap == Nap::AtGate && latchwork_sys::model::scene().naps_end;
        futex::wait(
            word,
            expected,
            sharing,
            deadline.or(ends.then_some(latchwork_sys::model::SOON)),
        )
    };
    if ended != Wait::TimedOut || deadline.is_some() {
        wait_mode.check(ended)?;
    }
    Ok(ended)
}
