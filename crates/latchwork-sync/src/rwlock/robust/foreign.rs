//! The robust reader/writer lock without guards: see [`foreign`](crate::foreign).
#![allow(unsafe_code)]

use super::lock::RobustRwLock;
use super::raw::{Entered, GateMutex};
use crate::foreign::{Blocking, robust_status};
use crate::mutex::{Acquired, WaitMode};
use crate::rwlock::trace::{Acquisition, Released};
use crate::task::Me;
use core::pin::Pin;
use libc::{EINVAL, EPERM, c_int};

/// Acquires the lock. With `EOWNERDEAD` it is acquired to write.
pub fn robust_rwlock_enter(
    lock: Pin<&RobustRwLock<()>>,
    writes: bool,
    blocking: Blocking,
) -> c_int {
    let (raw, wait_mode) = (&lock.get_ref().raw, blocking.wait_mode());
    // SAFETY: the lock is pinned.
    let is_torn = unsafe {
        if writes {
            raw.write(wait_mode)
                .map(|taken| taken == Acquired::OwnerDied)
        } else if raw.read_free().is_some() {
            Ok(false)
        } else {
            raw.read(wait_mode)
                .map(|(entered, _)| entered == Entered::Torn)
        }
    };
    robust_status(
        is_torn,
        core::ptr::from_ref(lock.get_ref()).cast(),
        blocking,
    )
}

/// As [`robust_rwlock_enter`], without a time limit. Returns how the task entered, and 0 or `EOWNERDEAD`; or an error
/// number, and the lock is not acquired.
pub fn robust_rwlock_enter_traced(
    lock: Pin<&RobustRwLock<()>>,
    writes: bool,
) -> Result<(Acquisition, c_int), c_int> {
    let raw = &lock.get_ref().raw;
    // SAFETY: the lock is pinned.
    let entered = unsafe {
        if writes {
            raw.write_traced(WaitMode::FOREVER)
                .map(|(taken, how)| (taken == Acquired::OwnerDied, how))
        } else if raw.read_free().is_some() {
            Ok((false, Acquisition::FREE))
        } else {
            raw.read(WaitMode::FOREVER)
                .map(|(entered, how)| (entered == Entered::Torn, how))
        }
    };
    let how = entered.as_ref().map(|(_, how)| *how).ok();
    let is_torn = entered.map(|(is_torn, _)| is_torn);
    let address = core::ptr::from_ref(lock.get_ref()).cast();
    let status = robust_status(is_torn, address, Blocking::Forever);
    how.map(|how| (how, status)).ok_or(status)
}

/// The gate, if the calling task owns it.
fn own_gate(lock: Pin<&RobustRwLock<()>>) -> Option<&GateMutex> {
    let gate = &lock.get_ref().raw.gate;
    Me::get()
        .is_ok_and(|me| gate.owner() == Some(me.tid()))
        .then_some(gate)
}

/// Releases whatever the calling task holds of the lock; returns 0 or `EPERM`. A torn lock is given up.
pub fn robust_rwlock_leave(lock: Pin<&RobustRwLock<()>>) -> c_int {
    leave::<false>(lock).err().unwrap_or(0)
}

/// As [`robust_rwlock_leave`], and returns what that did for the waiters.
pub fn robust_rwlock_leave_traced(lock: Pin<&RobustRwLock<()>>) -> Result<Released, c_int> {
    leave::<true>(lock)
}

/// What an untraced release returns means nothing.
#[inline(always)]
fn leave<const TRACED: bool>(lock: Pin<&RobustRwLock<()>>) -> Result<Released, c_int> {
    let raw = &lock.get_ref().raw;
    // `Me::get` registers the thread here, if it acquired the lock through another copy of this library.
    let Ok(me) = Me::get().map(Me::tid) else {
        return Err(EPERM);
    };
    // SAFETY: the calling task owns what is released: the gate, or the seat.
    unsafe {
        if let Some(gate) = own_gate(lock) {
            match (gate.is_inconsistent(), TRACED) {
                (true, true) => return Ok(raw.give_up_traced()),
                (true, false) => gate.release_not_recoverable(),
                (false, true) => return Ok(raw.unlock_write_traced(me)),
                (false, false) => raw.unlock_write(me),
            }
        } else if let Some(seat) = raw.seats.iter().position(|seat| seat.0.owner() == Some(me)) {
            if TRACED {
                return Ok(raw.unlock_read_traced(seat, me));
            }
            raw.unlock_read(seat, me);
        } else {
            return Err(EPERM);
        }
    }
    Ok(Released::NoSleeper)
}

/// Releases a writer's lock with the data in an unknown state. Returns 0 or `EPERM`.
pub fn robust_rwlock_leave_inconsistent(lock: Pin<&RobustRwLock<()>>) -> c_int {
    own_gate(lock).map_or(EPERM, |gate| {
        // SAFETY: the calling task owns the gate. `writing` stays 1.
        unsafe { gate.unlock_inconsistent() };
        0
    })
}

/// Declares the data whole. Returns 0, or `EINVAL` unless the calling task holds the lock with a death reported.
pub fn robust_rwlock_consistent(lock: Pin<&RobustRwLock<()>>) -> c_int {
    own_gate(lock)
        .filter(|gate| gate.is_inconsistent())
        .map_or(EINVAL, |gate| {
            // `writing` stays 1.
            gate.mark_consistent();
            0
        })
}
