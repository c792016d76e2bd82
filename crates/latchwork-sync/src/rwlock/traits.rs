//! The reader/writer lock behind the traits of [`lock_api`], for other crates.
#![allow(unsafe_code)]

use super::Preference;
use super::raw::RawRwLock;
use crate::mutex::WaitMode;
use crate::sharing::Sharing;
use crate::time::Deadline;
use core::time::Duration;

// SAFETY: a writer is alone, or only readers hold the lock, between entering and leaving; see `raw.rs`.
unsafe impl<S: Sharing, P: Preference> lock_api::RawRwLock for RawRwLock<S, P> {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the trait's way to spell a constructor"
    )]
    const INIT: Self = Self::new();
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock_shared(&self) {
        let _ = self.enter::<false>(WaitMode::FOREVER);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_enter::<false>()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock as a reader, as `unlock_read` requires.
        unsafe { self.unlock_read() }
    }

    #[inline]
    fn lock_exclusive(&self) {
        let _ = self.enter::<true>(WaitMode::FOREVER);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.try_enter::<true>()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock as a writer, as `unlock_write` requires.
        unsafe { self.unlock_write() }
    }

    fn is_locked(&self) -> bool {
        self.holders().0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.holders().1
    }
}

// SAFETY: the timed calls return true only after a successful `enter`.
unsafe impl<S: Sharing, P: Preference> lock_api::RawRwLockTimed for RawRwLock<S, P> {
    type Duration = Duration;
    type Instant = Deadline;

    #[inline]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.try_enter::<false>() || self.try_lock_shared_until(Deadline::after(timeout))
    }

    #[inline]
    fn try_lock_shared_until(&self, deadline: Deadline) -> bool {
        self.enter::<false>(WaitMode::until(Some(deadline))).is_ok()
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.try_enter::<true>() || self.try_lock_exclusive_until(Deadline::after(timeout))
    }

    #[inline]
    fn try_lock_exclusive_until(&self, deadline: Deadline) -> bool {
        self.enter::<true>(WaitMode::until(Some(deadline))).is_ok()
    }
}

// SAFETY: the writer becomes a reader in one step, so no writer comes in between.
unsafe impl<S: Sharing, P: Preference> lock_api::RawRwLockDowngrade for RawRwLock<S, P> {
    unsafe fn downgrade(&self) {
        // SAFETY: the caller holds the lock as a writer, as the inherent method requires.
        unsafe { Self::downgrade(self) }
    }
}
