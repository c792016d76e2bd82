//! What memory contains that is used as a lock and is none.

use crate::check::record::rule::Rule;

/// What is found at an address instead of a lock that the interface made there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLock {
    /// A copy of a lock, or one that was moved.
    Copied,
    /// Zeroed memory.
    Zeroed,
    /// A lock that was destroyed.
    Ended,
    /// Memory in which no lock was ever made.
    Unmade,
    /// Arbitrary other contents.
    Overwritten,
}

impl NoLock {
    /// The rule that its use breaks, and the middle of a sentence: a task *does this to* a lock.
    pub(crate) const fn breach(self) -> (Rule, &'static str) {
        match self {
            Self::Copied => (Rule::NotCopied, "uses a copied or moved lock:"),
            Self::Zeroed => (
                Rule::InitialisedByInterface,
                "uses memory that was zeroed, not initialised:",
            ),
            Self::Unmade => (Rule::InitialisedByInterface, "uses an uninitialised"),
            Self::Ended => (Rule::InitialisedByInterface, "uses a destroyed"),
            Self::Overwritten => (Rule::InitialisedByInterface, "uses overwritten memory as"),
        }
    }
}
