//! The spinlock: for critical sections of a few instructions whose owner is not preempted.
//!
//! Its waiters poll until they have it, so it is for threads that are bound to processors of their own, and for the
//! shortest critical sections.
//!
//! ```
//! use latchwork::mutex::Mutex;
//! use latchwork::spin::Spin;
//!
//! static HITS: Mutex<u64, Spin> = Mutex::from_raw(Spin::new(), 0);
//! *HITS.lock() += 1;
//! ```
//!
//! # How it works
//!
//! Test and test-and-set on one word: 0 is free, 1 is held. Lock: swap 1, Acquire; unlock: store 0, Release.
//! *When not to use it:* whenever an owner may be preempted or killed: waiters then burn its time slice, or
//! spin for ever. After a burst of 128 polls a waiter yields its CPU, so that a preempted owner of the same priority can
//! run. It sleeps for 100 µs instead where a yield would let other programs work for a whole time slice; and a real-time
//! waiter does, since a yield would not let an owner of lower priority run, which it may keep off its CPU.
//! *Owner death:* the lock stays held. *Frozen:* size 4, zero = free.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, Ordering};
use crate::backoff::{Burst, yield_if_brief};
use crate::hook::Traits;
use crate::mutex::RawLock;
use crate::sys::futex_pi::{is_real_time, let_others_run};
use crate::time::Deadline;

/// The spinning protocol, as the parameter of a [`Mutex`](crate::mutex::Mutex), for critical sections of a few
/// instructions whose owner is neither preempted nor killed: see the [module](self).
#[derive(Debug, Default)]
pub struct Spin {
    word: AtomicU32,
}

impl Spin {
    /// An unlocked lock, for threads and processes alike.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn lock_contended(&self, deadline: Option<Deadline>) -> bool {
        crate::sys::slow_paths::acquisition();
        let mut sleeps = None;
        loop {
            let polled = Burst::SPINLOCK.poll(|| {
                // Relaxed: only `try_lock` acquires the lock.
                (!self.is_locked() && self.try_lock()).then_some(())
            });
            if polled.is_some() {
                return true;
            }
            if deadline.is_some_and(Deadline::has_passed) {
                return false;
            }
            if *sleeps.get_or_insert_with(is_real_time) || !yield_if_brief() {
                let_others_run();
            }
        }
    }
}

// SAFETY: only one task changes the word from 0, with Acquire; its owner stores 0 with Release.
unsafe impl RawLock for Spin {
    const TRAITS: Traits = Traits::SHARED;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`.
        self.word.swap(1, Ordering::Acquire) == 0
    }

    #[inline]
    fn lock_until(&self, deadline: Deadline) -> bool {
        self.try_lock() || self.lock_contended(Some(deadline))
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.word.store(0, Ordering::Release);
    }
}

crate::mutex::implement_lock_api!({} Spin, Spin::is_locked);
