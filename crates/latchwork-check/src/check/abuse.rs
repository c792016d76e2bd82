//! Misuse of foreign objects that a lock's own records do not show: for interposers, which know the layout of such
//! objects.

use super::board;
use super::field::Here;
use super::found;
use super::layout::{ENDED, GONE, MADE, PLACES};
use super::own::Own;
use super::rule::Rule;
use super::settings;
use crate::atomic::Ordering;
use crate::hook::{Kind, Lock, Site};
use crate::sys::introspect as look;

/// The flags of an object on the board.
fn marks_of(object: Lock) -> Option<u32> {
    let entry = board::board()?.lock(object.address())?;
    Some(entry.what.load(Ordering::Relaxed) & (ENDED | GONE | MADE))
}

/// A call of this name failed with this error because of how it was made. This is reported once for each place, and not
/// if the call has broken another rule of the same object.
pub fn failed(object: Lock, call: &str, error: i32, site: Site) {
    let Some(own) = Own::enter() else { return };
    own.know_site(site);
    if own.broken.replace(0) != object.address() {
        found::failed_call(&own, object, call, look::error_name(error), site);
    }
}

/// Whether an object was never made by its interface, nor used, as far as the checker can know.
#[must_use]
pub fn is_unknown(object: Lock) -> bool {
    let Some(_own) = Own::enter() else {
        return false;
    };
    let is_there = |marks: u32| marks & GONE == 0;
    board::board().is_some_and(|board| {
        // If the board is full, there are threads that do not report their uses.
        let all_tell = (board.header().places.load(Ordering::Relaxed) as usize) < PLACES;
        all_tell && board.has_room(object.address()) && !marks_of(object).is_some_and(is_there)
    }) && !look::is_shared_memory(object.address() as u64)
}

/// Whether an object was destroyed by its interface, and its memory has not been used otherwise since.
#[must_use]
pub fn has_ended(object: Lock) -> bool {
    Own::enter().is_some() && marks_of(object).is_some_and(|marks| marks & ENDED != 0)
}

/// An object is initialised that may be initialised already, and was not destroyed. This is reported if its memory was
/// certainly not freed meanwhile: for variables of modules; and for the heap, if the caller `sees_frees`.
pub fn made_again(object: Lock, sees_frees: bool, site: Site) {
    let Some(own) = Own::enter() else { return };
    let is_made = |marks: u32| marks & (MADE | GONE) == MADE;
    if marks_of(object).is_some_and(is_made)
        && look::keeps_what_it_is(object.address() as u64, sees_frees)
        && own.find(object.address()).is_none()
    {
        own.know_site(site);
        let what = format_args!("initialises again, without having destroyed it,");
        found::misuse(&own, Rule::InitialisedOnce, object, site, None, what);
    }
}

/// An object of so many bytes is about to be destroyed. Threads that still sleep on it are reported. Woken threads do
/// not count, since they no longer sleep, or sleep on their mutex. Neither do waiters of a condition variable that were
/// all notified: they are not blocked, wherever the C library lets them sleep until they return.
pub fn ends_for_sleepers(object: Lock, bytes: usize, site: Site) {
    let Some(own) = Own::enter() else { return };
    let known = board::board().and_then(|board| board.lock(object.address()));
    let were_notified = known.is_some_and(|entry| entry.waiters.load(Ordering::Relaxed) == 0);
    if object.kind == Kind::Condvar && were_notified {
        return;
    }
    let Some(here) = Here::new(&own) else { return };
    let sleeping = here.locals().filter(|who| {
        let waits = who.record.view().wants;
        waits.is_some_and(|wants| wants.lock.address() == object.address())
            && look::sleeps_at(who.thread)
                .is_some_and(|word| (object.address()..object.address() + bytes).contains(&word))
    });
    let count = sleeping.count();
    if count > 0 {
        own.know_site(site);
        let what = format_args!("destroys, while {count} wait for it,");
        found::misuse(&own, Rule::NoDeleteInUse, object, site, None, what);
    }
}

/// A condition variable is about to be notified. Reports a hint if a task waits for it with a mutex that the calling
/// task does not hold.
pub fn notifies_without_mutex(condvar: Lock, site: Site) {
    if !settings::has(settings::HINTS) {
        return;
    }
    let Some(own) = Own::enter() else { return };
    let Some(here) = Here::new(&own) else { return };
    let mutex = here.locals().find_map(|who| {
        let view = who.record.view();
        let wants = view.wants?;
        (wants.lock.address() == condvar.address()).then_some(view.also?)
    });
    if let Some(mutex) = mutex
        && own.find(mutex as usize).is_none()
        && own.unseen.get() == 0
    {
        own.know_site(site);
        let what = format_args!("notifies, without the mutex that its waiters use,");
        found::misuse(&own, Rule::NotifiesWithMutex, condvar, site, None, what);
    }
}
