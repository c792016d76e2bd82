//! What the calls of a [`RwLock`](super::RwLock) tell the checker where the feature `check` is off: nothing.

use super::{Preference, RawRwLock};
use crate::mutex::{Patience, Unfinished};
use crate::sharing::Sharing;

#[inline(always)]
#[track_caller]
pub(super) fn enter<S: Sharing, P: Preference, const WRITES: bool>(
    lock: &RawRwLock<S, P>,
    patience: Patience,
) -> Result<(), Unfinished> {
    if WRITES {
        lock.write(patience)
    } else {
        lock.read(patience)
    }
}

#[inline(always)]
#[track_caller]
pub(super) fn try_enter<S: Sharing, P: Preference, const WRITES: bool>(
    lock: &RawRwLock<S, P>,
) -> bool {
    if WRITES {
        lock.try_write()
    } else {
        lock.try_read()
    }
}

#[inline(always)]
pub(super) fn leaves<S: Sharing, P: Preference>(_: &RawRwLock<S, P>) {}

#[inline(always)]
pub(super) fn downgrades<S: Sharing, P: Preference>(_: &RawRwLock<S, P>) {}
