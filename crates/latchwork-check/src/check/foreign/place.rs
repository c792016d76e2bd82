//! What a checker of another language's locks reports through the [`hook`](crate::check::hook): places in its sources, and
//! what is found where a lock should be.

use crate::check::observe::tell;
use crate::check::record::own::Own;
use crate::check::record::rule::Rule;
use crate::check::record::sites::site_of_line;
use crate::hook::{Lock, Site};

/// A line of a source file, as a site. Reports show it as `file:line`.
#[must_use]
pub fn source_line(file: &str, line: u32) -> Site {
    let Some(own) = Own::enter() else {
        return Site::UNKNOWN;
    };
    site_of_line(&own, file, line)
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
            Self::Copied => (
                Rule::NotCopied,
                "uses what is a copy of, or was moved from, another place:",
            ),
            Self::Zeroed => (
                Rule::InitialisedByInterface,
                "uses zeroed memory, not initialised by the interface, as",
            ),
            Self::Unmade => (Rule::InitialisedByInterface, "uses an uninitialised"),
            Self::Ended => (Rule::InitialisedByInterface, "uses a destroyed"),
            Self::Overwritten => (Rule::InitialisedByInterface, "uses overwritten memory as"),
        }
    }
}

/// The calling task uses memory as a lock that contains none.
pub fn uses_no_lock(lock: Lock, what: NoLock, site: Site) {
    let (rule, why) = what.breach();
    tell::not_a_lock(lock, rule, why, site);
}
