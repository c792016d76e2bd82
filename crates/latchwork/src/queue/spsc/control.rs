//! Flush, beginning and deletion of a ring.
#![allow(unsafe_code)]

use super::super::{ControlError, QueueError};
use super::{ClaimError, End, Receiver, Side, Spsc, layout};
use crate::atomic::Ordering::Relaxed;
use core::mem::ManuallyDrop;

impl Receiver<'_> {
    /// Drops all messages that were sent before this moment, and returns how many. A sender that waits finds
    /// room.
    ///
    /// A kill has all dropped, or none.
    pub fn flush(&mut self) -> u32 {
        let end = self.end();
        end.assert_mine();
        let count = end.look();
        if count > 0 {
            end.advance(count);
        }
        count
    }
}

impl<'r> Spsc<'r> {
    /// [`Receiver::flush`], where nobody has the receiving end.
    ///
    /// # Errors
    /// [`ClaimError::Taken`]: that task can; [`ClaimError::Deleted`], [`ClaimError::Attach`].
    pub fn flush(&self) -> Result<u32, ClaimError> {
        Ok(self.receiver()?.flush())
    }

    /// Deletes the ring: its messages are dropped, and who waits at it, or uses it later through an end
    /// or a handle, gets an error that says so. A message that is held in place stays valid.
    ///
    /// The name is free, and the memory of the messages is freed when nobody has an end any more. A few hundred bytes
    /// stay for the next ring, of whatever name and options; old handles do not become valid by that.
    ///
    /// A kill leaves the ring as it was, or deleted: name and memory are free then when another ring is made.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    pub fn delete(&self) -> Result<(), ControlError> {
        // Those who sleep notice the death of a task, should it come before it has woken them.
        self.inner().task()?;
        if !self.core.ring.begin_life_after(self.life) {
            return Err(ControlError::Deleted);
        }
        self.inner().give_up_name(self.core);
        self.clear_away();
        Ok(())
    }

    /// Makes a ring in a head that has none, and is [over](Self::is_over). Under the lock of the region's names.
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
        // SAFETY: a fresh block of the layout; zero is a valid length and byte. The word is protected by the lock of
        // the names.
        unsafe {
            body.write_bytes(0, layout.size());
            self.inner().hand_in(task, body, &core.body);
        }
        core.ring.begin_life_after(self.life);
        Ok(Self::at(self.region, core))
    }

    /// Whether a ring may begin in the head: there is none, and no living task has an end. Drops what messages there
    /// are, and frees the body. Under the lock of the region's names.
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
            let left = receiver.look();
            receiver.advance(left);
            if !self.has_sound_body() {
                self.core.body.store(0, Relaxed);
            } else if let Ok(task) = self.inner().task() {
                // SAFETY: the word is protected by the lock of the names; who uses the body has an end.
                unsafe { self.inner().discard(task, &self.core.body) };
            }
            receiver.free();
        }
        sender.free();
        is_over && self.core.body.load(Relaxed) == 0
    }

    /// Frees what a deleted ring has, if nobody has an end any more; if this cannot be done now, the next creation of a
    /// ring does.
    pub(super) fn clear_away(&self) {
        self.inner().with_names(|| {
            self.is_over();
        });
    }
}
