//! Flush, creation and deletion of a ring.
#![allow(unsafe_code)]

use super::super::error::{ControlError, QueueError};
use super::super::ring::Side;
use super::end::End;
use super::handle::{ClaimError, Spsc, layout};
use super::receiver::Receiver;
use crate::atomic::Ordering::Relaxed;
use core::mem::ManuallyDrop;

impl Receiver<'_> {
    /// Drops all messages that were sent before this moment, and returns their number. A waiting sender finds room.
    ///
    /// If the caller is killed, all are dropped, or none.
    pub fn flush(&mut self) -> u32 {
        let end = self.end();
        end.assert_mine();
        let count = end.refresh();
        if count > 0 {
            end.advance(count);
        }
        count
    }
}

impl<'r> Spsc<'r> {
    /// [`Receiver::flush`] for a ring whose receiving end is free.
    ///
    /// # Errors
    /// [`ClaimError::Taken`]: the task that has the end can flush; [`ClaimError::Deleted`], [`ClaimError::Attach`].
    pub fn flush(&self) -> Result<u32, ClaimError> {
        Ok(self.receiver()?.flush())
    }

    /// Deletes the ring. Its messages are dropped; a task that waits at it, or uses it later through an end or a
    /// handle, gets an error that reports the deletion. A message that is held in place stays valid.
    ///
    /// The name is free at once; the memory of the messages is freed when no task has an end any more. A few hundred
    /// bytes stay for the next ring, of any name and options; old handles do not become valid by that.
    ///
    /// A kill leaves the ring as it was, or deleted; in the second case name and memory are freed when another ring is
    /// created.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    pub fn delete(&self) -> Result<(), ControlError> {
        // If the caller dies before it has woken the sleepers, they notice its death: so it must be a task.
        self.inner().task()?;
        if !self.core.ring.begin_life_after(self.life) {
            return Err(ControlError::Deleted);
        }
        self.inner().release_name(self.core);
        self.clear_away();
        Ok(())
    }

    /// Creates a ring in a head that has none, and is [over](Self::is_over). Under the lock of the region's names.
    pub(super) fn begin(self, capacities: (u32, u32)) -> Result<Self, QueueError> {
        let task = self.inner().task()?;
        let (capacity, max_message) = capacities;
        let layout = layout(capacity, max_message).ok_or(QueueError::Capacity {
            capacity,
            max_message,
        })?;
        let core = self.core;
        let body = self
            .inner()
            .alloc_block(task, layout)
            .map_err(crate::region::ObjectError::from)?;
        core.capacity.store(capacity, Relaxed);
        core.max_message.store(max_message, Relaxed);
        // SAFETY: a fresh block of the layout; zero is a valid length and byte. The lock of the names protects the
        // word.
        unsafe {
            body.write_bytes(0, layout.size());
            self.inner().publish_block(task, body, &core.body);
        }
        core.ring.begin_life_after(self.life);
        Ok(Self::at(self.region, core))
    }

    /// Whether a ring may begin in the head: there is none, and no living task has an end. Drops the remaining
    /// messages, and frees the body. Under the lock of the region's names.
    pub(super) fn is_over(&self) -> bool {
        if self.core.is_alive() {
            return false;
        }
        let claim = |side| End::claim(*self, side).map(ManuallyDrop::new);
        let Ok(sender) = claim(Side::Sender) else {
            return false;
        };
        let receiver = claim(Side::Receiver);
        let is_over = receiver.is_ok();
        if let Ok(mut receiver) = receiver {
            let left = receiver.refresh();
            receiver.advance(left);
            if !self.has_sound_body() {
                self.core.body.store(0, Relaxed);
            } else if let Ok(task) = self.inner().task() {
                // SAFETY: the lock of the names protects the word; a task that used the body would have an end, and
                // both ends are claimed here.
                unsafe { self.inner().retire_block(task, &self.core.body) };
            }
            receiver.free();
        }
        sender.free();
        is_over && self.core.body.load(Relaxed) == 0
    }

    /// Frees the body of a deleted ring if no task has an end any more. If this fails now, the next creation of a ring
    /// frees it.
    pub(super) fn clear_away(&self) {
        self.inner().with_directory_lock(|| {
            self.is_over();
        });
    }
}
