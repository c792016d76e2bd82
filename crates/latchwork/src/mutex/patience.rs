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
const FAR: Deadline = Deadline::from_nanoseconds(i64::MAX as u64);

/// What a slow path is told of its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    deadline: Option<Deadline>,
    interruptible: bool,
}

impl Patience {
    /// However long it takes.
    pub(crate) const ENDLESS: Self = Self::until(None);

    /// Until the deadline, if there is one.
    pub(crate) const fn until(deadline: Option<Deadline>) -> Self {
        Self {
            deadline,
            interruptible: false,
        }
    }

    /// Until the deadline, if there is one, or a signal handler has run.
    pub(crate) const fn interruptible(deadline: Option<Deadline>) -> Self {
        Self {
            deadline,
            interruptible: true,
        }
    }

    /// The deadline to sleep with.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        match self.deadline {
            None if self.interruptible => Some(FAR),
            deadline => deadline,
        }
    }

    /// Whether a sleep that ended so was the last one.
    pub(crate) fn check(self, ended: Wait) -> Result<(), Unfinished> {
        match ended {
            Wait::TimedOut => Err(Unfinished::TimedOut),
            Wait::Interrupted if self.interruptible => Err(Unfinished::Interrupted),
            _ => Ok(()),
        }
    }
}
