//! What the calls of a [`RwLock`](super::RwLock) tell the checker where the feature `check` is on. It has no tag
//! here.

use super::{Preference, RawRwLock};
use crate::check::hook::{self, How, Kind, Lock, Mode, Site, Traits};
use crate::hook::traits_of;
use crate::mutex::{Patience, Unfinished};
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

#[track_caller]
pub(super) fn enter<S: Sharing, P: Preference, const WRITES: bool>(
    lock: &RawRwLock<S, P>,
    patience: Patience,
) -> Result<(), Unfinished> {
    let (told, site) = (lock_of(lock), Site::caller());
    let at_once = if WRITES {
        lock.try_write()
    } else {
        lock.try_read()
    };
    if !at_once {
        // After its report a deadlock is what the program would have.
        let _ = hook::wants(told, mode(WRITES), patience.deadline().is_some(), site);
        let entered = if WRITES {
            lock.write(patience)
        } else {
            lock.read(patience)
        };
        if entered.is_err() {
            hook::gave_up(told);
            return entered;
        }
    }
    hook::taken(told, mode(WRITES), How::Locked, site);
    Ok(())
}

#[track_caller]
pub(super) fn try_enter<S: Sharing, P: Preference, const WRITES: bool>(
    lock: &RawRwLock<S, P>,
) -> bool {
    let entered = if WRITES {
        lock.try_write()
    } else {
        lock.try_read()
    };
    if entered {
        hook::taken(lock_of(lock), mode(WRITES), How::Tried, Site::caller());
    }
    entered
}

pub(super) fn leaves<S: Sharing, P: Preference>(lock: &RawRwLock<S, P>) {
    // What a guard holds is released, whatever the checker knows of it.
    let _ = hook::releasing(lock_of(lock), Site::UNKNOWN);
}

/// The writer has become a reader.
pub(super) fn downgrades<S: Sharing, P: Preference>(lock: &RawRwLock<S, P>) {
    leaves(lock);
    hook::taken(lock_of(lock), Mode::Shared, How::Again, Site::UNKNOWN);
}
