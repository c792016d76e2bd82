//! One message for all who wait at this moment.

use super::{Queue, SendError};

impl Queue<'_> {
    /// Gives a message to every receiver that waits at this moment, and returns how many those are.
    /// Nothing is stored: who comes later does not get it, nor is it delivered again should a receiver
    /// die with it. A receiver waits from the moment at which it has looked in vain, and polled for some
    /// microseconds, until it is given something.
    ///
    /// It needs no place in the queue, and takes none from others, however many earlier broadcasts have still to be
    /// read: each receiver that waits has made sure of a cell for what it may be given.
    ///
    /// A kill of the sender has it given to all or to none. The message is copied under the queue's locks, of
    /// whatever length it is.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::Attach`].
    #[track_caller]
    pub fn broadcast(&self, message: &[u8]) -> Result<u32, SendError> {
        self.check_message(message.len())?;
        let task = self.inner().task()?;
        let locked = self.lock_now(self.everybody(), task)?;
        self.check_life()?;
        let cells = locked.cells;
        if cells.nobody_waits() {
            return Ok(0);
        }
        // There is one: see `spares.rs`.
        let index = cells.take_spare().ok_or(SendError::Full)?;
        cells.fill(index, message);
        let (readers, wake) = cells.put_up(index, message.len());
        locked.unlock(wake);
        Ok(readers)
    }
}
