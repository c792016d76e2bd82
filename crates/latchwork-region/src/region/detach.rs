//! Leaving a region on request.
#![allow(unsafe_code)]

use super::Region;
use crate::task::{Me, TaskError};

/// Why a thread could not leave a region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// The thread holds locks or semaphores of the region, or has messages in flight.
    #[error(
        "the thread holds {locks} robust locks and semaphores of the region, and has {messages} messages in flight"
    )]
    Holding {
        /// The number of robust locks that the thread holds, and semaphores that it owns.
        locks: usize,
        /// The number of messages that it received and neither finished nor returned.
        messages: usize,
        /// The handle.
        region: Region,
    },
    /// The thread's own record cannot be made.
    #[error(transparent)]
    Task(TaskError),
}

impl Region {
    /// Ends the calling thread's membership of the region, instead of at its exit, and drops this handle.
    ///
    /// # Errors
    /// [`DetachError::Holding`] if the thread holds robust locks of the region (unmapping them would leave dangling
    /// entries in its robust list), owns semaphores of it, or has messages of its queues in flight.
    pub fn detach(self) -> Result<(), DetachError> {
        let me = Me::get().map_err(DetachError::Task)?;
        let base = self.inner.base().addr().get();
        let Some(attachment) = me.attachments().find(|attachment| attachment.base == base) else {
            return Ok(());
        };
        let slot = self.inner.task_of(&attachment).slot;
        let locks = self.inner.locks_held(me) + slot.wait.standing.held() as usize;
        let messages = slot.messages() as usize;
        if locks != 0 || messages != 0 {
            return Err(DetachError::Holding {
                locks,
                messages,
                region: self,
            });
        }
        // SAFETY: this thread's attachment, which the callback forgets.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
        Ok(())
    }
}
