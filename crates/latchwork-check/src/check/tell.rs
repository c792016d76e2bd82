//! What the checker does with what it is told.

use super::beside::Holder;
use super::circle;
use super::condition;
use super::field::Here;
use super::known;
use super::layout::GONE;
use super::lone;
use super::order;
use super::own::{Mine, Own};
use super::rule::Rule;
use super::tag::Tag;
use super::waits::Wait;
use super::{board, ended, found, quick, settings, totals};
use crate::atomic::Ordering;
use crate::hook::record::{TIMED, TRIED, pack};
use crate::hook::{How, Kind, Lock, Misuse, Mode, Site, Traits, Verdict};
use crate::region;
use crate::sys::{clock, introspect as look};
use crate::task::Me;
use core::ops::Range;

/// A lock was made at this address, by the interface.
pub fn initialised(lock: Lock, name: Option<&str>, site: Site) {
    let Some(own) = Own::enter() else { return };
    own.leave_to_parent(lock.address());
    if is_known(lock) {
        refuse_if_held(&own, lock, site, "initialises again a held");
    }
    known::made(&own, lock, name, site);
}

/// A lock that says of itself what it is called is used for the first time.
pub(super) fn introduced(lock: Lock, tag: &Tag) {
    let Some(own) = Own::enter() else {
        tag.settle();
        return;
    };
    let Some(board) = board::board() else { return };
    join_region(lock);
    let here = Here::new(&own);
    // What was there before it, and is held, was overwritten. Nobody can have taken the new one while its tag is
    // not settled, which is looked at under the lock.
    let held = board::alone(|_| {
        let entry = board.lock(lock.address())?;
        let is_old = !tag.is_settled() && entry.what.load(Ordering::Relaxed) & GONE == 0;
        let other = here.as_ref().and_then(|here| here.holder(&own, lock));
        (is_old && (other.is_some() || own.find(lock.address()).is_some())).then_some(other)
    });
    if let Some(other) = held.flatten() {
        let rule = Rule::NotRemadeWhileHeld;
        let what = format_args!("uses a lock that was initialised over a held one:");
        let site = known::enter_place(tag);
        found::misuse(&own, rule, lock, site, other, what);
    }
    known::enter_tagged(board, lock, tag);
}

/// A lock is about to be destroyed, by the interface.
pub(super) fn destroyed(lock: Lock, site: Site) {
    let Some(own) = Own::enter() else { return };
    let Some(entry) = board::board().and_then(|board| board.lock(lock.address())) else {
        return;
    };
    own.know_site(site);
    own.leave_to_parent(lock.address());
    if let Some((place, _)) = own.find(lock.address()) {
        refuse_if_held(&own, lock, site, "destroys a lock that it holds:");
        own.pop(place);
    } else {
        refuse_if_held(&own, lock, site, "destroys a held");
    }
    known::ended(entry);
}

fn is_known(lock: Lock) -> bool {
    board::board().is_some_and(|board| board.lock(lock.address()).is_some())
}

fn refuse_if_held(own: &Own, lock: Lock, site: Site, what: &str) {
    if !lock.kind.has_owner() {
        return;
    }
    join_region(lock);
    let here = Here::new(own);
    let other = here.as_ref().and_then(|here| here.holder(own, lock));
    if other.is_some() || own.find(lock.address()).is_some() {
        let rule = Rule::NotRemadeWhileHeld;
        found::misuse(own, rule, lock, site, other, format_args!("{what}"));
    }
}

/// What is at this address is no lock that the interface made: its memory was zeroed, overwritten or copied.
/// `why` is the end of a sentence that begins with the task.
pub fn not_a_lock(lock: Lock, rule: Rule, why: &str, site: Site) {
    let Some(own) = Own::enter() else { return };
    own.know_site(site);
    let here = Here::new(&own);
    let other = here.as_ref().and_then(|here| here.holder(&own, lock));
    let rule = if other.is_some() || own.find(lock.address()).is_some() {
        Rule::NotRemadeWhileHeld
    } else {
        rule
    };
    found::misuse(&own, rule, lock, site, other, format_args!("{why}"));
}

/// The calling task cannot have a lock at once, and is about to wait for it: for at most some time, if
/// `timed`.
pub(super) fn wants(lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict {
    let Some(own) = Own::enter() else {
        return Verdict::Go;
    };
    join_region(lock);
    ended::is_wanted(lock);
    let entry = known::know(&own, lock, site);
    let flag = if timed { TIMED } else { 0 };
    if lock.kind.has_owner()
        && !lock.traits.contains(Traits::RECURSIVE)
        && let Some((_, mine)) = own.find(lock.address())
        && (mode == Mode::Exclusive || mine.lock().1 == Mode::Exclusive)
    {
        own.begin_wait(lock, pack(lock, mode) | flag, site);
        found::recursion(&own, lock, mode, timed, &mine, site);
        return if timed {
            Verdict::Go
        } else {
            Verdict::Deadlock
        };
    }
    own.begin_wait(lock, pack(lock, mode) | flag, site);
    let Some(here) = Here::new(&own).map(|here| here.wanting(lock)) else {
        return Verdict::Go;
    };
    let Some(me) = here.me(&own) else {
        return Verdict::Go;
    };
    let look = circle::look(&&here, me);
    if let Some(other) = look.blocker {
        let name = u64::from(other.process) << 32 | u64::from(other.thread);
        own.publish(|record| record.wanted.waits_for.store(name, Ordering::Relaxed));
    }
    own.wait
        .set(Some(Wait::begin(&own, lock, mode, site, look.blocker)));
    let wrong_order = order::note(&own, lock, entry, mode, How::Locked, site);
    match look.circle {
        Some(circle) => {
            found::deadlock(&here, &circle);
            if circle.ends() {
                Verdict::Go
            } else {
                Verdict::Deadlock
            }
        }
        None => {
            // Who closes the circle at this very moment says so itself.
            if let Some(circle) = wrong_order
                && circle::look(&&here, me).circle.is_none()
            {
                found::wrong_order(&own, &circle);
            }
            Verdict::Go
        }
    }
}

/// Whether the calling task holds a lock.
pub(super) fn holds(lock: Lock) -> bool {
    Own::enter().is_some_and(|own| own.find(lock.address()).is_some())
}

/// When the wait that is under way will deserve a word, in nanoseconds on CLOCK_MONOTONIC: a call that can is
/// to call [`still_waits`] then, and to go on waiting.
#[must_use]
pub fn patience() -> Option<u64> {
    Own::enter()?.wait.get()?.next()
}

/// The wait that is under way has lasted until [`patience`].
pub fn still_waits() {
    if let Some(own) = Own::enter()
        && let Some(mut wait) = own.wait.get()
    {
        wait.look(&own);
        own.wait.set(Some(wait));
    }
}

/// The calling task has taken a lock.
#[inline(never)]
pub(super) fn taken(lock: Lock, mode: Mode, how: How, site: Site) {
    if !quick::taken_as_usual(lock, mode, how, site) {
        taken_slowly(lock, mode, how, site);
    }
}

/// The long way, which is the whole of it.
#[inline(never)]
pub(super) fn taken_slowly(lock: Lock, mode: Mode, how: How, site: Site) {
    let Some(own) = Own::enter() else { return };
    if own.wanted.get() == lock.address() {
        end_wait(&own);
    } else {
        join_region(lock);
    }
    let entry = known::know(&own, lock, site);
    let again = lock.traits.contains(Traits::RECURSIVE) || mode == Mode::Shared;
    if again && let Some((place, _)) = own.find(lock.address()) {
        return own.change(place, |mine| mine.depth += 1);
    }
    if let Some(circle) = order::note(&own, lock, entry, mode, how, site) {
        found::wrong_order(&own, &circle);
    }
    let node = entry.map_or(0, |entry| entry.node.load(Ordering::Relaxed));
    let mut mine = Mine::new(lock, mode, site, node, entry);
    if how == How::Tried {
        mine.what |= TRIED;
    }
    own.push(mine);
    if let Some(entry) = entry
        && mode == Mode::Exclusive
    {
        let holder = Holder::of(lock, entry);
        let is_first = holder.lets_in(&own);
        holder.set(&own);
        if !is_first {
            two_holders(&own, lock, site);
        }
    }
}

/// The one who held it last has not released it, or has gone.
#[cold]
fn two_holders(own: &Own, lock: Lock, site: Site) {
    let here = Here::new(own);
    let other = here.as_ref().and_then(|here| here.holder(own, lock));
    // The death of a robust lock's owner is its successor's to see.
    if other.is_some() && !lock.traits.contains(Traits::ROBUST) {
        let what = format_args!("acquired a lock that another task holds:");
        found::misuse(own, Rule::OneHolder, lock, site, other, what);
    }
}

/// The wait that [`wants`] began is over without the lock.
pub(super) fn gave_up(_lock: Lock) {
    if let Some(own) = Own::enter() {
        end_wait(&own);
    }
}

fn end_wait(own: &Own) {
    if let Some(mut wait) = own.wait.take() {
        totals::waited_for(wait.ends(own));
    }
    own.end_wait();
}

/// As [`quick::releasing_as_usual`], in one place for all locks of a program that tell of themselves.
#[inline(never)]
pub(super) fn releasing_as_usual(lock: Lock, site: Site) -> Option<quick::Since> {
    quick::releasing_as_usual(lock, site)
}

/// The calling task is about to release a lock.
#[inline(never)]
pub(super) fn releasing(lock: Lock, site: Site) -> Verdict {
    match quick::releasing_as_usual(lock, site) {
        Some(since) => since.is_over(),
        None => return releasing_slowly(lock, site),
    }
    Verdict::Go
}

/// As for [`taken_slowly`].
#[inline(never)]
pub(super) fn releasing_slowly(lock: Lock, site: Site) -> Verdict {
    let Some(own) = Own::enter() else {
        return Verdict::Go;
    };
    match own.find(lock.address()) {
        Some((place, mine)) if mine.depth > 0 => own.change(place, |mine| mine.depth -= 1),
        Some((place, mine)) => {
            own.know_site(site);
            own.pop(place);
            was_held(&own, &mine, site);
            if !mine.reads() {
                forget_holder(&own, lock, &mine, site);
            }
        }
        None => return not_mine(&own, lock, site),
    }
    Verdict::Go
}

/// For how long, and whether that was too long.
fn was_held(own: &Own, mine: &Mine, site: Site) {
    let nanoseconds = clock::coarse().saturating_sub(mine.since);
    totals::held_for(nanoseconds);
    let limit = settings::long_hold();
    if limit > 0 && nanoseconds > limit {
        found::long_hold(own, mine, site, nanoseconds);
    }
}

/// Nobody holds it any more; who did, and where it is released, is kept.
#[inline]
fn forget_holder(own: &Own, lock: Lock, mine: &Mine, site: Site) {
    if let Some(entry) = mine.entry
        && Holder::of(lock, entry).is(own)
    {
        own.note_release(lock, entry, mine.site, site);
    }
}

/// The calling task is about to release what it owns, by what the object itself says. What it has had before
/// anybody listened is not known here.
pub(super) fn releases(lock: Lock, site: Site) {
    let is_told = Own::enter().is_some_and(|own| own.find(lock.address()).is_some());
    if is_told {
        let _ = releasing(lock, site);
    }
}

/// There is a lock at this address, of which nobody may have told yet. For one that is free: of others it is not known
/// who has taken them.
pub fn seen(lock: Lock, site: Site) {
    if let Some(own) = Own::enter() {
        known::know(&own, lock, site);
    }
}

/// There is an object of this name.
pub(super) fn named(lock: Lock, name: &str, site: Site) {
    let Some(own) = Own::enter() else { return };
    let known = board::board().and_then(|board| board.lock(lock.address()));
    let is_new = known.is_none_or(|entry| {
        entry.what.load(Ordering::Relaxed) & GONE != 0 || entry.name.load(Ordering::Relaxed) == 0
    });
    if is_new && own.find(lock.address()).is_none() {
        known::made(&own, lock, Some(name), site);
    }
}

/// An object was deleted, which nobody owned.
pub(super) fn ended(lock: Lock) {
    let Some(_own) = Own::enter() else { return };
    if let Some(entry) = board::board().and_then(|board| board.lock(lock.address())) {
        known::gone(entry);
    }
}

/// A call was refused, or should have been.
pub(super) fn misused(lock: Lock, misuse: Misuse, site: Site) {
    let Some(own) = Own::enter() else { return };
    own.know_site(site);
    join_region(lock);
    let here = Here::new(&own);
    let holder = || here.as_ref().and_then(|here| here.holder(&own, lock));
    let say = |rule, other, what: core::fmt::Arguments<'_>| {
        found::misuse(&own, rule, lock, site, other, what);
    };
    match misuse {
        Misuse::NotOwner { owned: true } => say(
            Rule::OwnerUnlocks,
            holder(),
            format_args!("releases what another task owns:"),
        ),
        Misuse::NotOwner { owned: false } => say(
            Rule::NoDoubleUnlock,
            None,
            format_args!("releases what nobody owns:"),
        ),
        Misuse::AfterEnd => say(
            Rule::InitialisedByInterface,
            None,
            format_args!("uses a destroyed"),
        ),
        Misuse::DeleteOwned => say(
            Rule::NoDeleteInUse,
            holder(),
            format_args!("deletes an owned"),
        ),
        Misuse::DeleteAwaited { waiting } => say(
            Rule::NoDeleteInUse,
            None,
            format_args!("deletes, while {waiting} wait for it,"),
        ),
        Misuse::AboveCeiling { own, ceiling } => say(
            Rule::WithinCeiling,
            None,
            format_args!("has priority {own}, and uses what has ceiling {ceiling}:"),
        ),
    }
}

#[cold]
fn not_mine(own: &Own, lock: Lock, site: Site) -> Verdict {
    own.know_site(site);
    // One that was taken before anybody looked, or where no room was left.
    if own.unseen.get() > 0 {
        own.unseen.set(own.unseen.get() - 1);
        return Verdict::Go;
    }
    join_region(lock);
    if lock.has_tag() {
        known::know(own, lock, site);
    }
    if !is_known(lock) || !lock.kind.has_owner() {
        return Verdict::Go;
    }
    let here = Here::new(own);
    match here.as_ref().and_then(|here| here.holder(own, lock)) {
        Some(other) => {
            let what = format_args!("unlocks what {} holds:", other.thread);
            found::misuse(own, Rule::OwnerUnlocks, lock, site, Some(other), what);
            Verdict::NotOwner
        }
        None => {
            let what = format_args!("unlocks what nobody holds:");
            found::misuse(own, Rule::NoDoubleUnlock, lock, site, None, what);
            Verdict::NotHeld
        }
    }
}

/// The calling task is about to release a mutex and wait for a condition.
pub(super) fn condvar_begins(condvar: Lock, mutex: Lock, timed: bool, site: Site) -> Verdict {
    let Some(own) = Own::enter() else {
        return Verdict::Go;
    };
    let entry = known::know(&own, condvar, site);
    if let Some(entry) = entry
        && !condition::begins(&own, entry, mutex)
        && !condvar.is_shared()
    {
        let what = format_args!("waits with a different mutex than the other waiters for");
        found::misuse(&own, Rule::OneMutexPerCondition, condvar, site, None, what);
    }
    let verdict = match own.find(mutex.address()) {
        // A recursive one is released once, and held still.
        Some((place, mine)) if mine.depth > 0 => {
            own.change(place, |mine| mine.depth -= 1);
            Verdict::Go
        }
        Some((place, mine)) => {
            own.pop(place);
            was_held(&own, &mine, site);
            forget_holder(&own, mutex, &mine, site);
            Verdict::Go
        }
        None if own.unseen.get() > 0 || !is_known(mutex) => Verdict::Go,
        None => {
            let here = Here::new(&own);
            let other = here.as_ref().and_then(|here| here.holder(&own, mutex));
            let what = format_args!("waits for a condition variable without holding");
            found::misuse(&own, Rule::WaitsWithMutex, mutex, site, other, what);
            Verdict::NotHeld
        }
    };
    let timed = if timed { TIMED } else { 0 };
    own.begin_wait_with(condvar, pack(condvar, Mode::Exclusive) | timed, site, mutex);
    verdict
}

/// That wait is over, and the mutex taken again, unless it could not be.
pub(super) fn condvar_ends(condvar: Lock, mutex: Lock, has_mutex: bool, site: Site) {
    if let Some(own) = Own::enter() {
        if let Some(entry) = board::board().and_then(|board| board.lock(condvar.address())) {
            condition::ends(&own, entry);
        }
        own.end_wait();
    }
    if has_mutex {
        taken(mutex, Mode::Exclusive, How::Again, site);
    }
}

/// A condition variable is about to be notified: one of its waiters, or all. (By whomever: a signal handler may.)
pub(super) fn condvar_notifies(condvar: Lock, all: bool) {
    let entry = board::made().and_then(|board| board.lock(condvar.address()));
    if let Some(entry) = entry {
        condition::notified(entry, all);
    }
}

/// As [`condvar_ends`], of the wait that the task is known to be in.
pub(super) fn condvar_wait_ends(mutex: Lock, has_mutex: bool) {
    let wait = Own::enter().map(|own| {
        let site = own.record().wanted.site.load(Ordering::Relaxed);
        // SAFETY: the task's own record, in which only this process's sites are written.
        let site = unsafe { Site::of_own_record(site) };
        (own.wanted.get(), site)
    });
    let (condvar, site) = wait.unwrap_or((0, Site::UNKNOWN));
    condvar_ends(Lock::new(condvar, Kind::Condvar), mutex, has_mutex, site);
}

/// The calling task is about to sleep for an object that has no owner.
pub(super) fn waits(object: Lock, timed: bool, site: Site) {
    if let Some(own) = Own::enter() {
        known::know(&own, object, site);
        let timed = if timed { TIMED } else { 0 };
        own.begin_wait(object, pack(object, Mode::Exclusive) | timed, site);
        if timed == 0 && lone::is_for_nobody(object) {
            found::lone_wait(&own, object, site);
        }
    }
}

/// That sleep is over.
pub(super) fn has_waited(_object: Lock) {
    if let Some(own) = Own::enter() {
        own.end_wait();
    }
}

/// The calling thread is about to end, now, with all that it holds.
pub fn task_ends(site: Site) {
    let Some(own) = Own::enter_if_known() else {
        return;
    };
    for mine in own.locks() {
        ended::ends_with(&own, &mine, site);
    }
    Own::end(own);
}

/// Memory is about to be given back, or its mapping to end.
#[inline]
pub fn freed(range: Range<usize>, site: Site) {
    if known::may_be_in(&range) {
        freed_with_locks(range, site);
    }
}

#[cold]
fn freed_with_locks(range: Range<usize>, site: Site) {
    let Some(own) = Own::enter() else { return };
    for entry in known::in_range(range) {
        if known::forget_end(entry) {
            continue;
        }
        let what = entry.what.load(Ordering::Relaxed);
        let address = entry.address.load(Ordering::Relaxed);
        let (lock, _) = crate::hook::record::unpack(address, what);
        let here = Here::new(&own);
        let other = here.as_ref().and_then(|here| here.holder(&own, lock));
        let mine = own.find(lock.address());
        // What the parent's thread holds in memory that it shares stays there.
        let is_parents = mine.is_some_and(|(_, mine)| mine.is_from_before_fork())
            && look::is_shared_memory(address);
        if other.is_some() || mine.is_some() && !is_parents {
            own.know_site(site);
            let what = format_args!("frees memory that contains a held");
            found::misuse(&own, Rule::NoFreeHolding, lock, site, other, what);
        }
        if let Some((place, _)) = mine {
            own.pop(place);
        }
        known::gone(entry);
    }
}

/// Whether the calling thread is watched: it has told something, or begun by [`forked`]. An interposer that
/// goes by this has nothing set up within an allocator's lock.
#[inline]
#[must_use]
pub fn knows_this_thread() -> bool {
    Me::current_or_none().checked() != 0
}

/// For the child of a fork, as its first step: it keeps the forking thread's stack, and begins a board of
/// its own. (Without this call that happens at its first lock.)
pub fn forked() {
    drop(Own::enter());
}

/// A lock that the calling task holds was really taken elsewhere: by who called a wrapper.
pub fn re_site(lock: Lock, site: Site) {
    if let Some(own) = Own::enter()
        && let Some((place, _)) = own.find(lock.address())
    {
        own.know_site(site);
        own.change(place, |mine| mine.site = site);
    }
}

/// Who uses a lock of a region becomes a task of it, so that others see what it holds.
#[inline]
fn join_region(lock: Lock) {
    if lock.is_shared() {
        region::join_at(lock.address());
    }
}
