//! The fast path of nearly every call: a known lock is taken or released, nothing about it is new, and no rule can be
//! broken.
//!
//! The fast path records a call completely or not at all: first it checks all that could make the call unusual, then it
//! writes. All other calls take the slow path, in `acquire.rs` and `release.rs`, which does the same to the same
//! records in more general terms. So a rule is implemented there; this file contains the conditions under which no rule
//! can be broken.
//!
//! *Cost:* no call but to the clock, no lock, no read-modify-write; only loads of the lock's cache line on the board,
//! and stores to the thread's own memory and beside the lock (see `holder.rs`). The clock is the kernel's coarse one,
//! 5 ns a reading, once for the acquisition and once for the release: other processes must be able to read at any time
//! since when a lock is held, and one reading cannot give the length of a hold. (The processor's counter is not used:
//! on virtual machines it takes 20 ns.)
//!
//! *Checked by:* all tests of the checker, which take this path from the second use of a lock on; and by comparison
//! with the slow path, in `check/tests.rs`.

use crate::atomic::Ordering;
use crate::check::detect::order;
use crate::check::record::holder::Holder;
use crate::check::record::layout::COMMON;
use crate::check::record::own::{HeldEntry, Own};
use crate::check::record::settings;
use crate::check::record::totals;
use crate::hook::record::{READS, TRIED, pack};
use crate::hook::{HELD, How, Lock, Mode, Site, Traits};
use crate::sys::clock;

/// As [`taken`](crate::check::hook::taken), if the call is a usual one; otherwise returns false, and nothing was
/// recorded.
///
/// It is inlined into its callers (an interposer, and `observer.rs`), so that it lies in a few cache lines: programs
/// that return from a system call find nothing else in the cache.
#[inline(always)]
#[doc(hidden)]
pub fn taken_as_usual(lock: Lock, mode: Mode, how: How, site: Site) -> bool {
    /// In [`HeldEntry::what`]: the task may hold it already.
    const AGAIN: u32 = READS | (Traits::RECURSIVE.bits() as u32) << 8;
    let tried = if how == How::Tried { TRIED } else { 0 };
    let what = pack(lock, mode) | tried;
    let address = lock.address();
    let Some(own) = Own::enter_if_known() else {
        return false;
    };
    let count = own.count.get();
    let waited = own.wanted.get() == address;
    if waited || count >= HELD || !own.knows_site(site) {
        return false;
    }
    let Some(board) = own.board.get() else {
        return false;
    };
    let entry = board.first_place(address);
    if !entry.is_at(address) {
        return false;
    }
    // Relaxed, in all of this file: as in the slow path. The check is that the taking task is not new. No task is ever
    // recorded for a lock that is gone, has no owner, or is shared by processes (a thread that takes a lock of a region
    // becomes a task of the region first).
    let task = entry.task.load(Ordering::Relaxed);
    if task != own.task.get() && task != COMMON {
        return false;
    }
    let holder = Holder::of(lock, entry);
    let is_alone = what & READS == 0;
    if is_alone && !holder.allows(&own) {
        return false;
    }
    let node = entry.node.load(Ordering::Relaxed);
    if count > 0 {
        if what & AGAIN != 0
            && let Some(place) = own.place_of(address)
        {
            own.change(place, |mine| mine.depth += 1);
            return true;
        }
        if how == How::Again || what & TRIED == 0 && !order::is_known(&own, address, what, node) {
            return false;
        }
    }
    let since = clock::coarse();
    own.held[count].set(HeldEntry {
        address,
        what,
        depth: 0,
        node,
        site,
        since,
        entry: Some(entry),
    });
    own.count.set(count + 1);
    own.record().push(count, count + 1, |held| {
        held.write(address as u64, site.raw(), since, what, node);
    });
    own.put_in_regions(count);
    if is_alone {
        holder.set(&own);
    }
    true
}

/// The time at which a lock that is being released was taken.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[doc(hidden)]
pub struct Since(u64);

impl Since {
    /// A recursive lock that is still held.
    const HELD_STILL: Self = Self(u64::MAX);

    /// Records the length of the hold. Called after the release, so that waiters do not wait for the reading of the
    /// clock, too.
    #[inline]
    pub fn is_over(self) {
        if self.0 < u64::MAX {
            totals::held_for(clock::coarse().saturating_sub(self.0));
        }
    }
}

/// As [`releasing`](crate::check::hook::releasing), if the call is a usual one; otherwise returns `None`, and nothing
/// was recorded.
#[inline(always)]
#[must_use]
#[doc(hidden)]
pub fn releasing_as_usual(lock: Lock, site: Site) -> Option<Since> {
    let own = Own::enter_if_known()?;
    let place = own.place_of(lock.address())?;
    let mine = own.held[place].get();
    if mine.depth > 0 {
        own.change(place, |mine| mine.depth -= 1);
        return Some(Since::HELD_STILL);
    }
    let entry = mine.entry?;
    let is_alone = !mine.reads();
    if settings::limit(&settings::LONG_HOLD) > 0
        || !own.knows_site(site)
        || is_alone && !Holder::of(lock, entry).is(&own)
    {
        return None;
    }
    own.pop(place);
    if is_alone {
        own.note_release(lock, entry, mine.site, site);
    }
    Some(Since(mine.since))
}
