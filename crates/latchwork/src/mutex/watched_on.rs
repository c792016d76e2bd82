//! What the calls of a [`Mutex`](super::Mutex) are made of, where the feature `check` is on: the protocol's own,
//! with a word to the checker before and after, unless it says that itself.
//!
//! A lock has no tag here: that it was zeroed, copied or moved is not seen, and where it was made neither: it is
//! known by its place in its module, or by that of its first use.
#![allow(unsafe_code)]

use super::{Interruptible, Protocol, Unfinished};
use crate::check::hook::{self, How, Kind, Lock, Mode, Site};
use crate::time::Deadline;
use core::ptr;

/// What the checker calls it.
pub(crate) fn lock_of<P: Protocol>(lock: &P) -> Lock {
    Lock::new(ptr::from_ref(lock).addr(), Kind::Mutex).with(P::TRAITS)
}

/// Takes it at once, or says that it will wait, and does.
fn take<P: Protocol, R>(
    lock: &P,
    timed: bool,
    site: Site,
    at_once: R,
    wait: impl FnOnce() -> Result<R, P::Fault>,
    has_it: impl FnOnce(&R) -> bool,
) -> Result<R, P::Fault> {
    if lock.try_acquire()? {
        hook::taken(lock_of(lock), Mode::Exclusive, How::Locked, site);
        return Ok(at_once);
    }
    // After its report a deadlock is what the program would have.
    let _ = hook::wants(lock_of(lock), Mode::Exclusive, timed, site);
    let ended = wait();
    if ended.as_ref().is_ok_and(has_it) {
        hook::taken(lock_of(lock), Mode::Exclusive, How::Locked, site);
    } else {
        hook::gave_up(lock_of(lock));
    }
    ended
}

#[track_caller]
pub(super) fn acquire<P: Protocol>(lock: &P) -> Result<(), P::Fault> {
    if P::CHECKS_ITSELF {
        return lock.acquire();
    }
    take(
        lock,
        false,
        Site::caller(),
        (),
        || lock.acquire(),
        |()| true,
    )
}

#[track_caller]
pub(super) fn try_acquire<P: Protocol>(lock: &P) -> Result<bool, P::Fault> {
    let taken = lock.try_acquire()?;
    if taken && !P::CHECKS_ITSELF {
        hook::taken(lock_of(lock), Mode::Exclusive, How::Tried, Site::caller());
    }
    Ok(taken)
}

#[track_caller]
pub(super) fn acquire_until<P: Protocol>(lock: &P, deadline: Deadline) -> Result<bool, P::Fault> {
    if P::CHECKS_ITSELF {
        return lock.acquire_until(deadline);
    }
    let wait = || lock.acquire_until(deadline);
    take(lock, true, Site::caller(), true, wait, |taken| *taken)
}

#[track_caller]
pub(super) fn acquire_interruptible<P: Interruptible>(
    lock: &P,
    deadline: Option<Deadline>,
) -> Result<Result<(), Unfinished>, P::Fault> {
    if P::CHECKS_ITSELF {
        return lock.acquire_interruptible(deadline);
    }
    let wait = || lock.acquire_interruptible(deadline);
    take(lock, true, Site::caller(), Ok(()), wait, Result::is_ok)
}

/// # Safety
/// The calling task holds it.
pub(super) unsafe fn release<P: Protocol>(lock: &P) {
    if !P::CHECKS_ITSELF {
        // What a guard holds is released, whatever the checker knows of it.
        let _ = hook::releasing(lock_of(lock), Site::UNKNOWN);
    }
    // SAFETY: by the caller's contract.
    unsafe { lock.release_of_guard() }
}

/// The lock goes with its mutex.
pub(super) fn ends<P>(lock: &P) {
    hook::destroyed(
        Lock::new(ptr::from_ref(lock).addr(), Kind::Mutex),
        Site::UNKNOWN,
    );
}
