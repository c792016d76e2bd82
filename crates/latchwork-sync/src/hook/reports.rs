//! Reports other than those of locks: waits for objects without an owner, freed memory, ends of threads.

use super::lock::{Kind, Lock};
use super::observer::{Observer, Registered, is_observed};
use super::site::Site;
use crate::atomic::{AtomicU32, Ordering::Acquire};
use core::ops::Range;

/// Reports that memory is about to be freed: a region's block, or a region.
#[inline]
pub fn freed(range: impl FnOnce() -> Range<usize>) {
    if is_observed() {
        Registered::freed(range());
    }
}

/// Reports that a condition variable with waiters is about to be notified.
#[inline]
pub fn notifies(condvar: Lock, all: bool) {
    if is_observed() {
        Registered::notifies(condvar, all);
    }
}

/// Reports that the end of the calling thread has begun; see [`Observer::task_ends`](super::Observer::task_ends).
pub fn task_ends() -> bool {
    is_observed() && Registered::task_ends()
}

/// A wait for an object without an owner, for as long as this lives.
#[derive(Debug)]
pub struct Waiting(Option<Wait>);

#[derive(Debug)]
struct Wait {
    object: Lock,
    site: Site,
    seems_alone: bool,
}

impl Waiting {
    /// Reports that the calling task is about to sleep for the object at this address.
    #[inline]
    #[track_caller]
    pub fn begin(kind: Kind, address: usize, timed: bool) -> Self {
        Self::begin_at(kind, address, timed, Site::caller())
    }

    /// As [`Self::begin`], with the place of the call.
    #[inline]
    pub fn begin_at(kind: Kind, address: usize, timed: bool, site: Site) -> Self {
        Self(is_observed().then(|| {
            let object = Lock::new(address, kind);
            let seems_alone = Registered::waits(object, timed, site);
            Wait {
                object,
                site,
                seems_alone,
            }
        }))
    }

    /// Reports the wait if no other task can end it. To be called just before the sleep.
    ///
    /// `must_sleep` checks the object again: another task may have signalled it and exited after the caller's last check
    /// and before the observer looked for other tasks.
    #[inline]
    pub fn report_if_alone(&self, must_sleep: impl FnOnce() -> bool) {
        if let Some(wait) = &self.0
            && wait.seems_alone
            && must_sleep()
        {
            Registered::waits_alone(wait.object, wait.site);
        }
    }

    /// Like [`Self::report_if_alone`], for a sleep that lasts while all `words` have these values.
    #[inline]
    pub fn report_if_alone_at(&self, words: &[(&AtomicU32, u32)]) {
        // Acquire: pairs with the stores of a task that has exited since.
        self.report_if_alone(|| {
            let is_same = |(word, value): &(&AtomicU32, u32)| word.load(Acquire) == *value;
            words.iter().all(is_same)
        });
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        if let Some(wait) = &self.0 {
            Registered::has_waited(wait.object);
        }
    }
}
