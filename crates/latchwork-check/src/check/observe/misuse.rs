//! Misuse that the object itself, or the caller, has detected; memory that is used as a lock and is none; and misuse of
//! foreign objects that a lock's own records do not show: for interposers, which know the layout of such objects.

use super::lookup::join_region;
use crate::atomic::Ordering;
use crate::check::detect::visible_tasks::{TaskRef, VisibleTasks};
use crate::check::record::layout::{ENDED, GONE, MADE, PLACES};
use crate::check::record::own::Own;
use crate::check::record::rule::Rule;
use crate::check::record::{board, known};
use crate::check::report::findings::{self, Deed};
use crate::hook::record::unpack;
use crate::hook::{Kind, Lock, Misuse, Site};
use crate::sys::introspect;

pub(crate) fn not_a_lock(own: &Own, lock: Lock, rule: Rule, why: &str, site: Site) {
    own.know_site(site);
    let other = VisibleTasks::holder(own, lock);
    let rule = if other.is_some() || own.find(lock.address()).is_some() {
        Rule::NotRemadeWhileHeld
    } else {
        rule
    };
    findings::misuse(own, rule, lock, site, other, format_args!("{why}"));
}

pub(crate) fn misused(own: &Own, lock: Lock, misuse: Misuse, site: Site) {
    own.know_site(site);
    join_region(lock);
    let rule = match misuse {
        Misuse::NotOwner { owned: true } => Rule::OwnerUnlocks,
        Misuse::NotOwner { owned: false } => Rule::NoDoubleUnlock,
        Misuse::AfterEnd => Rule::InitialisedByInterface,
        Misuse::DeleteOwned | Misuse::DeleteAwaited { .. } => Rule::NoDeleteInUse,
        Misuse::AboveCeiling { .. } => Rule::WithinCeiling,
    };
    let is_owned = matches!(
        misuse,
        Misuse::NotOwner { owned: true } | Misuse::DeleteOwned
    );
    let other = is_owned.then(|| VisibleTasks::holder(own, lock)).flatten();
    let say = |what: Deed<'_>| findings::misuse(own, rule, lock, site, other, what);
    match misuse {
        Misuse::NotOwner { owned: true } => {
            say(format_args!("releases an object that another task owns:").into());
        }
        Misuse::NotOwner { owned: false } => {
            say(format_args!("releases an object that no task owns:").into());
        }
        Misuse::AfterEnd => say(format_args!("uses a destroyed").into()),
        Misuse::DeleteOwned => say(format_args!("deletes an object that a task owns:").into()),
        Misuse::DeleteAwaited { waiting } => {
            let after = format_args!(" while {waiting} task(s) wait for it");
            say(Deed::around(format_args!("deletes"), after));
        }
        Misuse::AboveCeiling { own, ceiling } => {
            let after =
                format_args!(" although the task's priority {own} is above the ceiling {ceiling}");
            say(Deed::around(format_args!("uses"), after));
        }
    }
}

pub(crate) fn failed(own: &Own, object: Lock, call: &str, error: i32, site: Site) {
    own.know_site(site);
    if own.broken.replace(0) != object.address() {
        findings::failed_call(own, object, call, introspect::error_name(error), site);
    }
}

pub(crate) fn is_unknown(_own: &Own, object: Lock) -> bool {
    board::board().is_some_and(|board| {
        // If the board is full, there are threads that do not report their uses.
        let all_tell = (board.header().places.load(Ordering::Relaxed) as usize) < PLACES;
        let known = board.lock(object.address());
        let is_there = known.is_some_and(|entry| entry.what.load(Ordering::Relaxed) & GONE == 0);
        all_tell && board.has_room(object.address()) && !is_there
    }) && !introspect::is_shared_memory(object.address() as u64)
}

pub(crate) fn has_ended(_own: &Own, object: Lock) -> bool {
    let entry = board::board().and_then(|board| board.lock(object.address()));
    entry.is_some_and(|entry| {
        // Nearly all are not.
        entry.what.load(Ordering::Relaxed) & ENDED != 0 && known::is_ended(entry)
    })
}

pub(crate) fn is_made(_own: &Own, object: Lock) -> bool {
    let entry = board::board().and_then(|board| board.lock(object.address()));
    entry.is_some_and(|entry| {
        let what = entry.what.load(Ordering::Relaxed);
        let (made, _) = unpack(object.address() as u64, what);
        what & (MADE | GONE) == MADE && made.traits.contains(object.traits)
    })
}

pub(crate) fn initialised_again(own: &Own, object: Lock, sees_frees: bool, site: Site) {
    if is_made(own, object)
        && introspect::keeps_what_it_is(object.address() as u64, sees_frees)
        && own.find(object.address()).is_none()
    {
        own.know_site(site);
        let after = format_args!(" again, without having destroyed it");
        let what = Deed::around(format_args!("initialises"), after);
        findings::misuse(own, Rule::InitialisedOnce, object, site, None, what);
    }
}

pub(crate) fn ends_for_sleepers(own: &Own, object: Lock, bytes: usize, most: usize, site: Site) {
    let known = board::board().and_then(|board| board.lock(object.address()));
    let were_notified = known.is_some_and(|entry| entry.waiters.load(Ordering::Relaxed) == 0);
    if object.kind == Kind::Condvar && were_notified {
        return;
    }
    let sleeping = TaskRef::all().filter(|who| {
        let waits = who.record.view().wants;
        waits.is_some_and(|wants| wants.lock.address() == object.address())
            && introspect::sleeps_at(who.thread)
                .is_some_and(|word| (object.address()..object.address() + bytes).contains(&word))
    });
    let count = sleeping.take(most).count();
    if count > 0 {
        own.know_site(site);
        let after = format_args!(" while {count} task(s) wait for it");
        let what = Deed::around(format_args!("destroys"), after);
        findings::misuse(own, Rule::NoDeleteInUse, object, site, None, what);
    }
}

/// A condition variable is about to be notified, and hints are wanted. Reports one if a task waits for it with a mutex
/// that the calling task does not hold.
pub(crate) fn notifies_without_mutex(own: &Own, condvar: Lock, site: Site) {
    let mutex = TaskRef::all().find_map(|who| {
        let view = who.record.view();
        let wants = view.wants?;
        (wants.lock.address() == condvar.address()).then_some(view.also?)
    });
    if let Some(mutex) = mutex
        && own.find(mutex as usize).is_none()
        && own.unrecorded.get() == 0
    {
        own.know_site(site);
        let after = format_args!(" without holding the mutex that its waiters use");
        let what = Deed::around(format_args!("notifies"), after);
        findings::misuse(own, Rule::NotifiesWithMutex, condvar, site, None, what);
    }
}
