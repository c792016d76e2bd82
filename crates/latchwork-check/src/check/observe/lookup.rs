//! The entry of a lock on the board, as the events look it up; and what memory contains that is used as a lock and is
//! none.

use crate::check::record::layout::Entry;
use crate::check::record::own::Own;
use crate::check::record::rule::Rule;
use crate::check::record::{board, known};
use crate::check::report::findings;
use crate::hook::{Lock, Site};
use crate::region;

/// The entry of a lock; enters the lock first if it has none. `None` if there is no room. The use of a destroyed object
/// that only a call could have initialised again is reported.
#[inline]
pub(crate) fn know(own: &Own, lock: Lock, site: Site) -> Option<&'static Entry> {
    known::know(own, lock, site, || {
        let (rule, what) = NoLock::Ended.breach();
        findings::misuse(own, rule, lock, site, None, format_args!("{what}"));
    })
}

/// Whether there is an entry at the lock's address.
pub(super) fn is_known(lock: Lock) -> bool {
    board::board().is_some_and(|board| board.lock(lock.address()).is_some())
}

/// A task that uses a lock of a region becomes a task of the region, so that other processes see what it holds.
#[inline]
pub(super) fn join_region(lock: Lock) {
    if lock.is_shared() {
        region::join_at(lock.address());
    }
}

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
            Self::Overwritten => (Rule::InitialisedByInterface, "uses an overwritten"),
        }
    }
}
