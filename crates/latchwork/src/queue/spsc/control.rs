//! Flush and deletion of a ring, and a ring that is made anew.

use super::super::attempt::{OFTEN, poll};
use super::super::{ControlError, QueueError};
use super::{ClaimError, End, Receiver, Side, Spsc};

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
    /// The name, with its memory, is taken again by the next [`Spsc::create`] with the same options, when all
    /// ends of this one have been dropped, or their tasks have died; old handles do not become valid by that.
    ///
    /// A kill leaves the ring as it was, or deleted.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    pub fn delete(&self) -> Result<(), ControlError> {
        // Those who sleep notice the death of a task, should it come before it has woken them.
        self.inner().task()?;
        if self.core.ring.begin_life_after(self.life) {
            Ok(())
        } else {
            Err(ControlError::Deleted)
        }
    }

    /// A handle on a ring that lives: this one, or one that is made of its memory.
    ///
    /// Both ends are claimed meanwhile, so that nobody sends or receives; killed here, the task
    /// leaves them to be claimed, and the ring deleted, or alive and empty.
    pub(super) fn alive(self) -> Result<Self, QueueError> {
        let current = || Self {
            life: self.core.ring.life(),
            ..self
        };
        if self.life.is_multiple_of(2) {
            return Ok(self);
        }
        let claim = |side| End::claim(self, side);
        match (claim(Side::Sender), claim(Side::Receiver)) {
            (Ok(_sender), Ok(mut receiver)) => {
                // Another one may have made it.
                if self.core.ring.life() == self.life {
                    let left = receiver.look();
                    receiver.advance(left);
                    self.core.ring.begin_life_after(self.life);
                }
                Ok(current())
            }
            (Err(ClaimError::Attach(error)), _) | (_, Err(ClaimError::Attach(error))) => {
                Err(error.into())
            }
            // By one of the old ring, or by another one that is making a new one.
            _ if poll((OFTEN, 0), None, || current().life != self.life) => Ok(current()),
            _ => Err(QueueError::InUse),
        }
    }
}
