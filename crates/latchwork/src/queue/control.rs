//! Flush and deletion.

use super::error::ControlError;
use super::handle::Queue;
use super::locked::Side;
use super::wake::Wake;
use crate::atomic::Ordering::Release;
use crate::hook::{Misuse, Site};

impl Queue<'_> {
    /// Drops all messages that are ready, and returns their number. Messages in flight stay in flight, and waiting
    /// receivers go on waiting; waiting senders find room.
    ///
    /// If the caller is killed during the flush, each message is still there or dropped.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    #[track_caller]
    pub fn flush(&self) -> Result<u32, ControlError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(Side::Receivers, task)?;
        self.check_use(Site::caller())?;
        let count = locked.cells.flush(task);
        let wake = Wake::senders(count);
        locked.unlock(wake);
        Ok(count)
    }

    /// Deletes the queue. Its messages are dropped; all tasks that wait at it, or use it later through any handle made
    /// before, get an error that reports the deletion. Messages in flight stay valid until they are finished, and are
    /// not delivered again.
    ///
    /// The name is free at once; the memory of the messages is freed when the last message in flight is finished. A few
    /// hundred bytes stay for the next queue, of any name and options; old handles do not become valid by that.
    ///
    /// A kill before the deletion is done leaves the queue as it was, or deleted; in the second case name and memory
    /// are freed when another queue is created.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    #[track_caller]
    pub fn delete(&self) -> Result<(), ControlError> {
        self.end_life()?;
        self.report_end(Site::caller());
        self.inner().release_name(self.cells.core);
        Ok(())
    }

    /// Deletes a queue that has no name.
    #[track_caller]
    pub(crate) fn end_life(&self) -> Result<(), ControlError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(Side::Both, task)?;
        self.check_use(Site::caller())?;
        let waiting = locked.cells.waiting();
        let fixed = &self.cells.core.fixed;
        // Release: a task that sees the later changes also sees this one.
        fixed.life.store(self.life.wrapping_add(1), Release);
        locked.cells.clear_away(task);
        locked.unlock(Wake::ALL);
        if waiting > 0 {
            self.report_misuse(Misuse::DeleteAwaited { waiting }, Site::caller());
        }
        Ok(())
    }
}
