//! How long a lock call may wait, what may end the wait, and the bounded sleeps (*naps*) that it consists of: a waiter
//! whose wake-up may have gone to a task that died checks the word for itself.

use crate::atomic::{AtomicU32, unless_fault};
use crate::backoff::LongPolls;
use crate::sys::futex::{self, Sharing, Wait};
use crate::time::Deadline;
use core::time::Duration;

/// Why a wait that may be given up ended without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// The deadline passed.
    #[error("the deadline passed")]
    TimedOut,
    /// A signal handler ran in the waiting thread while it slept.
    #[error("a signal handler ran")]
    Interrupted,
}

/// `end` of a wait without a deadline. The kernel restarts a sleep *without* a deadline after a handler that was
/// installed with `SA_RESTART`; it never restarts one with a deadline.
const NEVER: u64 = i64::MAX as u64;

/// Bits of [`WaitMode::kind`].
const TIMED: u32 = 1;
const INTERRUPTIBLE: u32 = 2;
const TRY: u32 = 4;

/// Wait mode: try, for ever, until a deadline, interruptible. (Two registers: fast paths pass it on.)
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct WaitMode {
    end: u64,
    kind: u32,
}

impl WaitMode {
    /// Tries once, without a wait.
    pub(crate) const TRY: Self = Self { end: 0, kind: TRY };

    /// Waits for ever.
    pub(crate) const FOREVER: Self = Self {
        end: NEVER,
        kind: 0,
    };

    /// Waits until the deadline, if there is one.
    #[doc(hidden)]
    pub const fn until(deadline: Option<Deadline>) -> Self {
        match deadline {
            None => Self::FOREVER,
            Some(deadline) => Self {
                end: deadline.as_nanoseconds(),
                kind: TIMED,
            },
        }
    }

    /// Waits until the deadline, if there is one, or until a signal handler has run.
    pub(crate) const fn interruptible(deadline: Option<Deadline>) -> Self {
        Self {
            kind: TIMED | INTERRUPTIBLE,
            ..Self::until(deadline)
        }
    }

    /// The long polls of a wait. One that a deadline or a signal handler may end makes none: it would end only after them.
    pub(crate) fn long_polls(self) -> LongPolls {
        match self.kind {
            0 => LongPolls::default(),
            _ => LongPolls::NONE,
        }
    }

    /// The same mode, with another deadline as well, if there is one.
    pub(crate) fn at_most(self, deadline: Option<Deadline>) -> Self {
        match deadline {
            Some(deadline) if !self.is_try() => Self {
                end: self.end.min(deadline.as_nanoseconds()),
                kind: self.kind | TIMED,
            },
            _ => self,
        }
    }

    /// Whether the call tries once, without a wait.
    pub(crate) const fn is_try(self) -> bool {
        self.kind == TRY
    }

    /// Whether a signal handler ends the wait.
    pub(crate) const fn is_interruptible(self) -> bool {
        self.kind & INTERRUPTIBLE != 0
    }

    /// The deadline to sleep with.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        (self.kind & TIMED != 0).then_some(Deadline::from_nanoseconds(self.end))
    }

    /// Returns an error if a sleep that `ended` in this way ends the whole wait.
    pub(crate) fn check(self, ended: Wait) -> Result<(), Unfinished> {
        match ended {
            Wait::TimedOut => Err(Unfinished::TimedOut),
            Wait::Interrupted if self.is_interruptible() => Err(Unfinished::Interrupted),
            _ => Ok(()),
        }
    }
}

/// The word of a throughput lock that a waiter sleeps on. It decides how long one nap lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nap {
    /// The gate. A nap normally lasts longer than a round of 36 tasks on 2 processors: a waiter that
    /// wakes up by itself does so out of order.
    AtGate,
    /// The word.
    TopWaiter,
    /// The word, up to the threshold.
    #[cfg(loom)]
    BeforeRequest,
}

/// When a nap ends; in a model, which one it is.
#[cfg(not(loom))]
pub(super) type End = Deadline;
#[cfg(loom)]
pub(super) type End = Nap;

impl Nap {
    /// When a nap that begins now ends.
    pub(super) fn end(self) -> End {
        #[cfg(loom)]
        return self;
        #[cfg(not(loom))]
        Deadline::after(match self {
            Self::AtGate => Duration::from_millis(50),
            Self::TopWaiter => Duration::from_millis(100),
        })
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
    let deadline = wait_mode.deadline();
    #[cfg(not(loom))]
    let until = Some(deadline.map_or(end, |deadline| deadline.min(end)));
    // In a model either all naps on a gate, and on a word up to the threshold, may end at any moment, or none ends.
    #[cfg(loom)]
    let until = deadline.or(
        (end != Nap::TopWaiter && latchwork_sys::model::scene().naps_end)
            .then_some(latchwork_sys::model::SOON),
    );
    let (wait, woken) = match futex::wait_woken(word, expected, sharing, until) {
        // The kernel compares the word first: without this, a word that changes all the time would extend the nap.
        #[cfg(not(loom))]
        (Wait::Again, false) if is_over(until) => (Wait::TimedOut, false),
        ended => ended,
    };
    check_end(wait, wait_mode)?;
    let counts_as_woken = unless_fault!(ThroughputRefusedSleepCounts, woken, true);
    Ok(match wait {
        Wait::Again if counts_as_woken => Ended::Woken,
        Wait::Again => Ended::Refused,
        Wait::TimedOut => Ended::NapOver,
        Wait::Interrupted => Ended::Interrupted,
    })
}

/// Returns an error if a sleep of one nap at most that `ended` in this way ends the whole wait.
pub(super) fn check_end(ended: Wait, wait_mode: WaitMode) -> Result<(), Unfinished> {
    match ended {
        Wait::TimedOut if !is_over(wait_mode.deadline()) => Ok(()),
        ended => wait_mode.check(ended),
    }
}

/// The end of a sleep: after one nap at most, and not after `deadline`. (In a model a sleep ends by itself when there
/// is something to see: it has no clock.)
#[cfg_attr(loom, allow(unused_variables))]
pub(crate) fn end_of_nap(nap: Duration, deadline: Option<Deadline>) -> Option<Deadline> {
    #[cfg(loom)]
    return deadline;
    #[cfg(not(loom))]
    {
        let end = Deadline::after(nap);
        Some(deadline.map_or(end, |deadline| deadline.min(end)))
    }
}

/// Whether a deadline, if there is one, has passed. (In a model every deadline has.)
pub(crate) fn is_over(deadline: Option<Deadline>) -> bool {
    #[cfg(loom)]
    return deadline.is_some();
    #[cfg(not(loom))]
    deadline.is_some_and(Deadline::has_passed)
}
