//! The calling task releases a lock: the slow path, and the rules of a release.

use super::lookup::{is_known, join_region, know};
use crate::check::detect::visible_tasks::VisibleTasks;
use crate::check::record::holder::Holder;
use crate::check::record::own::{HeldEntry, Own};
use crate::check::record::rule::Rule;
use crate::check::record::{settings, totals};
use crate::check::report::findings;
use crate::hook::{Lock, Site, Verdict};
use crate::sys::clock;

/// The calling task is about to release a lock. This is the slow path, which covers every case.
pub(crate) fn releasing(own: &Own, lock: Lock, site: Site) -> Verdict {
    match own.find(lock.address()) {
        Some((place, mine)) if mine.depth > 0 => own.change(place, |mine| mine.depth -= 1),
        Some((place, mine)) => {
            own.know_site(site);
            own.pop(place);
            was_held(own, &mine, site);
            if !mine.reads() {
                forget_holder(own, lock, &mine, site);
            }
        }
        None => return not_mine(own, lock, site),
    }
    Verdict::Go
}

/// Counts the length of a hold, and reports it if it is over the limit.
pub(super) fn was_held(own: &Own, mine: &HeldEntry, site: Site) {
    let nanoseconds = clock::coarse().saturating_sub(mine.since);
    totals::held_for(nanoseconds);
    let limit = settings::long_hold();
    if limit > 0 && nanoseconds > limit {
        findings::long_hold(own, mine, site, nanoseconds);
    }
}

/// The calling task no longer holds a lock. Its last holder, and the place of the release, stay noted.
#[inline]
pub(super) fn forget_holder(own: &Own, lock: Lock, mine: &HeldEntry, site: Site) {
    if let Some(entry) = mine.entry
        && Holder::of(lock, entry).is(own)
    {
        own.note_release(lock, entry, mine.site, site);
    }
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
            let what = format_args!("unlocks a lock that thread {} owns:", other.thread);
            findings::misuse(own, Rule::OwnerUnlocks, lock, site, Some(other), what);
            Verdict::NotOwner
        }
        None => {
            let what = format_args!("unlocks a lock that no task owns:");
            findings::misuse(own, Rule::NoDoubleUnlock, lock, site, None, what);
            Verdict::NotHeld
        }
    }
}
