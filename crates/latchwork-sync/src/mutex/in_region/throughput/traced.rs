//! What the calls of a region's throughput lock say of themselves, for the reader/writer lock whose gate it is.
#![allow(unsafe_code)]

use super::super::forms::RawError;
use super::super::lock::{INCONSISTENT, InRegion, WAITERS};
use super::{Lock, REQUEST};
use crate::atomic::Ordering;
use crate::mutex::throughput::Released;
use crate::mutex::{Acquired, Throughput, WaitMode};
use crate::sharing::Shared;

impl InRegion<Throughput<Shared>> {
    /// As [`InRegion::acquire_slowly`]. Calls `is_held` if the lock is not free. Returns whether it was handed off.
    pub(crate) fn acquire_slowly_traced(
        &self,
        wait_mode: WaitMode,
        is_held: impl FnOnce(),
    ) -> Result<(Acquired, bool), RawError> {
        let mut handed_off = false;
        let (acquired, me) = self.acquire_by(wait_mode, |me| {
            is_held();
            let lock = Lock::new(self.word(), self.gate(), me);
            let taken = lock.take_in(wait_mode);
            handed_off = lock.handed_off.get();
            taken
        })?;
        me.acquired();
        Ok((acquired, handed_off))
    }

    /// As [`InRegion::unlock_raw`], or with `is_whole == false` as [`InRegion::unlock_raw_inconsistent`], and returns what
    /// that did for the waiters.
    ///
    /// # Safety
    /// The calling task holds the lock.
    pub(crate) unsafe fn unlock_raw_traced(&self, is_whole: bool) -> Released {
        let me = self.caller();
        let owner = me.identity();
        // Relaxed: only the owner, which this task is, changes the bit that is asked for.
        let word = self.word().load(Ordering::Relaxed);
        let gives_up = is_whole && word & INCONSISTENT != 0;
        let freed = if is_whole {
            self.free_or_give_up(owner, word)
        } else {
            self.free_with(owner, INCONSISTENT, 1)
        };
        me.released();
        match freed {
            word if word & REQUEST != 0 && !gives_up => Released::HandedOff,
            word if word & WAITERS != 0 => Released::Woke,
            _ => Released::NoSleeper,
        }
    }
}
