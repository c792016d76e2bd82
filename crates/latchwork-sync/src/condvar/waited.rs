//! How a wait ended.

/// How a timed wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A notification, or a spurious wake-up: check the predicate.
    Woken,
    /// The deadline passed.
    TimedOut,
}

impl Waited {
    pub(super) const fn unless(timed_out: bool) -> Self {
        if timed_out {
            Self::TimedOut
        } else {
            Self::Woken
        }
    }
}
