//! Receiving: a small message is copied in one step under the lock; a larger one, or one that is
//! received in place, is in flight until it is finished.

use super::attempt::{Failure, Patience, Step};
use super::cells::{Cells, Index};
use super::sleepers::Wake;
use super::{Message, Queue, ReceiveError, SMALL};
use crate::region::heap::Owner;
use crate::time::Deadline;
use core::time::Duration;

impl<'r> Queue<'r> {
    /// Receives a message into `buffer`, waiting while the queue is empty; returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::BufferTooSmall`], [`ReceiveError::Attach`].
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.receive_with(buffer, Patience::Until(None))
    }

    /// Receives a message into `buffer` if there is one at this moment; returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`], [`ReceiveError::BufferTooSmall`], [`ReceiveError::Attach`].
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.receive_with(buffer, Patience::Try)
    }

    /// Receives a message into `buffer`, waiting for one until `deadline`; returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::BufferTooSmall`], [`ReceiveError::Attach`].
    pub fn receive_until(
        &self,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<usize, ReceiveError> {
        self.receive_with(buffer, Patience::Until(Some(deadline)))
    }

    /// Receives a message into `buffer`, waiting for one for at most `timeout`; returns its length.
    ///
    /// # Errors
    /// As for [`Self::receive_until`].
    pub fn receive_for(&self, buffer: &mut [u8], timeout: Duration) -> Result<usize, ReceiveError> {
        self.receive_until(buffer, Deadline::after(timeout))
    }

    /// Takes a message in place, waiting while the queue is empty. It stays in flight, and is
    /// delivered again should this task die, until [`Message::done`].
    ///
    /// # Errors
    /// [`ReceiveError::Attach`].
    pub fn receive_held(&self) -> Result<Message<'r>, ReceiveError> {
        self.hold_with(Patience::Until(None))
    }

    /// Takes a message in place if there is one at this moment.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`], [`ReceiveError::Attach`].
    pub fn try_receive_held(&self) -> Result<Message<'r>, ReceiveError> {
        self.hold_with(Patience::Try)
    }

    /// Takes a message in place, waiting for one until `deadline`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::Attach`].
    pub fn receive_held_until(&self, deadline: Deadline) -> Result<Message<'r>, ReceiveError> {
        self.hold_with(Patience::Until(Some(deadline)))
    }

    fn receive_with(&self, buffer: &mut [u8], patience: Patience) -> Result<usize, ReceiveError> {
        let received = self.attempt(patience, &self.cells.core.receivers, |cells, task| {
            let Some(first) = cells.peek() else {
                return (Step::Wait, Wake::NONE);
            };
            let message = cells.message(first);
            if message.len() > buffer.len() {
                // Another receiver may have the room: pass the wake-up on.
                let error = ReceiveError::BufferTooSmall {
                    bytes: message.len(),
                    buffer: buffer.len(),
                };
                return (Step::Done(Err(error)), cells.core.receivers.notify());
            }
            if message.len() <= SMALL {
                let length = message.len();
                buffer[..length].copy_from_slice(message);
                cells.drop_first();
                return (
                    Step::Done(Ok(Received::Copied(length))),
                    cells.core.senders.notify(),
                );
            }
            match cells.begin_receive(task.owner()) {
                Some(index) => (
                    Step::Done(Ok(Received::Held(index, task.owner()))),
                    Wake::NONE,
                ),
                None => (Step::Wait, Wake::NONE),
            }
        })??;
        match received {
            Received::Copied(length) => Ok(length),
            Received::Held(index, owner) => {
                let message = self.cells.message(index);
                buffer[..message.len()].copy_from_slice(message);
                let length = message.len();
                self.finish(index, owner, Cells::release)?;
                Ok(length)
            }
        }
    }

    fn hold_with(&self, patience: Patience) -> Result<Message<'r>, ReceiveError> {
        self.attempt(patience, &self.cells.core.receivers, |cells, task| {
            let owner = task.owner();
            let Some(index) = cells.begin_receive(owner) else {
                return (Step::Wait, Wake::NONE);
            };
            task.slot.message_taken();
            (Step::Done(Message::new(*self, index, owner)), Wake::NONE)
        })
        .map_err(ReceiveError::from)
    }
}

enum Received {
    Copied(usize),
    Held(Index, Owner),
}

impl From<Failure> for ReceiveError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused => Self::Empty,
            Failure::TimedOut => Self::TimedOut,
            Failure::Attach(error) => Self::Attach(error),
        }
    }
}
