//! What can go wrong with a queue, by operation.

use crate::region::{AttachError, ObjectError};

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
    /// A queue of this name exists, with other capacities.
    #[error("the queue of this name holds {capacity} messages of {max_message} bytes")]
    OtherCapacity {
        /// Messages that it holds.
        capacity: u32,
        /// Bytes a message at most.
        max_message: u32,
    },
    /// The region refuses.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Why a message was not sent. Nothing of it is visible to receivers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The queue is full (`try_send`).
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
    /// The calling thread cannot become a task of the region, or take its locks.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The queue is empty (`try_receive`).
    #[error("the queue is empty")]
    Empty,
    /// The deadline passed before there was a message.
    #[error("the deadline passed before the queue had a message")]
    TimedOut,
    /// The next message does not fit the buffer; it stays in the queue.
    #[error("the next message has {bytes} bytes, the buffer {buffer}")]
    BufferTooSmall {
        /// Size of the message.
        bytes: usize,
        /// Size of the buffer.
        buffer: usize,
    },
    /// The calling thread cannot become a task of the region, or take its locks.
    #[error(transparent)]
    Attach(#[from] AttachError),
}
