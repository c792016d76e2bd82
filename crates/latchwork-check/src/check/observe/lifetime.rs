//! Locks begin and end: they are initialised, used for the first time, named, destroyed, and their memory is freed.

use super::lookup::{is_known, join_region};
use crate::atomic::{AtomicU64, Ordering};
use crate::check::detect::visible_tasks::VisibleTasks;
use crate::check::record::holder::OVERWRITTEN;
use crate::check::record::layout::{Entry, GONE};
use crate::check::record::own::Own;
use crate::check::record::rule::Rule;
use crate::check::record::tag::Tag;
use crate::check::record::{board, known};
use crate::check::report::findings::{self, Deed};
use crate::hook::record::unpack;
use crate::hook::{Lock, Site};
use crate::sys::introspect;
use core::ops::Range;

pub(crate) fn initialised(own: &Own, lock: Lock, name: Option<&str>, site: Site) {
    own.leave_to_parent(lock.address());
    if is_known(lock) {
        refuse_if_held(own, lock, site, "initialises", " again while it is held");
    }
    known::made(own, lock, name, site);
}

pub(crate) fn introduced(own: &Own, lock: Lock, tag: &Tag) {
    let Some(board) = board::board() else { return };
    join_region(lock);
    // If a lock that is held was at the address before, it was overwritten. No task can hold the new lock while its
    // tag is not settled; that is checked under the board's lock.
    let held = board::alone(|_| {
        let entry = board.lock(lock.address())?;
        let is_old = !tag.is_settled() && entry.what.load(Ordering::Relaxed) & GONE == 0;
        let other = VisibleTasks::holder(own, lock);
        (is_old && (other.is_some() || own.find(lock.address()).is_some())).then_some(other)
    });
    if let Some(other) = held {
        let rule = Rule::NotRemadeWhileHeld;
        let what = Deed::around(
            format_args!("initialises"),
            format_args!(" again while it is held"),
        );
        let site = known::enter_place(tag);
        findings::misuse(own, rule, lock, site, other, what);
    }
    known::enter_tagged(board, lock, tag);
}

pub(crate) fn destroyed(own: &Own, lock: Lock, site: Site) {
    let Some(entry) = board::board().and_then(|board| board.lock(lock.address())) else {
        return;
    };
    own.know_site(site);
    own.leave_to_parent(lock.address());
    if let Some((place, _)) = own.find(lock.address()) {
        refuse_if_held(own, lock, site, "destroys", ", which it holds itself");
        own.pop(place);
    } else {
        refuse_if_held(own, lock, site, "destroys", " while another task holds it");
    }
    known::ended(entry);
}

fn refuse_if_held(own: &Own, lock: Lock, site: Site, before: &str, after: &str) {
    if !lock.kind.has_owner() {
        return;
    }
    join_region(lock);
    let other = VisibleTasks::holder(own, lock);
    if other.is_some() || own.find(lock.address()).is_some() {
        let rule = Rule::NotRemadeWhileHeld;
        let (before, after) = (format_args!("{before}"), format_args!("{after}"));
        findings::misuse(own, rule, lock, site, other, Deed::around(before, after));
    }
}

pub(crate) fn named(own: &Own, lock: Lock, name: &str, site: Site) {
    let known = board::board().and_then(|board| board.lock(lock.address()));
    let is_new = known.is_none_or(|entry| {
        entry.what.load(Ordering::Relaxed) & GONE != 0 || entry.name.load(Ordering::Relaxed) == 0
    });
    if is_new && own.find(lock.address()).is_none() {
        known::made(own, lock, Some(name), site);
    }
}

pub(crate) fn ended(_own: &Own, lock: Lock) {
    if let Some(entry) = board::board().and_then(|board| board.lock(lock.address())) {
        known::gone(entry);
    }
}

/// Memory that may contain locks is about to be freed, or its mapping to end.
pub(crate) fn freed(own: &Own, range: Range<usize>, site: Site) {
    for entry in known::in_range(range) {
        if !known::forget_end(entry) {
            refuse_to_free_held(own, entry, site, || true);
            known::gone(entry);
        }
    }
}

/// The memory of the lock of this generation is free by now, and perhaps in use again: then there may be another lock at
/// the address, which another task may hold. As that is entered under the board's lock, what was read of the entry
/// before it had this generation there is of the lock that was freed.
pub(crate) fn freed_meanwhile(own: &Own, address: usize, generation: u32, site: Site) {
    let Some(entry) = board::board().and_then(|board| board.lock(address)) else {
        return;
    };
    let is_it = || {
        entry.generation.load(Ordering::Relaxed) == generation
            && entry.address.load(Ordering::Relaxed) == address as u64
    };
    let is_still_it = || board::alone(|_| is_it());
    if !is_still_it()
        || known::forget_end(entry)
        || !refuse_to_free_held(own, entry, site, is_still_it)
    {
        return;
    }
    board::alone(|_| {
        if is_it() {
            known::gone(entry);
        }
    });
}

/// Reports the free of a lock that is held, if what was read of the lock is `still` valid; returns whether it is.
fn refuse_to_free_held(own: &Own, entry: &Entry, site: Site, still: impl FnOnce() -> bool) -> bool {
    let what = entry.what.load(Ordering::Relaxed);
    let address = entry.address.load(Ordering::Relaxed);
    let (lock, _) = unpack(address, what);
    let other = VisibleTasks::holder(own, lock);
    let mine = own.find(lock.address());
    if !still() {
        return false;
    }
    // A lock in memory that is shared with the parent stays there, and the parent's thread holds it.
    let is_parents = mine.is_some_and(|(_, mine)| mine.is_from_before_fork())
        && introspect::is_shared_memory(address);
    if other.is_some() || mine.is_some() && !is_parents {
        own.know_site(site);
        let before = format_args!("frees memory that contains");
        let what = Deed::around(before, format_args!(" while it is held"));
        findings::misuse(own, Rule::NoFreeHolding, lock, site, other, what);
    }
    if let Some((place, _)) = mine {
        own.pop(place);
    }
    true
}

/// A foreign lock may be reinitialised in place without a call: a `std::mutex` on the stack has no destructor, and its
/// constructor is a few stores of zero. An interposer leaves a mark in the lock's memory, in a field that the lock does
/// not use, and detects that the mark is gone.
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
        let what = Deed::around(
            format_args!("initialises"),
            format_args!(" again while it holds it"),
        );
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
