//! Sending: a small message in one step under the lock; a larger one is copied outside it.
#![allow(unsafe_code)]

use super::attempt::{Failure, Patience, Step};
use super::sleepers::Wake;
use super::{Queue, SMALL, SendError};
use crate::time::Deadline;
use core::ptr::NonNull;
use core::time::Duration;

impl Queue<'_> {
    /// Sends a message, waiting while the queue is full.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Attach`].
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message, Patience::Until(None))
    }

    /// Sends a message if there is room at this moment.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::TooLong`], [`SendError::Attach`].
    pub fn try_send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message, Patience::Try)
    }

    /// Sends a message, waiting for room until `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`], [`SendError::TooLong`], [`SendError::Attach`].
    pub fn send_until(&self, message: &[u8], deadline: Deadline) -> Result<(), SendError> {
        self.send_with(message, Patience::Until(Some(deadline)))
    }

    /// Sends a message, waiting for room for at most `timeout`.
    ///
    /// # Errors
    /// As for [`Self::send_until`].
    pub fn send_for(&self, message: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.send_until(message, Deadline::after(timeout))
    }

    fn send_with(&self, message: &[u8], patience: Patience) -> Result<(), SendError> {
        let max_message = self.max_message() as usize;
        if message.len() > max_message {
            return Err(SendError::TooLong {
                bytes: message.len(),
                max_message,
            });
        }
        let senders = &self.cells.core.senders;
        if message.len() <= SMALL {
            return Ok(self.attempt(patience, senders, |cells, _| {
                if cells.send_small(message) {
                    (Step::Done(()), cells.core.receivers.notify())
                } else {
                    (Step::Wait, Wake::NONE)
                }
            })?);
        }
        let index = self.attempt(patience, senders, |cells, task| {
            match cells.begin_send(task.owner()) {
                Some(index) => (Step::Done(index), Wake::NONE),
                None => (Step::Wait, Wake::NONE),
            }
        })?;
        // SAFETY: the cell is ours until the commit, and has room for `max_message` bytes.
        unsafe {
            self.cells
                .bytes(index)
                .copy_from_nonoverlapping(NonNull::from(message).cast(), message.len())
        };
        let locked = self.lock(self.inner().deaths())?;
        locked.cells.commit(index, message.len());
        let wake = locked.cells.core.receivers.notify();
        locked.unlock(wake);
        Ok(())
    }
}

impl From<Failure> for SendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused => Self::Full,
            Failure::TimedOut => Self::TimedOut,
            Failure::Attach(error) => Self::Attach(error),
        }
    }
}
