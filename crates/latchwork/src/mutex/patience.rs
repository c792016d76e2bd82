//! How long a lock call is ready to wait, and what may end the wait.

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

/// The end of a wait that nothing else ends. The kernel restarts a sleep *without* a deadline after
/// a handler that was installed with `SA_RESTART`; one with a deadline it never restarts.
const FAR: u64 = i64::MAX as u64;

/// Bits of [`Patience::kind`].
const TIMED: u32 = 1;
const INTERRUPTIBLE: u32 = 2;
const NONE: u32 = 4;

/// What a slow path is told of its caller. (Two registers: fast paths pass it on.)
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    end: u64,
    kind: u32,
}

impl Patience {
    /// None: it tries.
    pub(crate) const NONE: Self = Self { end: 0, kind: NONE };

    /// However long it takes.
    pub(crate) const ENDLESS: Self = Self { end: FAR, kind: 0 };

    /// Until the deadline, if there is one.
    pub(crate) const fn until(deadline: Option<Deadline>) -> Self {
        match deadline {
            None => Self::ENDLESS,
            Some(deadline) => Self {
                end: deadline.as_nanoseconds(),
                kind: TIMED,
            },
        }
    }

    /// Until the deadline, if there is one, or a signal handler has run.
    pub(crate) const fn interruptible(deadline: Option<Deadline>) -> Self {
        Self {
            kind: TIMED | INTERRUPTIBLE,
            ..Self::until(deadline)
        }
    }

    /// Until another deadline, too, if there is one.
    pub(crate) fn at_most(self, deadline: Option<Deadline>) -> Self {
        match deadline {
            Some(deadline) if !self.is_none() => Self {
                end: self.end.min(deadline.as_nanoseconds()),
                kind: self.kind | TIMED,
            },
            _ => self,
        }
    }

    /// Whether it only tries.
    pub(crate) const fn is_none(self) -> bool {
        self.kind == NONE
    }

    /// The deadline to sleep with.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        (self.kind & TIMED != 0).then_some(Deadline::from_nanoseconds(self.end))
    }

    /// Whether a sleep that ended so was the last one.
    pub(crate) fn check(self, ended: Wait) -> Result<(), Unfinished> {
        match ended {
            Wait::TimedOut => Err(Unfinished::TimedOut),
            Wait::Interrupted if self.kind & INTERRUPTIBLE != 0 => Err(Unfinished::Interrupted),
            _ => Ok(()),
        }
    }
}
