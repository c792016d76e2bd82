//! The calls of a [`RwLock`](super::RwLock): those of the raw lock, with reports to the observer before and after.
//! The compiler removes the reports where there is no observer (see [`ByFeature`]). The lock has no tag here.

use super::Preference;
use super::raw::RawRwLock;
use super::trace::{Acquisition, Event};
use crate::hook::{ByFeature, How, Kind, Lock, Mode, Observer, Site, Traits, traits_of};
use crate::mutex::throughput::Counting;
use crate::mutex::{Unfinished, WaitMode};
use crate::sharing::Sharing;

impl<S: Sharing, P: Preference, C: Counting<Event>> RawRwLock<S, P, C> {
    fn as_lock(&self) -> Lock {
        let first = if P::READERS_FIRST {
            Traits::empty()
        } else {
            Traits::WRITERS_FIRST
        };
        Lock::new(core::ptr::from_ref(self).addr(), Kind::RwLock).with(traits_of::<S>(first))
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn enter_observed<const WRITES: bool>(
        &self,
        wait_mode: WaitMode,
    ) -> Result<(), Unfinished> {
        if ByFeature::IS_ON {
            self.enter_reported::<WRITES>(wait_mode, Site::caller())
                .map(drop)
        } else {
            self.enter::<WRITES>(wait_mode)
        }
    }

    /// As [`Self::enter_observed`], without a deadline, and returns how the task entered.
    #[inline(always)]
    #[track_caller]
    pub(super) fn enter_traced_observed<const WRITES: bool>(&self) -> Acquisition {
        let entered = if ByFeature::IS_ON {
            self.enter_reported::<WRITES>(WaitMode::FOREVER, Site::caller())
        } else {
            self.enter_traced::<WRITES>(WaitMode::FOREVER)
        };
        // Only success ends an endless wait.
        entered.unwrap_or(Acquisition::FREE)
    }

    fn enter_reported<const WRITES: bool>(
        &self,
        wait_mode: WaitMode,
        site: Site,
    ) -> Result<Acquisition, Unfinished> {
        let (lock, mode) = (self.as_lock(), Mode::of(WRITES));
        let how = if self.try_enter::<WRITES>() {
            Acquisition::FREE
        } else {
            // A deadlock is reported, and then happens, as it would without an observer.
            let _ = ByFeature::wants(lock, mode, wait_mode.deadline().is_some(), site);
            self.enter_traced::<WRITES>(wait_mode)
                .inspect_err(|_| ByFeature::gave_up(lock))?
        };
        ByFeature::taken(lock, mode, How::Locked, site);
        Ok(how)
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn try_enter_observed<const WRITES: bool>(&self) -> bool {
        let entered = self.try_enter::<WRITES>();
        if ByFeature::IS_ON && entered {
            ByFeature::taken(self.as_lock(), Mode::of(WRITES), How::Tried, Site::caller());
        }
        entered
    }

    #[inline(always)]
    pub(super) fn report_release(&self) {
        if ByFeature::IS_ON {
            // A guard's lock is released, whatever the observer knows of it.
            let _ = ByFeature::releasing(self.as_lock(), Site::UNKNOWN);
        }
    }

    /// Reports that the writer has become a reader.
    #[inline(always)]
    pub(super) fn report_downgrade(&self) {
        self.report_release();
        if ByFeature::IS_ON {
            ByFeature::taken(self.as_lock(), Mode::Shared, How::Again, Site::UNKNOWN);
        }
    }
}
