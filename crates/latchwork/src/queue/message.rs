//! Messages in flight, and the end of their flight.
#![allow(unsafe_code)]

use super::{Queue, Rank, lane::Index, layout::Cells, locked::Side, wake::Wake};
use crate::region::{self, AttachError, Task};
use crate::{atomic::Ordering::Relaxed, region::heap::Owner};
use core::{fmt, marker::PhantomData, ops::Deref};

/// A message in flight, read where it lies. Dropping it ends the flight: the message has been received and is not
/// delivered again.
///
/// Until then the message is delivered again, in its old position, if the task that took it dies; also if it is dropped by
/// a panic, or [given back](Self::give_back). (A broadcast message is a copy of the receiver's own, and is not delivered
/// again.)
///
/// Not `Send`: the message is in flight with the task that took it, which cannot [detach](crate::region::Region::detach)
/// meanwhile. Forgetting it leaves it in flight until the process ends. In the child of a fork it is the parent's:
/// dropping it there aborts.
///
/// ```
/// use latchwork::queue::{Queue, QueueOptions};
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let jobs = Queue::create(&region, "jobs", &QueueOptions::new(8, 16))?;
/// jobs.send(b"paint")?;
/// let message = jobs.receive_held()?;
/// assert_eq!((&*message, message.deliveries()), (&b"paint"[..], 1));
/// message.give_back();
/// let again = jobs.receive_held()?;
/// assert_eq!(again.deliveries(), 2);
/// again.done();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a message that is dropped has been received"]
pub struct Message<'r>(pub(super) Flight<'r>);

/// Messages in flight, which end their flight when this is dropped.
pub(super) struct Flight<'r> {
    queue: Queue<'r>,
    bytes: Bytes,
    count: u32,
    /// The task that took them.
    owner: Owner,
    gives_back: bool,
    not_send: PhantomData<*const ()>,
}

/// Where the bytes of messages are.
pub(super) enum Bytes {
    /// In this cell, and those that are linked to it.
    Cells(Index),
    Copy(Box<[u8]>),
}

impl<'r> Flight<'r> {
    pub(super) fn new(queue: Queue<'r>, bytes: Bytes, count: u32, owner: Owner) -> Self {
        Self {
            queue,
            bytes,
            count,
            owner,
            gives_back: false,
            not_send: PhantomData,
        }
    }

    /// The first cell, unless the message is a copy.
    fn first(&self) -> Option<Index> {
        match self.bytes {
            Bytes::Cells(first) => Some(first),
            Bytes::Copy(_) => None,
        }
    }

    /// Puts the messages back in their old positions.
    fn give_back(mut self) {
        self.gives_back = true;
    }

    /// Ends the flight: the messages are received, or back in their old positions.
    fn finish(&self) {
        let Some(first) = self.first() else { return };
        let Self { count, owner, .. } = *self;
        let gives_back = self.gives_back || std::thread::panicking();
        let ended = self.queue.end(Side::Receivers, owner, |cells, task| {
            let mut next = Some(first);
            while let Some(index) = next {
                debug_assert!(cells.is_read_by(index, owner));
                next = Index::named(cells.cell(index).next.load(Relaxed));
                if gives_back {
                    cells.give_back(index, task);
                } else {
                    cells.release(index, task);
                }
            }
            // A freed cell is room for a sender. A message that is ready again is for a receiver; it may be room for a
            // sender, too (`Cells::give_back`).
            if gives_back {
                cells.announce(count).and_senders(count)
            } else {
                Wake::senders(count)
            }
        });
        // This cannot fail: the task that took the message could lock then, and still can.
        if ended.is_ok() {
            self.queue.inner().slots()[usize::from(owner.slot())].message_finished();
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<'r> Message<'r> {
    /// How often the message was given to a receiver, this time included. More than 1 means that an earlier receiver
    /// died with it, or gave it back.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        let cell = |index| self.0.queue.cells.cell(index);
        (self.0.first()).map_or(1, |index| cell(index).deliveries.load(Relaxed))
    }

    /// The rank that it was sent with; `None` for a broadcast one.
    #[must_use]
    pub fn rank(&self) -> Option<Rank> {
        Some(self.0.queue.cells.rank(self.0.first()?))
    }

    /// Ends the flight: the message has been received. The same as dropping it.
    pub fn done(self) {}

    /// Puts the message back in its old position, for another receiver or a later call.
    pub fn give_back(self) {
        self.0.give_back();
    }

    /// Takes the message out of the queue as a box of the caller's own. A large message that was sent as a box
    /// ([`Queue::send_block`]) is not copied; nor is a small one that this thread sent.
    ///
    /// *Owner death.* The message has been received: if the caller is killed later, its block is freed, and the message is lost.
    ///
    /// # Errors
    /// The message, and an error, if a copy is needed and the region has no room for it.
    pub fn into_block(self) -> Result<region::Box<'r, [u8]>, (Self, region::StorageError)> {
        if let Some(index) = self.0.first()
            && self.0.queue.cells.is_block(index)
            && let Some(bytes) = self.take_over(index)
        {
            core::mem::forget(self);
            return Ok(bytes);
        }
        self.into_copy()
    }

    pub(super) fn into_copy(self) -> Result<region::Box<'r, [u8]>, (Self, region::StorageError)> {
        region::Box::copied_in(&self, self.0.queue.region).map_err(|error| (self, error))
    }

    /// The message's block, if it can be made the task's own; that ends the flight.
    fn take_over(&self, index: Index) -> Option<region::Box<'r, [u8]>> {
        let Flight { queue, owner, .. } = &self.0;
        let mut taken = None;
        let ended = queue.end(Side::Receivers, *owner, |cells, task| {
            taken = cells.claim_block(index, task);
            Wake::senders(u32::from(taken.is_some()))
        });
        ended.ok()?;
        let block = taken?;
        let inner = queue.inner();
        inner.slots()[usize::from(owner.slot())].message_finished();
        // SAFETY: `claim_block` has made the block this task's own.
        Some(unsafe { region::Box::of_block(block.cast(), block.len(), inner) })
    }
}

impl Deref for Message<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0.bytes {
            Bytes::Cells(index) => self.0.queue.cells.message(*index),
            Bytes::Copy(copy) => copy,
        }
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
///
/// ```
/// use latchwork::queue::{Queue, QueueOptions, Wait};
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let jobs = Queue::create(&region, "jobs", &QueueOptions::new(8, 16))?;
/// jobs.send_batch(&[b"one", b"two", b"three"], Wait::Not)?;
/// let two = jobs.receive_batch(2, Wait::Not)?;
/// assert_eq!(two.iter().collect::<Vec<_>>(), [b"one", b"two"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "messages that are dropped have been received"]
pub struct Messages<'r>(pub(super) Flight<'r>);

impl Messages<'_> {
    /// The number of messages: at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.count as usize
    }

    /// The messages, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let copy = match &self.0.bytes {
            Bytes::Cells(_) => None,
            Bytes::Copy(copy) => Some(&**copy),
        };
        let cells = self.0.queue.cells;
        let chain = core::iter::successors(self.0.first(), move |index| {
            Index::named(cells.cell(*index).next.load(Relaxed))
        });
        copy.into_iter()
            .chain(chain.map(move |index| cells.message(index)))
    }

    /// Puts all messages back in their old positions.
    pub fn give_back(self) {
        self.0.give_back();
    }
}

impl fmt::Debug for Messages<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Messages")
            .field("count", &self.0.count)
            .finish_non_exhaustive()
    }
}

impl<'r> Queue<'r> {
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
