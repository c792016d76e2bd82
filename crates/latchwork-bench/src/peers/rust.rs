//! The locks of Rust programs.

use std::sync::PoisonError;

use super::FreeLock;

impl FreeLock for std::sync::Mutex<u64> {
    #[inline]
    fn increment(&self) {
        *self.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
}

impl FreeLock for parking_lot::Mutex<u64> {
    #[inline]
    fn increment(&self) {
        *self.lock() += 1;
    }
}
