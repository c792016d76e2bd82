//! The entry of a lock on the board, as the events look it up.

use super::no_lock::NoLock;
use crate::check::record::layout::Entry;
use crate::check::record::own::Own;
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
