//! The robust reader/writer lock without guards: see [`foreign`](crate::foreign).
#![allow(unsafe_code)]

use super::lock::RobustRwLock;
use super::parts::{Part, SeatLock, SeatOps};
use super::raw::{Entered, RawRobust};
use crate::foreign::{Blocking, robust_status};
use crate::mutex::throughput::Uncounted;
use crate::mutex::{Acquired, InRegion, RawError, Robust, WaitMode};
use crate::rwlock::trace::{Acquisition, Released};
use core::pin::Pin;
use libc::{EINVAL, EPERM, c_int};

/// A lock as C has it.
type Plain<K> = RobustRwLock<(), 16, Uncounted, K>;

/// What the functions below ask of the kinds of seats.
pub trait ForeignSeat: SeatLock {
    /// As [`robust_status`].
    fn status(
        is_torn: Result<bool, RawError<Self::Fault>>,
        lock: *const (),
        blocking: Blocking,
    ) -> c_int;
    /// The calling task, if it may own parts of the lock.
    fn me(gate: &Self::Gate) -> Option<Self::Owner>;
    /// Whether an owner's death was reported to the gate's owner, which has not declared the data whole.
    fn is_inconsistent(gate: &Self::Gate) -> bool;
    /// Whether a living task holds this seat.
    fn is_taken(&self) -> bool;
    /// The calling task has acquired the lock, and lends nothing.
    fn entered(_gate: &Self::Gate) {}
    /// The calling task is about to release what it acquired so.
    fn leaves(_gate: &Self::Gate) {}
}

impl ForeignSeat for Robust {
    fn status(is_torn: Result<bool, RawError>, lock: *const (), blocking: Blocking) -> c_int {
        robust_status(is_torn, lock, blocking)
    }

    /// It registers the thread here, if it acquired the lock through another copy of this library.
    fn me(gate: &Self::Gate) -> Option<u32> {
        Self::caller(gate).ok()
    }

    fn is_inconsistent(gate: &Self::Gate) -> bool {
        gate.is_inconsistent()
    }

    /// The kernel has marked a dead owner's.
    fn is_taken(&self) -> bool {
        self.holder().is_some()
    }
}

impl ForeignSeat for InRegion {
    fn status(
        is_torn: Result<bool, RawError<Self::Fault>>,
        lock: *const (),
        blocking: Blocking,
    ) -> c_int {
        robust_status(is_torn, lock, blocking)
    }

    fn me(gate: &Self::Gate) -> Option<u64> {
        Self::known_caller(gate)
    }

    fn is_inconsistent(gate: &Self::Gate) -> bool {
        gate.is_inconsistent()
    }

    /// If the caller cannot become a task of the region, a dead owner counts, too.
    fn is_taken(&self) -> bool {
        self.holder().is_some_and(|owner| !self.is_of_dead(owner))
    }

    fn entered(gate: &Self::Gate) {
        gate.count_as_plain();
    }

    fn leaves(gate: &Self::Gate) {
        gate.count_as_guarded();
    }
}

/// Acquires the lock. With `EOWNERDEAD` it is acquired to write.
pub fn robust_rwlock_enter<K: ForeignSeat>(
    lock: Pin<&Plain<K>>,
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
    status(raw, is_torn, blocking)
}

/// The result of a call that acquires the lock.
fn status<K: ForeignSeat>(
    raw: &RawRobust<16, Uncounted, K>,
    is_torn: Result<bool, RawError<K::Fault>>,
    blocking: Blocking,
) -> c_int {
    if is_torn.is_ok() {
        K::entered(&raw.gate);
    }
    K::status(is_torn, core::ptr::from_ref(raw).cast(), blocking)
}

/// As [`robust_rwlock_enter`], without a time limit. Returns how the task entered, and 0 or `EOWNERDEAD`; or an error
/// number, and the lock is not acquired.
pub fn robust_rwlock_enter_traced<K: ForeignSeat>(
    lock: Pin<&Plain<K>>,
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
    let status = status(raw, is_torn, Blocking::Forever);
    how.map(|how| (how, status)).ok_or(status)
}

/// Whether a task is inside or on its way, or a writer has died inside, and no other task has noticed that yet.
pub fn robust_rwlock_is_used<K: ForeignSeat>(lock: Pin<&Plain<K>>) -> bool {
    let raw = &lock.get_ref().raw;
    raw.gate.holder().is_some() || raw.seats.iter().any(|seat| seat.0.is_taken())
}

/// The gate, if the calling task owns it.
fn own_gate<K: ForeignSeat>(lock: Pin<&Plain<K>>) -> Option<&K::Gate> {
    let gate = &lock.get_ref().raw.gate;
    let me = K::me(gate)?;
    (gate.holder() == Some(me)).then_some(gate)
}

/// Releases whatever the calling task holds of the lock; returns 0 or `EPERM`. A torn lock is given up.
pub fn robust_rwlock_leave<K: ForeignSeat>(lock: Pin<&Plain<K>>) -> c_int {
    leave::<false, K>(lock).err().unwrap_or(0)
}

/// As [`robust_rwlock_leave`], and returns what that did for the waiters.
pub fn robust_rwlock_leave_traced<K: ForeignSeat>(lock: Pin<&Plain<K>>) -> Result<Released, c_int> {
    leave::<true, K>(lock)
}

/// What an untraced release returns means nothing.
#[inline(always)]
fn leave<const TRACED: bool, K: ForeignSeat>(lock: Pin<&Plain<K>>) -> Result<Released, c_int> {
    let raw = &lock.get_ref().raw;
    let me = K::me(&raw.gate).ok_or(EPERM)?;
    let stamp = K::stamp(&raw.gate).ok_or(EPERM)?;
    // SAFETY: the calling task owns what is released: the gate, or the seat.
    unsafe {
        if let Some(gate) = own_gate(lock) {
            K::leaves(gate);
            match (K::is_inconsistent(gate), TRACED) {
                (true, true) => return Ok(raw.give_up_traced()),
                (true, false) => gate.release_not_recoverable(),
                (false, true) => return Ok(raw.unlock_write_traced(stamp)),
                (false, false) => raw.unlock_write(stamp),
            }
        } else if let Some(seat) = raw
            .seats
            .iter()
            .position(|seat| seat.0.holder() == Some(me))
        {
            K::leaves(&raw.gate);
            if TRACED {
                return Ok(raw.unlock_read_traced(seat, stamp));
            }
            raw.unlock_read(seat, stamp);
        } else {
            return Err(EPERM);
        }
    }
    Ok(Released::NoSleeper)
}

/// Releases a writer's lock with the data in an unknown state. Returns 0 or `EPERM`.
pub fn robust_rwlock_leave_inconsistent<K: ForeignSeat>(lock: Pin<&Plain<K>>) -> c_int {
    own_gate(lock).map_or(EPERM, |gate| {
        K::leaves(gate);
        // SAFETY: the calling task owns the gate. `writing` stays 1.
        unsafe { gate.unlock_inconsistent() };
        0
    })
}

/// Declares the data whole. Returns 0, or `EINVAL` unless the calling task holds the lock with a death reported.
pub fn robust_rwlock_consistent<K: ForeignSeat>(lock: Pin<&Plain<K>>) -> c_int {
    own_gate(lock)
        .filter(|gate| K::is_inconsistent(gate))
        .map_or(EINVAL, |gate| {
            // `writing` stays 1.
            gate.mark_consistent();
            0
        })
}
