//! What the slow paths of a robust reader/writer lock say of themselves: how a task entered, and what an unlock did.
//!
//! *Sleeps and wake-ups* are differences of the thread's counts ([`slow_paths`]), since a call uses several robust mutexes:
//! the gate, and seats. (A signal handler that uses locks meanwhile is counted as well.) In a model nothing is traced.
#![allow(unsafe_code)]

use super::raw::RawRobust;
#[cfg(not(loom))]
use crate::mutex::throughput;
use crate::mutex::throughput::Counting;
use crate::mutex::{Acquired, RawError, Robust, RobustProtocol, WAITERS, WaitMode};
#[cfg(not(loom))]
use crate::rwlock::trace::Released;
use crate::rwlock::trace::{Acquisition, Entry, Event};
use crate::sys::slow_paths;

impl<const READERS: usize, C: Counting<Event>> RawRobust<READERS, C> {
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
        slow_path: impl FnOnce(&mut Entry) -> Result<R, RawError>,
    ) -> Result<(R, Acquisition), RawError> {
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

    /// Acquires a gate that was not free. Says how, unless by sleeping.
    ///
    /// # Safety
    /// As for [`Robust::lock_raw`].
    pub(super) unsafe fn take_gate(
        &self,
        wait_mode: WaitMode,
        entry: &mut Entry,
    ) -> Result<Acquired, RawError> {
        #[cfg(loom)]
        {
            let _ = entry;
            // SAFETY: the same contract.
            unsafe { self.gate.acquire_in_budget(wait_mode) }
        }
        #[cfg(not(loom))]
        {
            // SAFETY: the same contract.
            let (taken, how) = unsafe { self.gate.acquire_slowly_traced(wait_mode) };
            match how.entry {
                throughput::Entry::Free => {}
                throughput::Entry::Stolen | throughput::Entry::TopWaiter => *entry = Entry::Polled,
                throughput::Entry::HandedOff => *entry = Entry::HandedOff,
            }
            taken
        }
    }

    /// To be called before the release of the gate or of a seat.
    #[inline(always)]
    pub(super) fn count_unlock<P: RobustProtocol>(&self, part: &Robust<P>) {
        // Before the release: after it the memory may be gone. Relaxed: only a number.
        if C::COUNTS && part.node().word.load(crate::atomic::Ordering::Relaxed) & WAITERS != 0 {
            self.counts.count(Event::UnlockSlowPath);
        }
    }

    /// As [`Self::unlock_read`], and returns what it did for the waiters.
    ///
    /// # Safety
    /// As for [`Self::unlock_read`].
    #[cfg(not(loom))]
    pub(super) unsafe fn unlock_read_traced(&self, index: usize, owner: u32) -> Released {
        let before = wakes_so_far();
        // SAFETY: the same contract.
        unsafe { self.unlock_read(index, owner) };
        if wakes_so_far() == before {
            Released::NoSleeper
        } else {
            Released::Woke
        }
    }

    /// As [`Self::unlock_write`], and returns what it did for the waiters.
    ///
    /// # Safety
    /// As for [`Self::unlock_write`].
    #[cfg(not(loom))]
    pub(super) unsafe fn unlock_write_traced(&self, owner: u32) -> Released {
        // Before any change: in the child of a fork the writer is the parent.
        crate::mutex::owner_of_guard(owner);
        self.count_unlock(&self.gate);
        // SAFETY: by the caller's contract.
        let released = unsafe {
            if std::thread::panicking() {
                self.gate.unlock_inconsistent_traced()
            } else {
                self.end_writing();
                self.gate.unlock_raw_traced()
            }
        };
        released_as(released)
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
        released_as(unsafe { self.gate.unlock_raw_traced() })
    }
}

/// What the unlock of the gate did.
#[cfg(not(loom))]
fn released_as(released: throughput::Released) -> Released {
    match released {
        throughput::Released::NoSleeper => Released::NoSleeper,
        throughput::Released::Woke => Released::Woke,
        throughput::Released::HandedOff => Released::HandedOff,
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
