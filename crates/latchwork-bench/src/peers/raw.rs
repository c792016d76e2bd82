//! Locks whose operations are calls with an address, wrapped with a datum and a guard.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;

use latchwork::mutex::KeptBoost;
use latchwork::time::Deadline;

use super::Lock;

/// A lock without a datum.
///
/// # Safety
/// No other task gets the lock between `lock` and `unlock`.
pub(crate) unsafe trait RawLock: Send + Sync + Sized + 'static {
    /// Size of the lock.
    const BYTES: usize = size_of::<Self>();

    /// See [`Lock::settle`].
    ///
    /// # Safety
    /// Called once, before all other functions; the lock does not move afterwards.
    unsafe fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    /// See [`Lock::enlist`].
    fn enlist() -> io::Result<()> {
        Ok(())
    }

    /// Locks, ignoring errors.
    ///
    /// # Safety
    /// `settle` was called.
    unsafe fn lock(&self);

    /// Unlocks.
    ///
    /// # Safety
    /// The caller holds the lock.
    unsafe fn unlock(&self);

    /// See [`Lock::check`].
    ///
    /// # Safety
    /// As for [`lock`](Self::lock).
    unsafe fn check(&self) -> io::Result<()> {
        // SAFETY: the caller keeps the contract, and the lock is held after `lock`.
        unsafe {
            self.lock();
            self.unlock();
        }
        Ok(())
    }

    /// Locks, or fails at `deadline`; returns whether it is locked.
    ///
    /// # Safety
    /// As for [`lock`](Self::lock).
    unsafe fn lock_until(&self, _deadline: Deadline) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A [`RawLock`] and the datum that it protects.
#[repr(C)]
pub(crate) struct Raw<R> {
    lock: R,
    datum: UnsafeCell<u64>,
}

// SAFETY: `datum` is accessed only under the lock.
unsafe impl<R: RawLock> Sync for Raw<R> {}

impl<R> Raw<R> {
    pub(crate) fn new(lock: R) -> Self {
        Self {
            lock,
            datum: UnsafeCell::new(0),
        }
    }
}

impl<R: RawLock> Lock for Raw<R> {
    type Held<'a> = Held<'a, R>;

    const BYTES: usize = R::BYTES;

    fn settle(self: Pin<&Self>) -> io::Result<()> {
        // SAFETY: the lock is pinned; `placed` calls this once, before all else.
        unsafe { self.get_ref().lock.settle() }
    }

    fn enlist() -> io::Result<Option<KeptBoost>> {
        R::enlist().map(|()| None)
    }

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Held<'a, R> {
        let raw = self.get_ref();
        // SAFETY: `placed` has settled every pinned lock.
        unsafe { raw.lock.lock() };
        Held(raw)
    }

    fn check(self: Pin<&Self>) -> io::Result<()> {
        // SAFETY: `placed` has settled every pinned lock.
        unsafe { self.get_ref().lock.check() }
    }

    fn times_out(self: Pin<&Self>, deadline: Deadline) -> io::Result<bool> {
        let raw = self.get_ref();
        // SAFETY: `placed` has settled every pinned lock.
        let locked = unsafe { raw.lock.lock_until(deadline) }?;
        if locked {
            drop(Held(raw));
        }
        Ok(!locked)
    }
}

/// The right to use the datum.
pub(crate) struct Held<'a, R: RawLock>(&'a Raw<R>);

impl<R: RawLock> Deref for Held<'_, R> {
    type Target = u64;

    #[inline]
    fn deref(&self) -> &u64 {
        // SAFETY: the lock is held.
        unsafe { &*self.0.datum.get() }
    }
}

impl<R: RawLock> DerefMut for Held<'_, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut u64 {
        // SAFETY: the lock is held, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.datum.get() }
    }
}

impl<R: RawLock> Drop for Held<'_, R> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the lock is held until here.
        unsafe { self.0.lock.unlock() };
    }
}
