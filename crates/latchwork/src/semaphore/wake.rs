//! Wake-ups that are carried out after the object's lock is released.

use crate::atomic::AtomicU32;
use crate::sys::futex::{self, Sharing};

/// A wake-up for one task, to be carried out after the lock is released. The task may have gone by that time.
#[must_use]
pub(crate) struct Wake(*const AtomicU32);

impl Wake {
    /// Wakes no task.
    pub(crate) const NONE: Self = Self(core::ptr::null());

    pub(super) fn of(word: &AtomicU32) -> Self {
        Self(word)
    }

    pub(crate) fn carry_out(self) {
        if !self.0.is_null() {
            futex::wake(self.0, 1, Sharing::Shared);
        }
    }
}
