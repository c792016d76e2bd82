//! Sending without a copy: the message is written in its place in the queue, or is a block already.
#![allow(unsafe_code)]

use super::{Queue, SendBlockError, SendError, Wait, cell::BLOCK, lane::Index, wake::Wake};
use crate::region::{Box, heap::Owner};
use core::ops::{Deref, DerefMut};
use core::{fmt, marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};

/// A place in the queue for one message, to be written and [committed](Self::commit). Dropping it frees the place; so
/// does the death of the task, or the end of the thread.
///
/// It is as long as the longest message. Its bytes are unspecified at first: an old message, or zeros.
///
/// Not `Send`; the task cannot [detach](crate::region::Region::detach) meanwhile. In the child of a fork
/// it is the parent's: committing or dropping it there aborts.
///
/// ```
/// use latchwork::queue::{Queue, QueueOptions, Wait};
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let lines = Queue::create(&region, "lines", &QueueOptions::new(8, 64))?;
/// let mut place = lines.reserve(Wait::Not)?;
/// place[..5].copy_from_slice(b"hello");
/// place.commit(5)?;
/// assert_eq!(&*lines.receive_held()?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is sent before the commit"]
pub struct Reservation<'r> {
    queue: Queue<'r>,
    index: Index,
    owner: Owner,
    not_send: PhantomData<*const ()>,
}

impl Reservation<'_> {
    /// Sends the first `length` bytes.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Deleted`], [`SendError::Attach`]; the place is freed.
    pub fn commit(self, length: usize) -> Result<(), SendError> {
        self.queue.check_message(length)?;
        let this = ManuallyDrop::new(self);
        let queue = this.queue;
        let mut result = Ok(());
        queue.end(queue.senders(), this.owner, |cells, task| {
            task.slot.message_finished();
            if let Err(deleted) = queue.check_life() {
                result = Err(deleted.into());
                cells.abandon(this.index);
                return Wake::NONE;
            }
            cells.commit(this.index, length, queue.rank, 0);
            cells.announce(1)
        })?;
        result
    }

    fn raw(&self) -> NonNull<[u8]> {
        let cells = self.queue.cells;
        let bytes = cells.core.max_message() as usize;
        NonNull::slice_from_raw_parts(cells.bytes(self.index), bytes)
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the cell has `max_message` bytes, zeroed when the queue was created; the cell is this task's.
        unsafe { self.raw().as_ref() }
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; no other task reads a cell that is being written, and `self` is borrowed exclusively.
        unsafe { self.raw().as_mut() }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // This cannot fail: the task that took the place could lock then, and still can.
        let queue = self.queue;
        let _ = queue.end(queue.senders(), self.owner, |cells, task| {
            task.slot.message_finished();
            cells.abandon(self.index);
            Wake::senders(1)
        });
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reservation { .. }")
    }
}

impl<'r> Queue<'r> {
    /// Takes a place for a message, to be written without a copy.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::Full`], [`SendError::TimedOut`], [`SendError::Attach`].
    #[track_caller]
    pub fn reserve(&self, wait: Wait) -> Result<Reservation<'r>, SendError> {
        let (index, owner) = self.attempt(wait, |cells, task| {
            let index = cells.begin_send(task.owner())?;
            task.slot.message_taken();
            Some(((index, task.owner()), Wake::NONE))
        })?;
        Ok(Reservation {
            queue: *self,
            index,
            owner,
            not_send: PhantomData,
        })
    }

    /// Sends a box of bytes of the same region, of any size, without copying it: its block changes owners. At every
    /// moment the block is the sender's, the queue's or the receiver's.
    ///
    /// *Owner death.* A sender's block is freed. A message that its receiver holds in place is delivered again. A block that is
    /// the receiver's own, by [`Queue::receive_block`] or [`Message::into_block`](super::Message::into_block), is freed: the
    /// message is lost.
    ///
    /// # Errors
    /// The box, and [`SendError::Deleted`], [`SendError::OtherRegion`], [`SendError::Full`], [`SendError::TimedOut`] or
    /// [`SendError::Attach`].
    #[track_caller]
    pub fn send_block(&self, bytes: Box<'r, [u8]>, wait: Wait) -> Result<(), SendBlockError<'r>> {
        if !bytes.is_in(self.inner()) {
            let error = SendError::OtherRegion;
            return Err(SendBlockError { bytes, error });
        }
        let mut bytes = Some(bytes);
        let sent = self.attempt(wait, |cells, task| {
            let index = cells.next_free()?;
            let (block, length) = self.inner().block_of(bytes.take()?);
            // SAFETY: the word is the cell's, under the queue's robust lock; the block was the box's.
            unsafe {
                self.inner()
                    .publish_block(task, block, &cells.cell(index).block)
            };
            cells.commit(index, length, self.rank, BLOCK);
            Some(((), cells.announce(1)))
        });
        if let (Err(failure), Some(bytes)) = (sent, bytes) {
            let error = failure.into();
            return Err(SendBlockError { bytes, error });
        }
        Ok(())
    }
}
