//! Physical floors: the least that a lock could cost.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::FreeLock;

/// Two inlined atomic read-modify-writes, which nobody could wait for. It is no lock: a second task
/// would spin for ever.
#[derive(Default)]
#[repr(C)]
pub(crate) struct TwoRmw {
    word: AtomicU32,
    datum: UnsafeCell<u64>,
}

// SAFETY: `datum` is touched only between the two exchanges, which one thread at a time gets past.
unsafe impl Sync for TwoRmw {}

impl FreeLock for TwoRmw {
    #[inline]
    fn increment(&self) {
        // Acquire pairs with the Release of the swap below, as in a lock.
        while self
            .word
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::hint::spin_loop();
        }
        // SAFETY: the word was taken, so no other thread is here.
        unsafe { *self.datum.get() += 1 };
        // Release pairs with the Acquire above.
        self.word.swap(0, Ordering::Release);
    }
}
