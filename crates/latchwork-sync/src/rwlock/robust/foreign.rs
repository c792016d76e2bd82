//! The robust reader/writer lock without guards: see [`foreign`](crate::foreign).
#![allow(unsafe_code)]

use super::lock::RobustRwLock;
use super::raw::Entered;
use crate::mutex::{Acquired, RawError, WaitMode};
use crate::task::{self, Me};

impl<const READERS: usize> RobustRwLock<(), READERS> {
    /// Returns 0, or `EOWNERDEAD`, with the lock acquired to write.
    ///
    /// # Safety
    /// The lock is pinned.
    pub(crate) unsafe fn enter(
        &self,
        writes: bool,
        wait_mode: WaitMode,
    ) -> Result<libc::c_int, RawError> {
        // SAFETY: by the caller's contract.
        let torn = unsafe {
            if writes {
                self.raw.write(wait_mode)? == Acquired::OwnerDied
            } else {
                self.raw.read_free().is_none() && self.raw.read(wait_mode)? == Entered::Torn
            }
        };
        if torn {
            task::after_owner_death(core::ptr::from_ref(self).cast::<u8>().addr());
        }
        Ok(if torn { libc::EOWNERDEAD } else { 0 })
    }

    /// Releases whatever the calling task holds of the lock; returns whether it held anything. A torn lock is given up.
    pub(crate) fn leave(&self) -> bool {
        // `Me::get` registers the thread here, if it acquired the lock through another copy of this library.
        let Ok(me) = Me::get().map(Me::tid) else {
            return false;
        };
        let is_mine = |owner| owner == Some(me);
        if is_mine(self.raw.gate.owner()) {
            // SAFETY: the calling task owns the gate.
            unsafe {
                if self.raw.gate.is_inconsistent() {
                    self.raw.gate.release_not_recoverable();
                } else {
                    self.raw.unlock_write(me);
                }
            }
            return true;
        }
        let seat = self
            .raw
            .seats
            .iter()
            .position(|seat| is_mine(seat.0.owner()));
        if let Some(index) = seat {
            // SAFETY: the calling task owns the seat.
            unsafe { self.raw.unlock_read(index, me) };
        }
        seat.is_some()
    }

    /// Releases the lock with its data in an unknown state; returns false unless the calling task is the writer.
    pub(crate) fn leave_inconsistent(&self) -> bool {
        let gate = &self.raw.gate;
        let is_mine = Me::get().is_ok_and(|me| gate.owner() == Some(me.tid()));
        if is_mine {
            // SAFETY: the calling task owns the gate. `writing` stays 1.
            unsafe { gate.unlock_inconsistent() };
        }
        is_mine
    }

    /// Declares the data whole; returns false unless the calling task holds the lock with a death reported.
    pub(crate) fn declare_whole(&self) -> bool {
        let gate = &self.raw.gate;
        let is_dead_owners =
            Me::get().is_ok_and(|me| gate.owner() == Some(me.tid())) && gate.is_inconsistent();
        if is_dead_owners {
            // `writing` stays 1.
            gate.mark_consistent();
        }
        is_dead_owners
    }
}
