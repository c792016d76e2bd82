//! The calls that acquire a reader/writer lock.

use super::guard::{ReadGuard, WriteGuard};
use super::lock::RwLock;
use super::preference::Preference;
use super::report;
use crate::mutex::{Unfinished, WaitMode};
use crate::sharing::Sharing;
use crate::time::Deadline;
#[cfg(not(loom))]
use core::time::Duration;

impl<T: ?Sized, S: Sharing, P: Preference> RwLock<T, S, P> {
    /// Acquires the lock to read. Waits without a limit.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, S, P> {
        // Only success ends an endless wait.
        let _ = report::enter::<_, _, false>(&self.raw, WaitMode::FOREVER);
        ReadGuard::new(self)
    }

    /// Acquires the lock to read, if readers may enter at this moment.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T, S, P>> {
        report::try_enter::<_, _, false>(&self.raw).then(|| ReadGuard::new(self))
    }

    /// Acquires the lock to read, or returns `None` once `deadline` has passed.
    #[inline]
    #[track_caller]
    pub fn read_until(&self, deadline: Deadline) -> Option<ReadGuard<'_, T, S, P>> {
        let taken = report::enter::<_, _, false>(&self.raw, WaitMode::until(Some(deadline)));
        taken.is_ok().then(|| ReadGuard::new(self))
    }

    /// Acquires the lock to read, or returns `None` after `timeout`.
    #[cfg(not(loom))]
    #[inline]
    #[track_caller]
    pub fn read_for(&self, timeout: Duration) -> Option<ReadGuard<'_, T, S, P>> {
        match self.try_read() {
            Some(guard) => Some(guard),
            None => self.read_until(Deadline::after(timeout)),
        }
    }

    /// Acquires the lock to read. Gives up at `deadline`, if there is one, and when a signal handler runs in
    /// this thread while it sleeps; see [`Mutex::lock_interruptible`](crate::mutex::Mutex::lock_interruptible).
    ///
    /// # Errors
    /// [`Unfinished`]: the lock is not acquired.
    #[inline]
    #[track_caller]
    pub fn read_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<ReadGuard<'_, T, S, P>, Unfinished> {
        report::enter::<_, _, false>(&self.raw, WaitMode::interruptible(deadline))?;
        Ok(ReadGuard::new(self))
    }

    /// Acquires the lock to write. Waits without a limit.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T, S, P> {
        // Only success ends an endless wait.
        let _ = report::enter::<_, _, true>(&self.raw, WaitMode::FOREVER);
        WriteGuard::new(self)
    }

    /// Acquires the lock to write, if it is free at this moment.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T, S, P>> {
        report::try_enter::<_, _, true>(&self.raw).then(|| WriteGuard::new(self))
    }

    /// Acquires the lock to write, or returns `None` once `deadline` has passed.
    #[inline]
    #[track_caller]
    pub fn write_until(&self, deadline: Deadline) -> Option<WriteGuard<'_, T, S, P>> {
        let taken = report::enter::<_, _, true>(&self.raw, WaitMode::until(Some(deadline)));
        taken.is_ok().then(|| WriteGuard::new(self))
    }

    /// Acquires the lock to write, or returns `None` after `timeout`.
    #[cfg(not(loom))]
    #[inline]
    #[track_caller]
    pub fn write_for(&self, timeout: Duration) -> Option<WriteGuard<'_, T, S, P>> {
        match self.try_write() {
            Some(guard) => Some(guard),
            None => self.write_until(Deadline::after(timeout)),
        }
    }

    /// Acquires the lock to write, as [`Self::read_interruptible`] does to read.
    ///
    /// # Errors
    /// [`Unfinished`]: the lock is not acquired.
    #[inline]
    #[track_caller]
    pub fn write_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<WriteGuard<'_, T, S, P>, Unfinished> {
        report::enter::<_, _, true>(&self.raw, WaitMode::interruptible(deadline))?;
        Ok(WriteGuard::new(self))
    }
}
