//! The calling task of a model as a task of a region, and a region lock without data and guards.

use super::Taken;
use crate::mutex::in_region::{InRegion, RawError};
use crate::mutex::{Acquired, WaitMode};
use crate::time::Deadline;
use latchwork_sys::model::mortal;

pub use crate::task::after_owner_death;

/// Does not occur in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotATask {}

impl core::fmt::Display for NotATask {
    fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {}
    }
}

impl core::error::Error for NotATask {}

/// The twin of `CurrentOrNone`, as far as region locks use it.
#[derive(Clone, Copy)]
pub struct Me;

impl Me {
    pub fn current_or_none() -> Self {
        Self
    }

    pub fn first_identity_at(self, _: usize) -> Option<u64> {
        Some(mortal::identity())
    }

    pub fn first_acquired(self) {}

    pub fn first_released(self) {}

    pub fn member_at(self, _: usize) -> Option<Member> {
        Some(Member)
    }
}

/// The twin of the task of a region.
#[derive(Clone, Copy)]
pub struct Member;

impl Member {
    pub fn at(_: usize) -> Result<Self, NotATask> {
        Ok(Self)
    }

    pub fn identity(self) -> u64 {
        mortal::identity()
    }

    pub fn acquired(self) {}

    pub fn released(self) {}

    pub fn is_gone(self, identity: u64) -> bool {
        mortal::is_gone(identity)
    }
}

/// A region lock without data and guards, for a death that runs no destructor.
#[derive(Default)]
pub struct RegionLock(InRegion);

impl RegionLock {
    /// Acquires the lock.
    ///
    /// # Panics
    /// If the result has no counterpart in [`Taken`].
    pub fn lock(&self, deadline: Option<Deadline>) -> Taken {
        if self.0.acquire_free().is_some() {
            return Taken::Clean;
        }
        match self.0.acquire_slowly(WaitMode::until(deadline)) {
            Ok((Acquired::Clean, _)) => Taken::Clean,
            Ok((Acquired::OwnerDied, _)) => Taken::OwnerDied,
            Err(RawError::NotRecoverable) => Taken::NotRecoverable,
            Err(RawError::TimedOut) => Taken::TimedOut,
            Err(RawError::Deadlock) => Taken::Deadlock,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Declares the data whole.
    pub fn mark_consistent(&self) {
        self.0.mark_consistent(mortal::identity());
    }

    /// Releases the lock, with whole data.
    ///
    /// # Safety
    /// The calling task holds it.
    #[allow(unsafe_code)]
    pub unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.release_guarded(mortal::identity()) };
    }

    /// Releases the lock: the next owner is told of the death, too.
    pub fn pass_on(&self) {
        self.0.unlock_inconsistent(mortal::identity());
    }

    /// Gives the lock up.
    pub fn give_up(&self) {
        self.0.release_not_recoverable(mortal::identity());
    }
}
