//! One message for all receivers that wait at this moment.

use super::error::SendError;
use super::handle::Queue;

impl Queue<'_> {
    /// Gives a message to every receiver that waits at this moment, and returns their number. The queue stores nothing:
    /// a later receiver does not get the message, and it is not delivered again if a receiver dies with it. A receiver
    /// waits from the moment at which it has found the queue empty and polled for some microseconds, until it is given
    /// a message.
    ///
    /// A broadcast needs no place in the queue, and takes none from others, however many earlier broadcasts are still
    /// unread: each waiting receiver has made sure of a cell for what it may be given.
    ///
    /// If the sender is killed, all of the receivers are given the message, or none. The message is copied under the
    /// queue's locks, whatever its length.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::Attach`].
    #[track_caller]
    pub fn broadcast(&self, message: &[u8]) -> Result<u32, SendError> {
        self.check_message(message.len())?;
        let task = self.inner().task()?;
        let locked = self.lock_now(self.live_locks(), task)?;
        self.check_life()?;
        let cells = locked.cells;
        if cells.waiting() == 0 {
            return Ok(0);
        }
        // A spare cell exists while a receiver waits: see `spares.rs`.
        let index = cells.take_spare().ok_or(SendError::Full)?;
        cells.fill(index, message);
        let (readers, wake) = cells.post_board(index, message.len());
        locked.unlock(wake);
        Ok(readers)
    }
}
