//! Locks that are reinitialised in place without a call: a `std::mutex` on the stack has no destructor, and its
//! constructor is a few stores of zero. An interposer leaves a mark in the lock's memory, in a field that the lock does
//! not use, and detects that the mark is gone.

use crate::atomic::{AtomicU64, Ordering};
use crate::check::detect::visible_tasks::VisibleTasks;
use crate::check::record::board;
use crate::check::record::holder::OVERWRITTEN;
use crate::check::record::known;
use crate::check::record::layout::GONE;
use crate::check::record::own::Own;
use crate::check::record::rule::Rule;
use crate::check::report::findings;
use crate::hook::{Lock, Site};

/// A lock is about to be used, or was just made, and its memory does not contain `mark` where it should. So there is
/// another lock now, and what was known of the one before no longer counts. (Unless another task holds that one: then
/// it was overwritten, and its consequences are reported.) If the calling task is checked, the memory contains the mark
/// from now on.
///
/// `mark` is unique to this address, and not zero. The memory stays a lock's until the call returns.
pub(crate) fn unmarked(own: &Own, lock: Lock, place: &AtomicU64, mark: u64, site: Site) {
    own.know_site(site);
    let known = board::board().and_then(|board| board.lock(lock.address()));
    // Relaxed, here and below: a task that reads the mark, or what was stored with it, has synchronised by a lock of
    // the program, or holds the lock under which this is changed.
    let known = known.filter(|entry| entry.what.load(Ordering::Relaxed) & GONE == 0);
    own.leave_to_parent(lock.address());
    let old = known.filter(|_| VisibleTasks::holder(own, lock).is_none());
    if old.is_some()
        && let Some((held, _)) = own.find(lock.address())
    {
        let what = format_args!("uses a new lock in the memory of one that it still holds:");
        findings::misuse(own, Rule::NotRemadeWhileHeld, lock, site, None, what);
        own.pop(held);
    }
    board::alone(|_| {
        if place.load(Ordering::Relaxed) != mark {
            if let Some(entry) = old {
                known::reinitialise(entry, lock, site);
            }
            // SAFETY: used within this call.
            if let Some(word) = unsafe { lock.word() } {
                let is_held = known.is_some() && old.is_none();
                word.store(if is_held { OVERWRITTEN } else { 0 }, Ordering::Relaxed);
            }
            place.store(mark, Ordering::Relaxed);
        }
    });
}
