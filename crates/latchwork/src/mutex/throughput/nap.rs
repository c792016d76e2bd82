//! Sleeps that end by themselves after a while: the task to whom a wake-up went may be stopped or dead.

use crate::atomic::AtomicU32;
use crate::mutex::{Patience, Unfinished};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Wait};
#[cfg(not(loom))]
use crate::time::Deadline;
#[cfg(not(loom))]
use core::time::Duration;

/// What a task sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nap {
    /// The gate. Longer than a round of 36 tasks on 2 processors as a rule: who wakes up by itself does
    /// so out of turn.
    InQueue,
    /// The word.
    OnTop,
}

#[cfg(not(loom))]
impl Nap {
    const fn length(self) -> Duration {
        match self {
            Self::InQueue => Duration::from_millis(50),
            Self::OnTop => Duration::from_millis(100),
        }
    }

    /// When a nap ends that begins now. One that a signal has interrupted keeps its end.
    pub(super) fn end(self) -> Deadline {
        Deadline::after(self.length())
    }
}

/// Sleeps while `word` is `expected`, as long as the caller's patience and the nap last.
/// [`Wait::TimedOut`] is the end of the nap.
#[cfg(not(loom))]
pub(super) fn sleep<S: Sharing>(
    word: &AtomicU32,
    expected: u32,
    patience: Patience,
    end: Deadline,
) -> Result<Wait, Unfinished> {
    let deadline = patience.deadline();
    let ended = futex::wait(
        word,
        expected,
        S::FLAG,
        Some(deadline.map_or(end, |deadline| deadline.min(end))),
    );
    match ended {
        Wait::TimedOut if !deadline.is_some_and(Deadline::has_passed) => {}
        ended => patience.check(ended)?,
    }
    Ok(ended)
}

#[cfg(loom)]
impl Nap {
    pub(super) fn end(self) -> Self {
        self
    }
}

/// In a model the naps in the queue end at any moment, or none does.
#[cfg(loom)]
pub(super) fn sleep<S: Sharing>(
    word: &AtomicU32,
    expected: u32,
    patience: Patience,
    nap: Nap,
) -> Result<Wait, Unfinished> {
    let deadline = patience.deadline();
    let ends = nap == Nap::InQueue && crate::model::scene().naps_end;
    let end = deadline.or(ends.then_some(crate::model::SOON));
    let ended = futex::wait(word, expected, S::FLAG, end);
    if ended != Wait::TimedOut || deadline.is_some() {
        patience.check(ended)?;
    }
    Ok(ended)
}
