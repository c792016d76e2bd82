//! What the slow paths of a robust reader/writer lock say of themselves: how a task entered, and what an unlock did.
//!
//! *Sleeps and wake-ups* are differences of the thread's counts ([`slow_paths`]), since a call uses several robust mutexes:
//! the gate, and seats. (A signal handler that uses locks meanwhile is counted as well.) In a model nothing is traced.
#![allow(unsafe_code)]

use super::parts::{Part, SeatLock};
use super::raw::RawRobust;
use crate::mutex::throughput::Counting;
use crate::mutex::{RawError, WaitMode};
#[cfg(not(loom))]
use crate::rwlock::trace::Released;
use crate::rwlock::trace::{Acquisition, Entry, Event};
use crate::sys::slow_paths;

impl<const READERS: usize, C: Counting<Event>, K: SeatLock> RawRobust<READERS, C, K> {
    /// The lock's counters.
    #[cfg(not(loom))]
    pub(super) fn counts(&self) -> &C {
        &self.counts
    }

    /// Runs the slow path of a call, and counts it, unless the call does not wait. The slow path says how the task has
    /// entered, but for sleeps.
    #[inline]
    pub(super) fn account<R>(
        &self,
        writes: bool,
        wait_mode: WaitMode,
        slow_path: impl FnOnce(&mut Entry) -> Result<R, RawError<K::Fault>>,
    ) -> Result<(R, Acquisition), RawError<K::Fault>> {
        let mut entry = Entry::Free;
        if wait_mode.is_try() {
            return Ok((slow_path(&mut entry)?, Acquisition::FREE));
        }
        let before = sleeps_so_far();
        let result = slow_paths::one_acquisition(|| slow_path(&mut entry));
        let sleeps = u32::try_from(sleeps_so_far().wrapping_sub(before)).unwrap_or(u32::MAX);
        if sleeps > 0 && entry != Entry::HandedOff {
            entry = Entry::Woken;
        }
        let entered = result.map(|result| (result, Acquisition { entry, sleeps }));
        // (A thread's first call comes here although the lock may be free.)
        if C::COUNTS
            && let Some(ended) = Event::ended(&entered.as_ref().map(|(_, how)| *how))
        {
            self.counts.count(Event::slow_path(writes));
            (0..sleeps).for_each(|_| self.counts.count(Event::Sleep));
            self.counts.count(ended);
        }
        entered
    }

    /// To be called before the release of the gate or of a seat.
    #[inline(always)]
    pub(super) fn count_unlock(&self, part: &impl Part) {
        // Before the release: after it the memory may be gone.
        if C::COUNTS && part.has_sleepers() {
            self.counts.count(Event::UnlockSlowPath);
        }
    }

    /// As [`Self::unlock_read`], and returns what it did for the waiters.
    ///
    /// # Safety
    /// As for [`Self::unlock_read`].
    #[cfg(not(loom))]
    pub(super) unsafe fn unlock_read_traced(&self, index: usize, owner: K::Owner) -> Released {
        // SAFETY: the same contract.
        wakes(|| unsafe { self.unlock_read(index, owner) })
    }

    /// As [`Self::unlock_write`], and returns what it did for the waiters.
    ///
    /// # Safety
    /// As for [`Self::unlock_write`].
    #[cfg(not(loom))]
    pub(super) unsafe fn unlock_write_traced(&self, owner: K::Owner) -> Released {
        // Before any change: in the child of a fork the writer is the parent.
        K::assert_owner(&self.gate, owner);
        self.count_unlock(&self.gate);
        let is_whole = !std::thread::panicking();
        if is_whole {
            self.end_writing();
        }
        // SAFETY: by the caller's contract.
        unsafe { K::unlock_gate_traced(&self.gate, is_whole) }
    }

    /// Releases the gate of a writer whose data is not repaired: the lock is given up. Returns what that did for the
    /// waiters.
    ///
    /// # Safety
    /// The calling task has the gate, with a death reported.
    #[cfg(all(feature = "foreign", not(loom)))]
    pub(super) unsafe fn give_up_traced(&self) -> Released {
        self.count_unlock(&self.gate);
        // SAFETY: by the caller's contract.
        unsafe { K::unlock_gate_traced(&self.gate, true) }
    }
}

/// Runs an unlock; returns whether it woke a task.
#[cfg(not(loom))]
pub(super) fn wakes(unlock: impl FnOnce()) -> Released {
    let before = wakes_so_far();
    unlock();
    if wakes_so_far() == before {
        Released::NoSleeper
    } else {
        Released::Woke
    }
}

#[cfg(not(loom))]
fn sleeps_so_far() -> u64 {
    slow_paths::SlowPaths::of_this_thread().sleeps
}
#[cfg(loom)]
fn sleeps_so_far() -> u64 {
    0
}

#[cfg(not(loom))]
fn wakes_so_far() -> u64 {
    slow_paths::SlowPaths::of_this_thread().wakes
}
