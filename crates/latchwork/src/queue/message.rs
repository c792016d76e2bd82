//! Messages in flight, and the end of their flight.
#![allow(unsafe_code)]

use super::handle::Queue;
use super::lane::Index;
use super::layout::Cells;
use super::locked::Side;
use super::rank::Rank;
use super::wake::Wake;
use crate::atomic::Ordering::Relaxed;
use crate::region::heap::Owner;
use crate::region::{self, AttachError, Task};
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::ops::Deref;

/// A message in flight, read where it lies. Dropping it ends the flight: the message has been received and is not
/// delivered again.
///
/// Until then the message is delivered again, in its old position, if the task that took it dies;
/// also if it is dropped by a panic, or [given back](Self::give_back). (A broadcast message is a copy of the receiver's
/// own, and is not delivered again.)
///
/// Not `Send`: the message is in flight with the task that took it, which cannot
/// [detach](crate::region::Region::detach) meanwhile. Forgetting it leaves it in flight until the process ends. In the
/// child of a fork it is the parent's: dropping it there aborts.
#[must_use = "a message that is dropped has been received"]
pub struct Message<'r> {
    queue: Queue<'r>,
    bytes: Bytes,
    /// The task that took it.
    owner: Owner,
    not_send: PhantomData<*const ()>,
}

/// Where the bytes of a message are.
enum Bytes {
    Cell(Index),
    Copy(Box<[u8]>),
}

impl<'r> Message<'r> {
    pub(super) fn in_flight(queue: Queue<'r>, index: Index, owner: Owner) -> Self {
        Self {
            queue,
            bytes: Bytes::Cell(index),
            owner,
            not_send: PhantomData,
        }
    }

    pub(super) fn copied(queue: Queue<'r>, copy: Box<[u8]>, owner: Owner) -> Self {
        Self {
            queue,
            bytes: Bytes::Copy(copy),
            owner,
            not_send: PhantomData,
        }
    }

    /// How often the message was given to a receiver, this time included. More than 1 means that an earlier receiver
    /// died with it, or gave it back.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        match self.bytes {
            Bytes::Cell(index) => self.queue.cells.cell(index).deliveries.load(Relaxed),
            Bytes::Copy(_) => 1,
        }
    }

    /// The rank that it was sent with; `None` for a broadcast one.
    #[must_use]
    pub fn rank(&self) -> Option<Rank> {
        match self.bytes {
            Bytes::Cell(index) => Some(Rank::of_key(self.queue.cells.cell(index).key())),
            Bytes::Copy(_) => None,
        }
    }

    /// Ends the flight: the message has been received. The same as dropping it.
    pub fn done(self) {}

    /// Puts the message back in its old position, for another receiver or a later call.
    pub fn give_back(self) {
        ManuallyDrop::new(self).finish(Outcome::GiveBack);
    }

    /// Takes the message out of the queue as a box of the caller's own. A large message that was sent as a box
    /// ([`Queue::send_block`]) is not copied; nor is a small one that this thread sent.
    ///
    /// # Errors
    /// The message, and an error, if a copy is needed and the region has no room for it.
    pub fn into_block(self) -> Result<region::Box<'r, [u8]>, (Self, region::StorageError)> {
        if let Bytes::Cell(index) = self.bytes
            && self.queue.cells.is_block(index)
            && let Some(bytes) = self.take_over(index)
        {
            mem::forget(self);
            return Ok(bytes);
        }
        self.into_copy()
    }

    pub(super) fn into_copy(self) -> Result<region::Box<'r, [u8]>, (Self, region::StorageError)> {
        match region::Box::copied_in(&self, self.queue.region) {
            Ok(bytes) => Ok(bytes),
            Err(error) => Err((self, error)),
        }
    }

    /// The message's block, if it can be made the task's own; that ends the flight.
    fn take_over(&self, index: Index) -> Option<region::Box<'r, [u8]>> {
        let inner = self.queue.inner();
        let mut taken = None;
        let ended = self.queue.end(Side::Receivers, self.owner, |cells, task| {
            taken = cells.claim_block(index, task);
            match taken {
                Some(_) => Wake::senders(1),
                None => Wake::NONE,
            }
        });
        ended.ok()?;
        let block = taken?;
        inner.slots()[usize::from(self.owner.slot())].message_finished();
        // SAFETY: `claim_block` has made the block this task's own.
        Some(unsafe { region::Box::of_block(block.cast(), block.len(), inner) })
    }

    fn finish(&self, how: Outcome) {
        if let Bytes::Cell(index) = self.bytes {
            self.queue.finish(index, 1, self.owner, how);
        }
    }
}

impl Deref for Message<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Cell(index) => self.queue.cells.message(*index),
            Bytes::Copy(copy) => copy,
        }
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        self.finish(Outcome::of_drop());
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Message")
            .field("bytes", &self.len())
            .field("deliveries", &self.deliveries())
            .finish_non_exhaustive()
    }
}

/// Several messages in flight, taken together. Dropping them ends the flight of all; otherwise each behaves as a
/// [`Message`].
#[must_use = "messages that are dropped have been received"]
pub struct Messages<'r> {
    queue: Queue<'r>,
    bytes: Bytes,
    count: u32,
    owner: Owner,
    not_send: PhantomData<*const ()>,
}

impl<'r> Messages<'r> {
    pub(super) fn in_flight(queue: Queue<'r>, first: Index, count: u32, owner: Owner) -> Self {
        Self {
            queue,
            bytes: Bytes::Cell(first),
            count,
            owner,
            not_send: PhantomData,
        }
    }

    pub(super) fn copied(queue: Queue<'r>, copy: Box<[u8]>, owner: Owner) -> Self {
        Self {
            queue,
            bytes: Bytes::Copy(copy),
            count: 1,
            owner,
            not_send: PhantomData,
        }
    }

    /// The number of messages: at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// The messages, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (first, copy) = match &self.bytes {
            Bytes::Cell(index) => (Some(*index), None),
            Bytes::Copy(copy) => (None, Some(&**copy)),
        };
        let cells = self.queue.cells;
        let chain = core::iter::successors(first, move |index| {
            Index::named(cells.cell(*index).next.load(Relaxed))
        });
        copy.into_iter()
            .chain(chain.map(move |index| cells.message(index)))
    }

    /// Puts all messages back in their old positions.
    pub fn give_back(self) {
        ManuallyDrop::new(self).finish(Outcome::GiveBack);
    }

    fn finish(&self, how: Outcome) {
        if let Bytes::Cell(first) = self.bytes {
            self.queue.finish(first, self.count, self.owner, how);
        }
    }
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        self.finish(Outcome::of_drop());
    }
}

impl fmt::Debug for Messages<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Messages")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// How a flight ends.
#[derive(Clone, Copy)]
enum Outcome {
    Done,
    GiveBack,
}

impl Outcome {
    fn of_drop() -> Self {
        if std::thread::panicking() {
            Self::GiveBack
        } else {
            Self::Done
        }
    }
}

impl<'r> Queue<'r> {
    /// Ends the flight of a chain of messages that `owner` took.
    fn finish(&self, first: Index, count: u32, owner: Owner, how: Outcome) {
        let ended = self.end(Side::Receivers, owner, |cells, task| {
            let mut next = Some(first);
            while let Some(index) = next {
                debug_assert!(cells.is_read_by(index, owner));
                next = Index::named(cells.cell(index).next.load(Relaxed));
                match how {
                    Outcome::Done => cells.release(index, task),
                    Outcome::GiveBack => cells.give_back(index, task),
                }
            }
            // A freed cell is room for a sender. A message that is ready again is for a receiver; it may be room for a
            // sender, too (`Cells::give_back`).
            match how {
                Outcome::Done => Wake::senders(count),
                Outcome::GiveBack => cells.announce(count).and_senders(count),
            }
        });
        // This cannot fail: the task that took the message could lock then, and still can.
        if ended.is_ok() {
            self.inner().slots()[usize::from(owner.slot())].message_finished();
        }
    }

    /// Changes, under a side's lock, what `owner` has in flight or is writing. Aborts if `owner` is another task.
    pub(super) fn end(
        &self,
        side: Side,
        owner: Owner,
        how: impl FnOnce(Cells<'r>, Task<'_>) -> Wake<'r>,
    ) -> Result<(), AttachError> {
        // If the caller is `owner`, the message is still its own: a task with messages does not detach.
        if !self.inner().is_me(owner) {
            crate::fatal(format_args!(
                "a message was finished by a task that does not have it (one inherited across fork is the parent's)"
            ));
        }
        // SAFETY: `owner` is the calling thread's task, as checked above.
        let task = unsafe { self.inner().task_named(owner) };
        let locked = self.lock_now(side, task)?;
        let wake = how(locked.cells, task);
        locked.unlock(wake);
        self.after_flight();
        Ok(())
    }
}
