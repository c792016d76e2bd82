//! A region lock without guards, for the C interface. It knows from its word whether its data is whole, and the calling
//! task as its owner; so no call needs to be trusted. What is acquired here is counted as a lock that lends nothing.

use super::forms::{RawError, RegionProtocol};
use super::lock::{INCONSISTENT, InRegion, is_held, owner_of};
use super::membership::{Me, Member};
use crate::atomic::Ordering;
use crate::mutex::{Acquired, WaitMode};

impl<P: RegionProtocol> InRegion<P> {
    pub(crate) fn acquire_plain(&self, wait_mode: WaitMode) -> Result<Acquired, RawError> {
        let (acquired, me) = self.acquire_as_member(wait_mode)?;
        me.acquired_plain();
        Ok(acquired)
    }

    /// The calling task, if it is the owner.
    pub(crate) fn held_by_me(&self) -> Option<Member> {
        // Relaxed: no other task writes, or removes, the identity of the calling one.
        let word = self.word().load(Ordering::Relaxed);
        let me = Me::current_or_none().member_at(self.address())?;
        (is_held(word) && owner_of(word) == me.identity()).then_some(me)
    }

    /// Whether the data is marked as inconsistent.
    pub(crate) fn is_inconsistent(&self) -> bool {
        // Relaxed: while the lock is held, its owner alone changes this bit.
        self.word().load(Ordering::Relaxed) & INCONSISTENT != 0
    }

    /// Releases the lock, which is not recoverable from now on if its data is marked as inconsistent. Returns false if the
    /// calling task is not the owner.
    #[must_use]
    pub(crate) fn release_plain(&self) -> bool {
        let Some(me) = self.held_by_me() else {
            return false;
        };
        self.free_or_give_up(me.identity(), self.word().load(Ordering::Relaxed));
        me.released_plain();
        true
    }

    /// Releases the lock with its data in an unknown state: a death is reported to the next owner. Returns false if the
    /// calling task is not the owner.
    #[must_use]
    pub(crate) fn release_plain_inconsistent(&self) -> bool {
        let Some(me) = self.held_by_me() else {
            return false;
        };
        self.free_with(me.identity(), INCONSISTENT, 1);
        me.released_plain();
        true
    }

    /// Declares the data whole again. Returns false if it is, or the calling task is not the owner.
    #[must_use]
    pub(crate) fn repair_plain(&self) -> bool {
        let is_mine = self.held_by_me();
        let Some(me) = is_mine.filter(|_| self.is_inconsistent()) else {
            return false;
        };
        self.mark_consistent(me.identity());
        true
    }

    /// Counts a lock that this task has acquired in the region as one that lends nothing.
    pub(crate) fn count_as_plain(&self) {
        if let Some(me) = Me::current_or_none().member_at(self.address()) {
            me.acquired_plain();
            me.released();
        }
    }

    /// The inverse of [`Self::count_as_plain`].
    pub(crate) fn count_as_guarded(&self) {
        if let Some(me) = Me::current_or_none().member_at(self.address()) {
            me.acquired();
            me.released_plain();
        }
    }
}
