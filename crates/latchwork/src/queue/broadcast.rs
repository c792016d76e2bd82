//! One message for all who wait at this moment.

use super::cells::{WRITING, owned};
use super::{Queue, SMALL, SendError};

impl Queue<'_> {
    /// Gives a message to every receiver that waits at this moment, and returns how many those are.
    /// Nothing is stored: who comes later does not get it, nor is it delivered again should a receiver
    /// die with it. A receiver waits from the moment at which it has looked in vain, and polled for some
    /// microseconds, until it is given something.
    ///
    /// A kill of the sender has it given to all or to none.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`]; [`SendError::Full`] if all places are taken by
    /// messages in flight, and earlier broadcasts that are still being read; [`SendError::Attach`].
    #[track_caller]
    pub fn broadcast(&self, message: &[u8]) -> Result<u32, SendError> {
        self.check_message(message.len())?;
        let task = self.inner().task()?;
        let mut locked = self.lock_now(self.everybody(), task)?;
        self.check_life()?;
        let cells = locked.cells;
        if cells.nobody_waits() {
            return Ok(0);
        }
        cells.refill();
        let index = cells.take_free().ok_or(SendError::Full)?;
        if message.len() <= SMALL {
            cells.fill(index, message);
        } else {
            cells.set(index, owned(WRITING, task.owner()));
            drop(locked);
            cells.fill(index, message);
            locked = self.lock_now(self.everybody(), task)?;
            if let Err(deleted) = self.check_life() {
                locked.cells.give_up(index);
                drop(locked);
                self.after_flight();
                return Err(deleted.into());
            }
        }
        let (readers, wake) = locked.cells.put_up(index, message.len());
        locked.unlock(wake);
        Ok(readers)
    }
}
