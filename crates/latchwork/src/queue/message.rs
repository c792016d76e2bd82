//! A message in flight, and how its flight ends.

use super::Queue;
use super::cells::{Cells, FREE, Index};
use crate::atomic::Ordering;
use crate::region::AttachError;
use crate::region::heap::Owner;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// A message in flight: read in place, delivered again unless it is [done](Self::done).
///
/// Dropping it undone gives it back to the queue, in its old place. Not `Send`: it is in flight with
/// the task that took it, which cannot [detach](crate::region::Region::detach) meanwhile. Forgetting it leaves it in
/// flight until the thread ends. In the child of a fork it is the parent's: finishing or dropping it
/// there aborts.
#[must_use = "a message that is dropped goes back to the queue"]
pub struct Message<'r> {
    queue: Queue<'r>,
    index: Index,
    /// Who took it.
    owner: Owner,
    not_send: PhantomData<*const ()>,
}

impl<'r> Message<'r> {
    pub(super) fn new(queue: Queue<'r>, index: Index, owner: Owner) -> Self {
        Self {
            queue,
            index,
            owner,
            not_send: PhantomData,
        }
    }

    /// How often the message was handed to a receiver, this time included. More than 1 means that an
    /// earlier receiver died with it, or gave it back.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.queue
            .cells
            .cell(self.index)
            .deliveries
            .load(Ordering::Relaxed)
    }

    /// Ends the flight: the message will not be delivered again.
    pub fn done(self) {
        ManuallyDrop::new(self).finish(Cells::release);
    }

    fn finish(&self, how: fn(Cells<'r>, Index)) {
        // Whoever took it could lock, and still can.
        if self.queue.finish(self.index, self.owner, how).is_ok() {
            self.queue.inner().slots()[usize::from(self.owner.slot())].message_finished();
        }
    }
}

impl Deref for Message<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.queue.cells.message(self.index)
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        self.finish(Cells::give_back);
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Message")
            .field("bytes", &self.len())
            .field("deliveries", &self.deliveries())
            .finish()
    }
}

impl<'r> Queue<'r> {
    /// Ends the flight of a message that `owner` took; whoever waits for what that frees is woken.
    /// Aborts if that is another task.
    pub(super) fn finish(
        &self,
        index: Index,
        owner: Owner,
        how: fn(Cells<'r>, Index),
    ) -> Result<(), AttachError> {
        // Then it is in flight with this task still: a task does not leave with messages.
        if !self.inner().is_me(owner) {
            crate::fatal(format_args!(
                "a message was finished by a task that does not have it (one inherited across fork is the parent's)"
            ));
        }
        let locked = self.lock(self.inner().deaths())?;
        debug_assert!(locked.cells.is_read_by(index, owner));
        how(locked.cells, index);
        // A cell that is free is a sender's, one that is ready again a receiver's.
        let core = locked.cells.core;
        let is_free = locked.cells.cell(index).state.load(Ordering::Relaxed) == FREE;
        let wake = if is_free {
            core.senders.notify()
        } else {
            core.receivers.notify()
        };
        locked.unlock(wake);
        Ok(())
    }
}
