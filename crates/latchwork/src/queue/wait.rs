//! How long a call waits.

use crate::time::Deadline;
use core::time::Duration;

/// How long a call waits for its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It does not wait.
    Not,
    /// Until the deadline passes.
    Until(Deadline),
    /// For ever, or until the queue is deleted.
    Forever,
}

impl Wait {
    /// For at most this long, from now.
    #[must_use]
    pub fn at_most(timeout: Duration) -> Self {
        Self::Until(Deadline::after(timeout))
    }

    pub(super) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::Until(deadline) => Some(deadline),
            Self::Not | Self::Forever => None,
        }
    }
}

impl From<Deadline> for Wait {
    fn from(deadline: Deadline) -> Self {
        Self::Until(deadline)
    }
}
