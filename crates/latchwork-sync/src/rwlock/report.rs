//! The calls of a [`RwLock`](super::RwLock): those of the raw lock, with reports to the observer before and after.
//! The compiler removes the reports where there is no observer (see [`ByFeature`]). The lock has no tag here.

use super::Preference;
use super::raw::RawRwLock;
use crate::hook::{ByFeature, How, Kind, Lock, Mode, Observer, Site, Traits, traits_of};
use crate::mutex::{Unfinished, WaitMode};
use crate::sharing::Sharing;

impl<S: Sharing, P: Preference> RawRwLock<S, P> {
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
        } else {
            self.enter::<WRITES>(wait_mode)
        }
    }

    fn enter_reported<const WRITES: bool>(
        &self,
        wait_mode: WaitMode,
        site: Site,
    ) -> Result<(), Unfinished> {
        let (lock, mode) = (self.as_lock(), Mode::of(WRITES));
        if !self.try_enter::<WRITES>() {
            // A deadlock is reported, and then happens, as it would without an observer.
            let _ = ByFeature::wants(lock, mode, wait_mode.deadline().is_some(), site);
            self.enter::<WRITES>(wait_mode)
                .inspect_err(|_| ByFeature::gave_up(lock))?;
        }
        ByFeature::taken(lock, mode, How::Locked, site);
        Ok(())
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
