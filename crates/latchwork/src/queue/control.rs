//! Flush and deletion.

use super::attempt::Side;
use super::wake::Wake;
use super::{ControlError, Queue};
use crate::atomic::Ordering::Release;
use crate::hook::{Misuse, Site};

impl Queue<'_> {
    /// Drops all messages that are ready, and returns how many. What is in flight stays so, and
    /// receivers that wait go on waiting; senders that wait find room.
    ///
    /// A kill in mid-flush leaves each message there or dropped.
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

    /// Deletes the queue: its messages are dropped, and all who wait at it, or use it later through
    /// this handle or others, get an error that says so. Messages in flight stay valid until they are
    /// finished, and do not come again.
    ///
    /// The name is free, and the memory of the messages is freed, when the last that is in flight is finished. A few
    /// hundred bytes stay for the next queue, of whatever name and options; old handles do not become valid by that.
    ///
    /// A kill before the deletion is done leaves the queue as it was, or deleted: name and memory are free then when
    /// another queue is made.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    #[track_caller]
    pub fn delete(&self) -> Result<(), ControlError> {
        self.end_life()?;
        self.report_end(Site::caller());
        self.inner().give_up_name(self.cells.core);
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
        // Release: who sees what comes next sees this.
        fixed.life.store(self.life.wrapping_add(1), Release);
        locked.cells.clear_away(task);
        locked.unlock(Wake::EVERYBODY);
        if waiting > 0 {
            self.tell(Misuse::DeleteAwaited { waiting }, Site::caller());
        }
        Ok(())
    }
}
