//! The use of a lock that carries a [tag](crate::check::record::tag).

use super::observer::{destroyed, introduced, uses_no_lock};
use crate::check::observe::no_lock::NoLock;
use crate::check::record::tag::{State, Tag};
use crate::hook::{Lock, Site};

/// Checks the tag of a lock, before each use of the lock.
#[inline]
pub(super) fn verify(tag: &Tag, lock: impl FnOnce() -> Lock, site: Site) {
    if !tag.is_in_place() {
        explain(tag, lock(), site);
    }
}

#[cold]
pub(super) fn explain(tag: &Tag, lock: Lock, site: Site) {
    let what = match tag.state() {
        State::Unused => return introduced(lock, tag),
        // Another task used it for the first time after the check that led here.
        State::InUse => return,
        State::Copied => NoLock::Copied,
        State::Zeroed => NoLock::Zeroed,
        State::Dropped => NoLock::Ended,
        State::Overwritten => NoLock::Overwritten,
    };
    uses_no_lock(lock, what, site);
}

/// The lock is about to be dropped.
pub(super) fn end(tag: &Tag, lock: Lock) {
    if tag.end() {
        destroyed(lock, Site::UNKNOWN);
    }
}
