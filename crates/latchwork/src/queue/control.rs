//! Flush and deletion.

use super::attempt::Side;
use super::wake::Wake;
use super::{ControlError, Queue};
use crate::atomic::Ordering::Relaxed;
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
    /// finished, and do not come again in the next queue of the name.
    ///
    /// The name, with its memory, is taken again by the next [`Queue::create`] with the same options;
    /// old handles do not become valid by that.
    ///
    /// A kill before the deletion is done leaves the queue as it was, or deleted with the messages
    /// still taking room, which the next queue of the name finds gone.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    #[track_caller]
    pub fn delete(&self) -> Result<(), ControlError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(self.everybody(), task)?;
        self.check_use(Site::caller())?;
        let waiting = locked.cells.waiting();
        let fixed = &self.cells.core.fixed;
        fixed.life.store(self.life.wrapping_add(1), Relaxed);
        locked.cells.flush(task);
        locked.cells.dismiss_waiters();
        locked.cells.discard_chunks(task);
        locked.unlock(Wake::EVERYBODY);
        if waiting > 0 {
            self.tell(Misuse::DeleteAwaited { waiting }, Site::caller());
        }
        Ok(())
    }
}
