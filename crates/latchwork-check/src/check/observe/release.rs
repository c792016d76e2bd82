//! The calling task releases a lock: the slow path, and the rules of a release.

use super::lookup::{is_known, join_region, know};
use crate::check::detect::visible_tasks::VisibleTasks;
use crate::check::record::board;
use crate::check::record::holder::Holder;
use crate::check::record::own::Own;
use crate::check::record::rule::Rule;
use crate::check::record::{settings, totals};
use crate::check::report::findings;
use crate::hook::{Lock, Site, Traits, Verdict};
use crate::sys::clock;
use core::fmt;

/// The calling task is about to release a lock. This is the slow path, which covers every case.
pub(crate) fn releasing(own: &Own, lock: Lock, site: Site) -> Verdict {
    if release_mine(own, lock, site) {
        return Verdict::Go;
    }
    not_mine(own, lock, site)
}

/// Records a release. Counts the length of the hold, and reports it if it is over the limit. The lock's last holder, and
/// the place of the release, stay noted. Returns false if the calling task does not hold the lock, as far as is
/// recorded.
pub(super) fn release_mine(own: &Own, lock: Lock, site: Site) -> bool {
    let Some((place, mine)) = own.find(lock.address()) else {
        return false;
    };
    // A recursive lock is released once, and may be held still.
    if mine.depth > 0 {
        own.change(place, |mine| mine.depth -= 1);
        return true;
    }
    own.know_site(site);
    own.pop(place);
    let nanoseconds = clock::coarse().saturating_sub(mine.since);
    totals::held_for(nanoseconds);
    let limit = settings::limit(&settings::LONG_HOLD);
    if limit > 0 && nanoseconds > limit {
        findings::long_hold(own, &mine, site, nanoseconds);
    }
    if let Some(entry) = mine.entry
        && !mine.reads()
        && Holder::of(lock, entry).is(own)
    {
        own.note_release(lock, entry, mine.site, site);
    }
    true
}

/// The calling task releases a lock that it does not hold, as far as is recorded.
#[cold]
fn not_mine(own: &Own, lock: Lock, site: Site) -> Verdict {
    own.know_site(site);
    // It may be a lock that was taken when there was no room to record it.
    if own.unrecorded.get() > 0 {
        own.unrecorded.set(own.unrecorded.get() - 1);
        return Verdict::Go;
    }
    join_region(lock);
    if lock.has_tag() {
        know(own, lock, site);
    }
    // A lock without an entry may have been taken before the checker began.
    if !is_known(lock) || !lock.kind.has_owner() {
        return Verdict::Go;
    }
    match VisibleTasks::holder(own, lock) {
        Some(other) => {
            let misused = |what: fmt::Arguments<'_>| {
                findings::misuse(own, Rule::OwnerUnlocks, lock, site, Some(other), what);
            };
            match (other.thread, other.process.elsewhere()) {
                (thread, None) => {
                    misused(format_args!("unlocks a lock that thread {thread} owns:"))
                }
                (thread, Some(namespace)) => misused(format_args!(
                    "unlocks a lock that thread {thread} of PID namespace {namespace} owns:"
                )),
            }
            if lock.traits.contains(Traits::ANYONE)
                && let Some(entry) = board::board().and_then(|board| board.lock(lock.address()))
            {
                Holder::of(lock, entry).released_by_another();
            }
            Verdict::NotOwner
        }
        None => {
            let what = format_args!("unlocks a lock that no task owns:");
            findings::misuse(own, Rule::NoDoubleUnlock, lock, site, None, what);
            Verdict::NotHeld
        }
    }
}
