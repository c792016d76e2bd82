//! The receiving end of a ring.
#![allow(unsafe_code)]

use super::super::{ReceiveError, Wait, ring::Side};
use super::end::End;
use super::handle::{ClaimError, Spsc};
use crate::{atomic::Ordering::Relaxed, time::Deadline};
use core::{fmt, ops::Deref};

/// The receiving end of a ring, claimed by the task that has this value. Not `Send`; the task cannot
/// [detach](crate::region::Region::detach) before it is dropped.
///
/// ```
/// use latchwork::queue::{QueueOptions, Wait, spsc::Spsc};
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let ring = Spsc::create(&region, "samples", &QueueOptions::new(64, 16))?;
/// ring.sender()?.send(b"first")?;
/// let mut receiver = ring.receiver()?;
/// let message = receiver.receive_held(Wait::Forever)?;
/// assert_eq!(&*message, b"first");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Receiver<'r>(End<'r>);

impl<'r> Spsc<'r> {
    /// Claims the receiving end for the calling task, until it is dropped.
    ///
    /// # Errors
    /// As for [`Self::sender`].
    pub fn receiver(&self) -> Result<Receiver<'r>, ClaimError> {
        self.end(Side::Receiver).map(Receiver)
    }
}

impl<'r> Receiver<'r> {
    /// Receives a message into `buffer`, waiting while the ring is empty; returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::BufferTooSmall`], [`ReceiveError::Deleted`], [`ReceiveError::Attach`].
    #[inline]
    #[track_caller]
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.receive_within(buffer, Wait::Forever)
    }

    /// Receives a message into `buffer` if there is one at this moment; returns its length.
    ///
    /// # Errors
    /// As for [`Self::receive`], and [`ReceiveError::Empty`].
    #[inline]
    #[track_caller]
    pub fn try_receive(&mut self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.receive_within(buffer, Wait::Not)
    }

    /// Receives a message into `buffer`, waiting for one until `deadline`; returns its length.
    ///
    /// # Errors
    /// As for [`Self::receive`], and [`ReceiveError::TimedOut`].
    #[inline]
    #[track_caller]
    pub fn receive_until(
        &mut self,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<usize, ReceiveError> {
        self.receive_within(buffer, Wait::Until(deadline))
    }

    #[inline]
    #[track_caller]
    fn receive_within(&mut self, buffer: &mut [u8], wait: Wait) -> Result<usize, ReceiveError> {
        self.0.wait(wait)?;
        let message = self.message(0);
        let bytes = message.len();
        if bytes > buffer.len() {
            let buffer = buffer.len();
            return Err(ReceiveError::BufferTooSmall { bytes, buffer });
        }
        buffer[..bytes].copy_from_slice(message);
        self.0.advance(1);
        Ok(bytes)
    }

    /// Takes the next message in place: it is received when the returned value is dropped, except by a panic.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`], [`ReceiveError::TimedOut`], [`ReceiveError::Deleted`], [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_held(&mut self, wait: Wait) -> Result<Held<'_, 'r>, ReceiveError> {
        self.0.wait(wait)?;
        Ok(Held { receiver: self })
    }

    /// Takes up to `most` messages in place, as many as there are, waiting for the first: they are received when the
    /// returned value is dropped, except by a panic.
    ///
    /// # Errors
    /// As for [`Self::receive_held`].
    #[track_caller]
    pub fn receive_batch(
        &mut self,
        most: u32,
        wait: Wait,
    ) -> Result<HeldBatch<'_, 'r>, ReceiveError> {
        let mut available = self.0.wait(wait)?;
        if available < most {
            available = self.0.refresh();
        }
        Ok(HeldBatch {
            count: available.min(most.max(1)),
            receiver: self,
        })
    }

    /// Drops all messages that were sent before this moment, and returns their number. A waiting sender finds room.
    ///
    /// If the caller is killed, all are dropped, or none.
    pub fn flush(&mut self) -> u32 {
        self.0.assert_mine();
        let count = self.0.refresh();
        if count > 0 {
            self.0.advance(count);
        }
        count
    }

    /// The ring.
    #[must_use]
    pub fn queue(&self) -> Spsc<'r> {
        self.0.queue
    }

    /// One of the messages that belong to this side.
    #[inline]
    fn message(&self, offset: u32) -> &[u8] {
        let (queue, index) = (self.0.queue, self.0.mine.wrapping_add(offset));
        // Relaxed: published by the index.
        let length = queue.length(index).load(Relaxed);
        let length = length.min(queue.core.max_message()) as usize;
        // SAFETY: the place has `max_message` bytes, and is the receiver's (invariant 1 of the ring).
        unsafe { core::slice::from_raw_parts(queue.bytes(index).as_ptr(), length) }
    }
}

/// The next message of a ring, read where it lies.
#[must_use = "a message that is dropped has been received"]
pub struct Held<'a, 'r> {
    receiver: &'a mut Receiver<'r>,
}

impl Held<'_, '_> {
    /// Leaves the message in the ring, as the next one.
    pub fn give_back(self) {
        core::mem::forget(self);
    }
}

impl Deref for Held<'_, '_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.receiver.message(0)
    }
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.receiver.0.assert_mine();
            self.receiver.0.advance(1);
        }
    }
}

impl fmt::Debug for Held<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Held")
            .field("bytes", &self.len())
            .finish()
    }
}

/// The next messages of a ring, read where they lie.
#[must_use = "messages that are dropped have been received"]
pub struct HeldBatch<'a, 'r> {
    receiver: &'a mut Receiver<'r>,
    count: u32,
}

impl HeldBatch<'_, '_> {
    /// The number of messages: at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// The messages, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).map(|offset| self.receiver.message(offset))
    }

    /// Receives the first `count` messages, and leaves the others in the ring.
    pub fn receive_first(mut self, count: usize) {
        self.count = self.count.min(u32::try_from(count).unwrap_or(u32::MAX));
    }
}

impl Drop for HeldBatch<'_, '_> {
    fn drop(&mut self) {
        if !std::thread::panicking() && self.count > 0 {
            self.receiver.0.assert_mine();
            self.receiver.0.advance(self.count);
        }
    }
}

impl fmt::Debug for HeldBatch<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HeldBatch")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
