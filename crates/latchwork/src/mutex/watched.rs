//! What the calls of a [`Mutex`](super::Mutex) are made of, where the feature `check` is off: the protocol's own.
#![allow(unsafe_code)]

use super::{Interruptible, Protocol, Unfinished};
use crate::time::Deadline;

#[inline(always)]
#[track_caller]
pub(super) fn acquire<P: Protocol>(lock: &P) -> Result<(), P::Fault> {
    lock.acquire()
}

#[inline(always)]
#[track_caller]
pub(super) fn try_acquire<P: Protocol>(lock: &P) -> Result<bool, P::Fault> {
    lock.try_acquire()
}

#[inline(always)]
#[track_caller]
pub(super) fn acquire_until<P: Protocol>(lock: &P, deadline: Deadline) -> Result<bool, P::Fault> {
    lock.acquire_until(deadline)
}

#[inline(always)]
#[track_caller]
pub(super) fn acquire_interruptible<P: Interruptible>(
    lock: &P,
    deadline: Option<Deadline>,
) -> Result<Result<(), Unfinished>, P::Fault> {
    lock.acquire_interruptible(deadline)
}

/// # Safety
/// The calling task holds it.
#[inline(always)]
pub(super) unsafe fn release<P: Protocol>(lock: &P) {
    // SAFETY: by the caller's contract.
    unsafe { lock.release_of_guard() }
}

#[inline(always)]
pub(super) fn ends<P>(_: &P) {}
