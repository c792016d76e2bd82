//! The calls of a [`Mutex`](super::Mutex): the protocol's own, with a report to the observer before and after.
//!
//! A protocol that [reports its calls itself](Protocol::CHECKS_ITSELF) is called without reports, as is every protocol
//! where [the observer](crate::hook::ByFeature) is `Nobody`: then only the protocol's calls are left of this file.
//!
//! A lock has no tag here. So the checker does not detect that it was zeroed, copied or moved, and does not know where
//! it was made: a report names the lock by its place in its module, or by that of its first use.
#![allow(unsafe_code)]

use super::protocol::Attempt;
use super::{Interruptible, Protocol};
use crate::hook::{ByFeature, How, Kind, Lock, Mode, Observer, Site};
use crate::time::Deadline;
use core::convert::Infallible;
use core::ptr;

/// Whether this file reports the calls of the protocol.
pub(crate) const fn reports<P: Protocol + ?Sized>() -> bool {
    ByFeature::IS_ON && !P::CHECKS_ITSELF
}

/// The name of the lock for the observer.
pub(crate) fn lock_of<P: Protocol>(lock: &P) -> Lock {
    Lock::new(ptr::from_ref(lock).addr(), Kind::Mutex).with(P::TRAITS)
}

/// Acquires the lock at once, with the result `at_once`, or reports that the calling task will wait, and waits. Reports
/// the result.
fn take<P: Protocol, R>(
    lock: &P,
    timed: bool,
    site: Site,
    at_once: R,
    wait: impl FnOnce(&P) -> Result<R, P::Fault>,
    has_it: impl FnOnce(&R) -> bool,
) -> Result<R, P::Fault> {
    if lock.try_acquire()? {
        ByFeature::taken(lock_of(lock), Mode::Exclusive, How::Locked, site);
        return Ok(at_once);
    }
    // The verdict is not needed: a deadlock is reported, and then happens as it would without the checker.
    let _ = ByFeature::wants(lock_of(lock), Mode::Exclusive, timed, site);
    let ended = wait(lock);
    if ended.as_ref().is_ok_and(has_it) {
        ByFeature::taken(lock_of(lock), Mode::Exclusive, How::Locked, site);
    } else {
        ByFeature::gave_up(lock_of(lock));
    }
    ended
}

#[inline(always)]
#[track_caller]
pub(super) fn acquire<P: Protocol>(lock: &P) -> Result<(), P::Fault> {
    if !reports::<P>() {
        return lock.acquire();
    }
    take(lock, false, Site::caller(), (), P::acquire, |()| true)
}

/// As [`acquire`], for a lock whose call `acquire` has a result: `at_once` if the lock could be taken at once.
#[inline(always)]
#[track_caller]
pub(super) fn acquire_by<P: Protocol<Fault = Infallible>, R>(
    lock: &P,
    at_once: R,
    acquire: impl FnOnce(&P) -> R,
) -> R {
    if !reports::<P>() {
        return acquire(lock);
    }
    let acquire = |lock: &P| Ok(acquire(lock));
    let Ok(taken) = take(lock, false, Site::caller(), at_once, acquire, |_| true);
    taken
}

#[inline(always)]
#[track_caller]
pub(super) fn try_acquire<P: Protocol>(lock: &P) -> Result<bool, P::Fault> {
    let taken = lock.try_acquire()?;
    if reports::<P>() && taken {
        ByFeature::taken(lock_of(lock), Mode::Exclusive, How::Tried, Site::caller());
    }
    Ok(taken)
}

#[inline(always)]
#[track_caller]
pub(super) fn acquire_until<P: Protocol>(lock: &P, deadline: Deadline) -> Result<bool, P::Fault> {
    if !reports::<P>() {
        return lock.acquire_until(deadline);
    }
    let wait = |lock: &P| lock.acquire_until(deadline);
    take(lock, true, Site::caller(), true, wait, |taken| *taken)
}

#[inline(always)]
#[track_caller]
pub(super) fn acquire_interruptible<P: Interruptible>(
    lock: &P,
    deadline: Option<Deadline>,
) -> Attempt<P::Fault> {
    if !reports::<P>() {
        return lock.acquire_interruptible(deadline);
    }
    let wait = |lock: &P| lock.acquire_interruptible(deadline);
    take(lock, true, Site::caller(), Ok(()), wait, Result::is_ok)
}

/// Reports that the lock of a guard is about to be released.
#[inline(always)]
pub(super) fn releasing<P: Protocol>(lock: &P) {
    if reports::<P>() {
        // The verdict is not needed: the guard holds the lock, whatever the observer knows of it.
        let _ = ByFeature::releasing(lock_of(lock), Site::UNKNOWN);
    }
}

/// # Safety
/// The calling task holds the lock.
#[inline(always)]
pub(super) unsafe fn release<P: Protocol>(lock: &P) {
    releasing(lock);
    // SAFETY: the caller holds the lock, by this function's contract.
    unsafe { lock.release_of_guard() }
}

/// Reports that the lock is destroyed, together with its mutex.
#[inline(always)]
pub(super) fn destroyed<P>(lock: &P) {
    let lock = Lock::new(ptr::from_ref(lock).addr(), Kind::Mutex);
    ByFeature::destroyed(lock, Site::UNKNOWN);
}
