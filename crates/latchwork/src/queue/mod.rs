//! Message queues in a region: bounded, many to many, and whole after any death.
//!
//! A message is 0 to `max_message` bytes. Messages arrive in the order in which their sends were
//! committed. Small ones are copied under the queue's lock, in one step; larger ones outside it.
//!
//! | who dies | when | then |
//! | --- | --- | --- |
//! | a sender | before the commit | nothing of the message is visible, its place is free again |
//! | a receiver (or its thread ends) | before [`Queue::receive`] has copied the message, or before [`Message::done`] | the message is delivered again, in its place |
//! | anybody | holding the queue's lock | the next one rebuilds the queue from its cells |
//! | a task that was woken for a message | before it took it | another one is woken |
//!
//! So a message is delivered at least once. To process each exactly once, take it with
//! [`Queue::receive_held`], and have the result and the mark "done" committed in one step (the
//! message's [deliveries](Message::deliveries) say whether there was an earlier try).
//!
//! ```
//! use latchwork::queue::{Queue, QueueOptions};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let queue = Queue::create(&region, "jobs", &QueueOptions::new(16, 64))?;
//! queue.send(b"first")?;
//! let message = queue.receive_held()?;
//! assert_eq!(&*message, b"first");
//! message.done();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Waiting:* a task polls for a moment, then sleeps through `region/park.rs`, which also notices
//! deaths; see `sleepers.rs` for why no wake-up is lost. Real-time tasks wake in priority order (the
//! kernel's order for sleepers on one word). *Fork:* the child is a task of its own; a message that
//! its parent has in flight stays the parent's, and finishing it in the child aborts. *Signal
//! handlers* must not use a queue that the code they interrupt may be using, nor keep a message.
//! *Cost:* a send or receive of a small message is one robust lock and unlock, and a copy; no system
//! call unless somebody sleeps.
#![allow(unsafe_code)]

mod attempt;
mod cells;
mod error;
mod message;
mod receive;
mod send;
pub(crate) mod sleepers;

pub use error::{QueueError, ReceiveError, SendError};
pub use message::Message;

use crate::atomic::Ordering;
use crate::region::{AttachError, Inner, Region, fingerprint};
use cells::{Cells, Shape};
use core::fmt;
use core::ptr::NonNull;
use sleepers::Wake;
use std::sync::Arc;

/// Up to this size a message is copied under the lock: two more lock operations cost as much as
/// copying some hundred bytes.
const SMALL: usize = 512;

/// How a queue is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    capacity: u32,
    max_message: u32,
}

impl QueueOptions {
    /// A queue for `capacity` messages of at most `max_message` bytes each. All of its memory is
    /// taken at once.
    #[must_use]
    pub const fn new(capacity: u32, max_message: u32) -> Self {
        Self {
            capacity,
            max_message,
        }
    }

    fn shape(self) -> Result<Shape, QueueError> {
        let fits = |value: u32| (1..=1 << 30).contains(&value);
        let error = QueueError::Capacity {
            capacity: self.capacity,
            max_message: self.max_message,
        };
        if fits(self.capacity) && fits(self.max_message) {
            Shape::new(self.capacity, self.max_message).ok_or(error)
        } else {
            Err(error)
        }
    }
}

const FINGERPRINT: u64 = fingerprint(
    "queue",
    size_of::<cells::Core>(),
    align_of::<cells::Core>(),
    &[size_of::<cells::Cell>() as u64, 1],
);

/// A handle on a message queue in a region. Any task of the region may send and receive.
#[derive(Clone, Copy)]
pub struct Queue<'r> {
    region: &'r Region,
    cells: Cells<'r>,
}

// SAFETY: all of a queue is atomics under its lock, or bytes that one task has.
unsafe impl Send for Queue<'_> {}
// SAFETY: as above.
unsafe impl Sync for Queue<'_> {}

impl<'r> Queue<'r> {
    /// Makes the queue of this name, or opens it if it exists with the same capacities.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub fn create(
        region: &'r Region,
        name: &str,
        options: &QueueOptions,
    ) -> Result<Self, QueueError> {
        let shape = options.shape()?;
        let (block, bytes) = region.raw_object(name, FINGERPRINT, shape.layout, |block| {
            // SAFETY: a fresh block of the layout.
            unsafe { Cells::initialise(block, shape, options.capacity, options.max_message) }
        })?;
        let queue = Self::from_block(region, block, bytes)?;
        if QueueOptions::new(queue.capacity(), queue.max_message()) == *options {
            Ok(queue)
        } else {
            Err(QueueError::OtherCapacity {
                capacity: queue.capacity(),
                max_message: queue.max_message(),
            })
        }
    }

    /// Opens the queue of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`](crate::region::ObjectError::NotFound); see [`QueueError`].
    pub fn open(region: &'r Region, name: &str) -> Result<Self, QueueError> {
        let (block, bytes) = region.find_raw_object(name, FINGERPRINT)?;
        Self::from_block(region, block, bytes)
    }

    fn from_block(
        region: &'r Region,
        block: NonNull<u8>,
        bytes: usize,
    ) -> Result<Self, QueueError> {
        // SAFETY: an object with the queue's fingerprint was written by `initialise`, and stays as
        // long as the region.
        match unsafe { Cells::open(block, bytes) } {
            Some(cells) => Ok(Self { region, cells }),
            None => Err(QueueError::Object(crate::region::ObjectError::OtherType)),
        }
    }

    /// The most messages.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.cells.core.capacity
    }

    /// The most bytes of a message.
    #[must_use]
    pub fn max_message(&self) -> u32 {
        self.cells.core.max_message
    }

    /// Messages that are ready to be received at this moment.
    #[must_use]
    pub fn len(&self) -> u32 {
        // Relaxed: the answer may be stale before it arrives.
        self.cells.core.ready_count.load(Ordering::Relaxed)
    }

    /// Whether no message is ready at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages were put back so far, because a receiver died or gave them back.
    #[must_use]
    pub fn redelivered(&self) -> u64 {
        self.cells.core.redelivered.load(Ordering::Relaxed)
    }

    /// Checks that the queue's indices agree with its cells, for tests and doubtful regions.
    ///
    /// # Errors
    /// If the calling thread cannot become a task of the region.
    pub fn is_consistent(&self) -> Result<bool, AttachError> {
        self.inner().task()?;
        let locked = self.lock(self.inner().deaths())?;
        let consistent = locked.cells.is_consistent();
        locked.unlock(Wake::NONE);
        Ok(consistent)
    }

    fn inner(&self) -> &'r Arc<Inner> {
        self.region.inner()
    }
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Queue")
            .field("capacity", &self.capacity())
            .field("max_message", &self.max_message())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
