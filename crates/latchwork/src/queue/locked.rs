//! The locks of a queue, and the value that holds them.
#![allow(unsafe_code)]

use super::{layout::Cells, wake::Wake};
use crate::mutex::in_region::RawError;
use crate::mutex::{Acquired, InRegion};
use crate::{backoff::ExponentialBackoff, region::AttachError};

/// Up to this size a message is copied under the side's lock: taking the lock twice more would cost longer.
pub(super) const SMALL: usize = 4096;

/// The locks of a queue that a call takes. (As wide as its neighbour in [`Locked`]: a narrower type is copied with its
/// padding, in pieces that are read back at once, and a task that sends to itself then completes 0.8 of the pairs.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Side {
    Senders,
    Receivers,
    Both,
}

/// A queue's locks, held.
pub(super) struct Locked<'r> {
    pub(super) cells: Cells<'r>,
    side: Side,
}

impl<'r> Locked<'r> {
    /// Takes the lock of a side, or both, and returns whether an owner died.
    #[inline]
    pub(super) fn acquire(cells: Cells<'r>, side: Side) -> Result<(Self, Acquired), AttachError> {
        let core = cells.core;
        let mut how = Acquired::Clean;
        if side != Side::Receivers {
            how = acquire(&core.senders_lock)?;
        }
        if side != Side::Senders {
            match acquire(&core.receivers_lock) {
                Ok(Acquired::Clean) => {}
                Ok(died) => how = died,
                Err(error) => {
                    if side == Side::Both {
                        // SAFETY: this call took the senders' lock above.
                        unsafe { core.senders_lock.unlock_raw_inconsistent() };
                    }
                    return Err(error);
                }
            }
        }
        Ok((Self { cells, side }, how))
    }

    /// Releases the locks, and wakes the tasks that the changes concern. (Each unlock is a read-modify-write, or a
    /// system call that makes one: the barrier that a notification needs.)
    #[inline]
    pub(super) fn unlock(self, wake: Wake<'_>) {
        let core = self.cells.core;
        drop(self);
        wake.carry_out(core);
    }

    /// Declares that what dead owners left is settled.
    pub(super) fn mark_consistent(&self) {
        for lock in self.locks() {
            // SAFETY: this value holds it.
            unsafe { lock.mark_raw_consistent() };
        }
    }

    fn locks(&self) -> impl Iterator<Item = &'r InRegion> {
        let core = self.cells.core;
        let senders = (self.side != Side::Receivers).then_some(&*core.senders_lock);
        let receivers = (self.side != Side::Senders).then_some(&*core.receivers_lock);
        senders.into_iter().chain(receivers)
    }

    /// Releases all locks except those of a side.
    pub(super) fn keep(&mut self, side: Side) {
        let core = self.cells.core;
        let released = match (self.side, side) {
            (Side::Both, Side::Senders) => &core.receivers_lock,
            (Side::Both, Side::Receivers) => &core.senders_lock,
            _ => return,
        };
        self.side = side;
        // SAFETY: `acquire` took it, and `side` no longer names it, so it is released once.
        unsafe { released.unlock_raw() };
    }

    /// Releases the locks in the state in which they were found.
    pub(super) fn leave(self, how: Acquired) {
        if how == Acquired::Clean {
            return;
        }
        let left = core::mem::ManuallyDrop::new(self);
        for lock in left.locks() {
            // SAFETY: `acquire` took each of them, and `left` is never dropped, so they are released once.
            unsafe { lock.unlock_raw_inconsistent() };
        }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // A panic under the lock is a bug of this library; and the cells are consistent at every instruction.
        // (Not by `locks`: the iterator takes some twenty instructions more for each lock.)
        let core = self.cells.core;
        if self.side != Side::Receivers {
            // SAFETY: `acquire` took it for this side, and this value alone releases it.
            unsafe { core.senders_lock.unlock_raw() };
        }
        if self.side != Side::Senders {
            // SAFETY: as for the senders' lock.
            unsafe { core.receivers_lock.unlock_raw() };
        }
    }
}

/// Takes one lock.
#[inline]
fn acquire(lock: &InRegion) -> Result<Acquired, AttachError> {
    // The lock itself would poll more often. With this backoff, two processes that streamed messages of 64 bytes
    // between two CPUs through one lock took 0.7 of the time: the owner completes several messages in a row.
    if lock.is_locked() {
        ExponentialBackoff::Held.poll(0, None, || !lock.is_locked());
    }
    lock.lock_raw().map_err(|error| match error {
        RawError::Unavailable(error) => error.into(),
        // No task marks it so; a corrupted file may.
        RawError::NotRecoverable => AttachError::Damaged("a lock of the queue is not recoverable"),
        _ => crate::fatal(format_args!(
            "a queue was used by a signal handler that interrupted its use"
        )),
    })
}
