//! The calls of a [`RwLock`](super::RwLock): those of the raw lock, with reports to the observer before and after.
//! The compiler removes the reports where there is no observer (see [`ByFeature`]). The lock has no tag here.

use super::Preference;
use super::raw::RawRwLock;
use crate::hook::{ByFeature, How, Kind, Lock, Mode, Observer, Site, Traits, traits_of};
use crate::mutex::{Unfinished, WaitMode};
use crate::sharing::Sharing;

fn lock_of<S: Sharing, P: Preference>(lock: &RawRwLock<S, P>) -> Lock {
    let first = if P::READERS_FIRST {
        Traits::empty()
    } else {
        Traits::WRITERS_FIRST
    };
    Lock::new(core::ptr::from_ref(lock).addr(), Kind::RwLock).with(traits_of::<S>(first))
}

const fn mode(writes: bool) -> Mode {
    if writes {
        Mode::Exclusive
    } else {
        Mode::Shared
    }
}

#[inline(always)]
#[track_caller]
pub(super) fn enter<S: Sharing, P: Preference, const WRITES: bool>(
    lock: &RawRwLock<S, P>,
    wait_mode: WaitMode,
) -> Result<(), Unfinished> {
    if ByFeature::IS_ON {
        enter_reported::<_, _, WRITES>(lock, wait_mode, Site::caller())
    } else {
        lock.enter::<WRITES>(wait_mode)
    }
}

fn enter_reported<S: Sharing, P: Preference, const WRITES: bool>(
    lock: &RawRwLock<S, P>,
    wait_mode: WaitMode,
    site: Site,
) -> Result<(), Unfinished> {
    let (lock_report, mode) = (lock_of(lock), mode(WRITES));
    if !lock.try_enter::<WRITES>() {
        // A deadlock is reported, and then happens, as it would without an observer.
        let _ = ByFeature::wants(lock_report, mode, wait_mode.deadline().is_some(), site);
        lock.enter::<WRITES>(wait_mode)
            .inspect_err(|_| ByFeature::gave_up(lock_report))?;
    }
    ByFeature::taken(lock_report, mode, How::Locked, site);
    Ok(())
}

#[inline(always)]
#[track_caller]
pub(super) fn try_enter<S: Sharing, P: Preference, const WRITES: bool>(
    lock: &RawRwLock<S, P>,
) -> bool {
    let entered = lock.try_enter::<WRITES>();
    if ByFeature::IS_ON && entered {
        ByFeature::taken(lock_of(lock), mode(WRITES), How::Tried, Site::caller());
    }
    entered
}

#[inline(always)]
pub(super) fn releasing<S: Sharing, P: Preference>(lock: &RawRwLock<S, P>) {
    if ByFeature::IS_ON {
        // A guard's lock is released, whatever the observer knows of it.
        let _ = ByFeature::releasing(lock_of(lock), Site::UNKNOWN);
    }
}

/// Reports that the writer has become a reader.
#[inline(always)]
pub(super) fn downgraded<S: Sharing, P: Preference>(lock: &RawRwLock<S, P>) {
    releasing(lock);
    if ByFeature::IS_ON {
        ByFeature::taken(lock_of(lock), Mode::Shared, How::Again, Site::UNKNOWN);
    }
}
