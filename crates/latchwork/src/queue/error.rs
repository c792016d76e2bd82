//! The errors of queue operations.

use crate::region::{AllocError, AttachError, Box, ObjectError, StorageError};
use core::fmt;

/// The reason why a step of an operation was not done; each operation makes its own error of it.
pub(super) enum Failure {
    Refused,
    TimedOut,
    Deleted,
    Attach(AttachError),
    Storage(StorageError),
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        Self::Storage(error.into())
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

/// The reason why a queue was not created or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A capacity or message size is 0, or the queue would be larger than the address space.
    #[error(
        "a queue holds 1 to 2^30 messages of 1 to 2^30 bytes; {capacity} of {max_message} bytes were asked for"
    )]
    Capacity {
        /// The number of messages asked for.
        capacity: u32,
        /// The size of a message that was asked for, in bytes.
        max_message: u32,
    },
    /// A queue of this name exists, with other options.
    #[error(
        "the queue of this name holds {capacity} messages of {max_message} bytes, or serves its receivers in another order"
    )]
    OtherOptions {
        /// The number of messages that it holds.
        capacity: u32,
        /// Its largest size of a message, in bytes.
        max_message: u32,
    },
    /// The region cannot hold the queue, or has another object of this name.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl From<AttachError> for QueueError {
    fn from(error: AttachError) -> Self {
        Self::Object(error.into())
    }
}

/// The reason why a message was not sent. Nothing of it is visible to receivers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// All places are taken by messages that are pending, being written, or in the hands of receivers, and the call
    /// does not wait. A message that was handed or broadcast to a waiting receiver takes no place; nor does one that a
    /// receiver is copying, where receivers are served in order. A message that a receiver
    /// [holds](super::Queue::receive_held) takes one.
    #[error("the queue is full")]
    Full,
    /// The deadline passed before there was room.
    #[error("the deadline passed before the queue had room")]
    TimedOut,
    /// The message is larger than the queue takes.
    #[error("the message has {bytes} bytes, the queue takes {max_message}")]
    TooLong {
        /// The size of the message.
        bytes: usize,
        /// The largest size that the queue takes.
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
            // Senders allocate no memory.
            Failure::Refused | Failure::Storage(_) => Self::Full,
            Failure::TimedOut => Self::TimedOut,
            Failure::Deleted => Self::Deleted,
            Failure::Attach(error) => Self::Attach(error),
        }
    }
}

/// A box that was not sent, and the reason.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SendBlockError<'r> {
    /// The box.
    pub bytes: Box<'r, [u8]>,
    /// The reason why it was not sent.
    #[source]
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

/// The reason why no message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The queue is empty, and the call does not wait.
    #[error("the queue is empty")]
    Empty,
    /// The deadline passed before there was a message.
    #[error("the deadline passed before the queue had a message")]
    TimedOut,
    /// The next message does not fit the buffer. It stays in the queue, unless it was broadcast; then the caller has
    /// missed it.
    #[error("the next message has {bytes} bytes, the buffer {buffer}")]
    BufferTooSmall {
        /// The size of the message.
        bytes: usize,
        /// The size of the buffer.
        buffer: usize,
    },
    /// The queue was deleted, before the call or during it.
    #[error("the queue was deleted")]
    Deleted,
    /// The region has no room for a block of the caller's own, and the message stays in the queue; or no room for a
    /// cell for what the caller may be given while it waits.
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

/// The reason why messages were not counted or dropped, or the queue not deleted.
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
