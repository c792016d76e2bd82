//! Sending: a small message is sent in one step under the lock; a larger one is copied outside it. Each way ends with
//! `Cells::commit` (`cells.rs`), which makes the message visible, and `Cells::announce`, which wakes receivers.

use super::error::SendError;
use super::handle::Queue;
use super::lane::Index;
use super::locked::SMALL;
use super::wait::Wait;
use super::wake::Wake;
use crate::hook::Site;
use crate::region::Task;
use crate::time::Deadline;
use core::time::Duration;

impl Queue<'_> {
    /// Sends a message, waiting while the queue is full.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::Attach`].
    #[track_caller]
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_within(message, Wait::Forever)
    }

    /// Sends a message if there is room at this moment.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::Full`], [`SendError::Attach`].
    #[track_caller]
    pub fn try_send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_within(message, Wait::Not)
    }

    /// Sends a message, waiting for room until `deadline`.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::TimedOut`], [`SendError::Attach`].
    #[track_caller]
    pub fn send_until(&self, message: &[u8], deadline: Deadline) -> Result<(), SendError> {
        self.send_within(message, Wait::Until(deadline))
    }

    /// Sends a message, waiting for room for at most `timeout`.
    ///
    /// # Errors
    /// As for [`Self::send_until`].
    #[track_caller]
    pub fn send_for(&self, message: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.send_within(message, Wait::at_most(timeout))
    }

    /// Checks that need no lock, in RTEMS's order.
    #[track_caller]
    pub(super) fn check_message(&self, bytes: usize) -> Result<(), SendError> {
        self.check_use(Site::caller())?;
        let max_message = self.max_message() as usize;
        if bytes > max_message {
            // Only if the size was that of the handle's queue.
            self.check_life()?;
            return Err(SendError::TooLong { bytes, max_message });
        }
        Ok(())
    }

    /// Commits a cell that was written outside the lock.
    pub(super) fn commit(
        &self,
        task: Task<'_>,
        index: Index,
        length: usize,
    ) -> Result<(), SendError> {
        let locked = self.lock_now(self.senders(), task)?;
        if let Err(deleted) = self.check_life() {
            locked.cells.abandon(index);
            drop(locked);
            self.after_flight();
            return Err(deleted.into());
        }
        locked.cells.commit(index, length, self.rank, 0);
        let wake = locked.cells.announce(1);
        locked.unlock(wake);
        Ok(())
    }

    #[track_caller]
    fn send_within(&self, message: &[u8], wait: Wait) -> Result<(), SendError> {
        self.check_message(message.len())?;
        if message.len() <= SMALL {
            return Ok(self.attempt(wait, |cells, _| {
                let index = cells.next_free()?;
                cells.fill(index, message);
                cells.commit(index, message.len(), self.rank, 0);
                Some(((), cells.announce(1)))
            })?);
        }
        let (index, task) = self.attempt(wait, |cells, task| {
            let index = cells.begin_send(task.owner())?;
            Some(((index, task), Wake::NONE))
        })?;
        self.cells.fill(index, message);
        self.commit(task, index, message.len())
    }
}
