//! A region lock as a part of something else: what a reader/writer lock asks of its parts beside what a mutex does, and what
//! becomes of the library's own locks in a region without tasks.

use super::forms::{RawError, RegionProtocol};
use super::lock::{INCONSISTENT, InRegion, WAITERS, is_held, owner_of};
use super::membership::{Me, Member, NotATask};
use crate::atomic::Ordering;
use crate::mutex;

impl<P: RegionProtocol> InRegion<P> {
    /// Whether the lock is free and its data whole at this moment; if so, all that its last owner did is visible.
    #[inline(always)]
    pub(crate) fn is_free_and_whole(&self) -> bool {
        // Acquire: pairs with the Release of the last owner.
        self.word().load(Ordering::Acquire) & !WAITERS == 0
    }

    /// Whether a task may sleep for the lock.
    pub(crate) fn has_sleepers(&self) -> bool {
        // Relaxed: the answer may be stale before it arrives.
        self.word().load(Ordering::Relaxed) & WAITERS != 0
    }

    /// The identity of the task that holds the lock at this moment, or held it as it died.
    pub(crate) fn holder(&self) -> Option<u64> {
        // Relaxed: the answer may be stale before it arrives.
        let word = self.word().load(Ordering::Relaxed);
        is_held(word).then(|| owner_of(word))
    }

    /// Whether the task with this identity has died. The calling task becomes one of the region.
    #[cfg(all(feature = "foreign", not(loom)))]
    pub(crate) fn is_of_dead(&self, owner: u64) -> bool {
        Member::at(self.address()).is_ok_and(|me| me.is_gone(owner))
    }

    /// The identity of the calling task in the region that the lock lies in. It becomes a task of it if it is none yet.
    pub(crate) fn join(&self) -> Result<u64, NotATask> {
        Member::at(self.address()).map(Member::identity)
    }

    /// The identity of the calling task in the region that the lock lies in, if it is a task of it.
    #[inline(always)]
    pub(crate) fn own_identity(&self) -> Option<u64> {
        let (me, address) = (Me::current_or_none(), self.address());
        me.first_identity_at(address)
            .or_else(|| me.member_at(address).map(Member::identity))
    }

    /// Frees one of the library's own locks, whose owner, if it has one, is gone: the next owner gets `OwnerDied`. For a
    /// region without tasks. (`AtRest` does the same with the locks of a program, which may have a gate.)
    #[doc(hidden)]
    pub fn end_ownership(&self) {
        // The library makes none of its locks not recoverable.
        let state = rested(self.word().load(Ordering::Relaxed), 0);
        // Relaxed, also above: no task uses the lock.
        self.word().store(state, Ordering::Relaxed);
    }
}

impl From<RawError> for mutex::RawError<NotATask> {
    fn from(error: RawError) -> Self {
        match error {
            RawError::WouldBlock => Self::WouldBlock,
            RawError::TimedOut => Self::TimedOut,
            RawError::Interrupted => Self::Interrupted,
            RawError::NotRecoverable => Self::NotRecoverable,
            RawError::Deadlock => Self::Deadlock,
            RawError::Unavailable(reason) => Self::Refused(reason),
        }
    }
}

/// The word of a lock that no task uses any more. Whatever it was, if it was not that of a free lock, then the next owner gets
/// `OwnerDied`: it named an owner, who is gone, or had bits that are no state. The flags in `lasting` stay.
pub(super) fn rested(word: u64, lasting: u64) -> u64 {
    match word & lasting {
        0 if word == 0 => 0,
        0 => INCONSISTENT,
        flags => flags,
    }
}
