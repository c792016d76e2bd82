//! The sending end of a ring.
#![allow(unsafe_code)]

use super::super::{SendError, Wait, ring::Side};
use super::end::End;
use super::handle::{ClaimError, Spsc};
use crate::{atomic::Ordering::Relaxed, time::Deadline};
use core::ops::{Deref, DerefMut};
use core::{fmt, ptr::NonNull};

/// The sending end of a ring, claimed by the task that has this value. Not `Send`; the task cannot
/// [detach](crate::region::Region::detach) before it is dropped.
///
/// ```
/// use latchwork::queue::{QueueOptions, spsc::Spsc};
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let ring = Spsc::create(&region, "samples", &QueueOptions::new(64, 16))?;
/// let mut sender = ring.sender()?;
/// sender.send(b"first")?;
/// // The ring has one sender at a time.
/// assert!(ring.sender().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sender<'r>(End<'r>);

impl<'r> Spsc<'r> {
    /// Claims the sending end for the calling task, until it is dropped.
    ///
    /// # Errors
    /// [`ClaimError::Taken`], [`ClaimError::Deleted`], [`ClaimError::Attach`].
    pub fn sender(&self) -> Result<Sender<'r>, ClaimError> {
        self.end(Side::Sender).map(Sender)
    }
}

impl<'r> Sender<'r> {
    /// Sends a message, waiting while the ring is full.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Deleted`], [`SendError::Attach`].
    #[inline]
    #[track_caller]
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.send_within(message, Wait::Forever)
    }

    /// Sends a message if there is room at this moment.
    ///
    /// # Errors
    /// As for [`Self::send`], and [`SendError::Full`].
    #[inline]
    #[track_caller]
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.send_within(message, Wait::Not)
    }

    /// Sends a message, waiting for room until `deadline`.
    ///
    /// # Errors
    /// As for [`Self::send`], and [`SendError::TimedOut`].
    #[inline]
    #[track_caller]
    pub fn send_until(&mut self, message: &[u8], deadline: Deadline) -> Result<(), SendError> {
        self.send_within(message, Wait::Until(deadline))
    }

    #[inline]
    #[track_caller]
    fn send_within(&mut self, message: &[u8], wait: Wait) -> Result<(), SendError> {
        self.check(message.len())?;
        self.0.wait(wait)?;
        self.write(0, message);
        self.0.advance(1);
        Ok(())
    }

    /// Sends the first of `messages`, as many as there is room for, and waits for room for one; returns how many it
    /// sent. They become visible together.
    ///
    /// # Errors
    /// [`SendError::TooLong`] if any of them is; [`SendError::Full`], [`SendError::TimedOut`], [`SendError::Deleted`],
    /// [`SendError::Attach`].
    #[track_caller]
    pub fn send_batch(&mut self, messages: &[&[u8]], wait: Wait) -> Result<usize, SendError> {
        for message in messages {
            self.check(message.len())?;
        }
        let wanted = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        if wanted == 0 {
            return Ok(0);
        }
        let mut room = self.0.wait(wait)?;
        if room < wanted {
            room = self.0.refresh();
        }
        let count = room.min(wanted);
        for (offset, message) in (0..count).zip(messages) {
            self.write(offset, message);
        }
        self.0.advance(count);
        Ok(count as usize)
    }

    /// Takes the next place, to be written without a copy. Dropping it frees the place.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::TimedOut`], [`SendError::Deleted`], [`SendError::Attach`].
    #[track_caller]
    pub fn reserve(&mut self, wait: Wait) -> Result<Place<'_, 'r>, SendError> {
        self.0.wait(wait)?;
        Ok(Place { sender: self })
    }

    /// The ring.
    #[must_use]
    pub fn queue(&self) -> Spsc<'r> {
        self.0.queue
    }

    #[inline]
    fn check(&self, bytes: usize) -> Result<(), SendError> {
        let max_message = self.0.queue.core.max_message() as usize;
        if bytes <= max_message {
            Ok(())
        } else {
            Err(SendError::TooLong { bytes, max_message })
        }
    }

    /// Writes a message into a place that belongs to this side.
    #[inline]
    fn write(&mut self, offset: u32, message: &[u8]) {
        let (queue, index) = (self.0.queue, self.0.mine.wrapping_add(offset));
        // Relaxed: published by the index.
        queue.length(index).store(message.len() as u32, Relaxed);
        // SAFETY: the place has `max_message` bytes, and is the sender's (invariant 1 of the ring).
        unsafe {
            queue
                .bytes(index)
                .copy_from_nonoverlapping(NonNull::from(message).cast(), message.len());
        }
    }
}

/// The next place of a ring, to be written and [committed](Self::commit). It is as long as the longest message; it
/// holds an old message, or zeros, at first.
#[must_use = "nothing is sent before the commit"]
pub struct Place<'a, 'r> {
    sender: &'a mut Sender<'r>,
}

impl Place<'_, '_> {
    /// Sends the first `length` bytes.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Deleted`].
    pub fn commit(self, length: usize) -> Result<(), SendError> {
        self.sender.check(length)?;
        let end = &mut self.sender.0;
        end.assert_mine();
        end.check_life()?;
        // Relaxed: published by the index.
        end.queue.length(end.mine).store(length as u32, Relaxed);
        end.advance(1);
        Ok(())
    }

    fn raw(&self) -> NonNull<[u8]> {
        let end = &self.sender.0;
        let bytes = end.queue.core.max_message() as usize;
        NonNull::slice_from_raw_parts(end.queue.bytes(end.mine), bytes)
    }
}

impl Deref for Place<'_, '_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the place has this many bytes, zeroed when the ring was created; it is the sender's.
        unsafe { self.raw().as_ref() }
    }
}

impl DerefMut for Place<'_, '_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the place has this many bytes and is the sender's, which is borrowed exclusively.
        unsafe { self.raw().as_mut() }
    }
}

impl fmt::Debug for Place<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Place { .. }")
    }
}
