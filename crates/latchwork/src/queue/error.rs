//! What can go wrong with a queue, by operation.

use super::attempt::Failure;
use crate::region::{AttachError, Box, ObjectError, StorageError};
use core::fmt;

/// Why a queue was not made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A capacity or message size is 0, or the queue would be larger than the address space.
    #[error(
        "a queue holds 1 to 2^30 messages of 1 to 2^30 bytes; {capacity} of {max_message} bytes were asked for"
    )]
    Capacity {
        /// Messages asked for.
        capacity: u32,
        /// Bytes a message asked for.
        max_message: u32,
    },
    /// A queue of this name exists, with other options.
    #[error(
        "the queue of this name holds {capacity} messages of {max_message} bytes, or serves its receivers in another order"
    )]
    OtherOptions {
        /// Messages that it holds.
        capacity: u32,
        /// Bytes a message at most.
        max_message: u32,
    },
    /// The region refuses.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl From<AttachError> for QueueError {
    fn from(error: AttachError) -> Self {
        Self::Object(error.into())
    }
}

/// Why a message was not sent. Nothing of it is visible to receivers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// All places are taken, by messages that are pending, being written, or in the hands of receivers, and the call
    /// does not wait. What was handed or broadcast to receivers that wait takes none, nor, where receivers are served
    /// in order, what one is copying; what it [holds](super::Queue::receive_held) does.
    #[error("the queue is full")]
    Full,
    /// The deadline passed before there was room.
    #[error("the deadline passed before the queue had room")]
    TimedOut,
    /// The message is larger than the queue takes.
    #[error("the message has {bytes} bytes, the queue takes {max_message}")]
    TooLong {
        /// Size of the message.
        bytes: usize,
        /// The most that the queue takes.
        max_message: usize,
    },
    /// The queue was deleted, before the call or during it.
    #[error("the queue was deleted")]
    Deleted,
    /// The box lies in another region than the queue.
    #[error("the box lies in another region than the queue")]
    OtherRegion,
    /// The calling thread cannot become a task of the region, or take its locks.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl From<Failure> for SendError {
    fn from(failure: Failure) -> Self {
        match failure {
            // Senders ask for no memory.
            Failure::Refused | Failure::Storage(_) => Self::Full,
            Failure::TimedOut => Self::TimedOut,
            Failure::Deleted => Self::Deleted,
            Failure::Attach(error) => Self::Attach(error),
        }
    }
}

/// A box that was not sent, and why.
pub struct SendBlockError<'r> {
    /// What was to be sent.
    pub bytes: Box<'r, [u8]>,
    /// Why it was not.
    pub error: SendError,
}

impl fmt::Debug for SendBlockError<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SendBlockError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for SendBlockError<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl core::error::Error for SendBlockError<'_> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The queue is empty, and the call does not wait.
    #[error("the queue is empty")]
    Empty,
    /// The deadline passed before there was a message.
    #[error("the deadline passed before the queue had a message")]
    TimedOut,
    /// The next message does not fit the buffer; it stays in the queue, unless it is a broadcast one,
    /// which the caller has missed.
    #[error("the next message has {bytes} bytes, the buffer {buffer}")]
    BufferTooSmall {
        /// Size of the message.
        bytes: usize,
        /// Size of the buffer.
        buffer: usize,
    },
    /// The queue was deleted, before the call or during it.
    #[error("the queue was deleted")]
    Deleted,
    /// The region has no room for a block of the caller's own, and the message stays in the queue; or none for a cell
    /// of what a receiver that is about to wait may be given.
    #[error(transparent)]
    Storage(StorageError),
    /// The calling thread cannot become a task of the region, or take its locks.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl From<Failure> for ReceiveError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused => Self::Empty,
            Failure::Storage(error) => Self::Storage(error),
            Failure::TimedOut => Self::TimedOut,
            Failure::Deleted => Self::Deleted,
            Failure::Attach(error) => Self::Attach(error),
        }
    }
}

/// Why messages were not counted or dropped, or the queue not deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The queue was deleted.
    #[error("the queue was deleted")]
    Deleted,
    /// The calling thread cannot become a task of the region, or take its locks.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl From<Failure> for ControlError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Attach(error) => Self::Attach(error),
            _ => Self::Deleted,
        }
    }
}
