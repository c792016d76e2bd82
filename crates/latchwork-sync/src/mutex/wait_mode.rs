//! How long a lock call may wait, and what may end the wait.

use crate::sys::futex::Wait;
use crate::time::Deadline;

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

    /// The deadline to sleep with.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        (self.kind & TIMED != 0).then_some(Deadline::from_nanoseconds(self.end))
    }

    /// Returns an error if a sleep that `ended` in this way ends the whole wait.
    pub(crate) fn check(self, ended: Wait) -> Result<(), Unfinished> {
        match ended {
            Wait::TimedOut => Err(Unfinished::TimedOut),
            Wait::Interrupted if self.kind & INTERRUPTIBLE != 0 => Err(Unfinished::Interrupted),
            _ => Ok(()),
        }
    }
}
