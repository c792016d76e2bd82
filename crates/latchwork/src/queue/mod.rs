//! Message queues in a region: bounded, many to many, and whole after any death.
//!
//! A message is 0 to `max_message` bytes, or a block of the region's heap of any size. Messages arrive
//! in the order of their [ranks](Rank), and within one in that in which their sends were committed.
//! Small ones are copied under a lock, in one step; larger ones outside it, or not at all.
//!
//! | to | use |
//! | --- | --- |
//! | send, receive a copy | [`Queue::send`], [`Queue::receive`], and `try_`, `_until`, `_for` |
//! | send before all others, or by priority | [`Queue::urgent`], [`Queue::with_priority`] |
//! | write and read where the message lies | [`Queue::reserve`], [`Queue::receive_held`] |
//! | hand over a block untouched | [`Queue::send_block`], [`Queue::receive_block`] |
//! | send and receive several at once | [`Queue::send_batch`], [`Queue::receive_batch`] |
//! | tell all who wait, once | [`Queue::broadcast`] |
//! | wait by epoll | [`Queue::watch`] |
//! | know that all is done | [`Queue::is_drained`] |
//! | connect two tasks, as fast as it goes | [`spsc`] |
//!
//! | who dies | when | then |
//! | --- | --- | --- |
//! | a sender | before the commit | nothing of the message is visible, its place is free again |
//! | a receiver (or its thread ends) | before [`Queue::receive`] has copied the message, or the [`Message`] was dropped | the message is delivered again, in its place |
//! | anybody | holding a lock of the queue | the next one rebuilds the queue from its cells |
//! | receivers | with messages that they had waited for | those are pending again, perhaps more than the capacity |
//! | a task that was woken for, or given a message | before it took it | another one is woken, or given it |
//!
//! So a message is delivered at least once. To process each exactly once, take it with
//! [`Queue::receive_held`], and have the result and a mark that it is done committed in one step (the
//! message's [deliveries](Message::deliveries) say whether there was an earlier try).
//!
//! ```
//! use latchwork::queue::{Queue, QueueOptions};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let queue = Queue::create(&region, "jobs", &QueueOptions::new(16, 64))?;
//! queue.send(b"first")?;
//! queue.urgent().send(b"at once")?;
//! let message = queue.receive_held()?;
//! assert_eq!(&*message, b"at once");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Waiting:* a task polls for some microseconds (offering its processor to others meanwhile, and at once if
//! that ended its last wait: its peer is on the same one), then sleeps through `region/park.rs`, which also notices deaths; see `sleepers.rs` for why no wake-up is
//! lost, and `waiters.rs` for who is served first. *Fork:* the child is a task of its own; what its
//! parent has in flight stays the parent's, and finishing it in the child aborts. *Signal handlers* must
//! not use a queue that the code they interrupt may be using, nor keep a message. *Cost:* a send or
//! receive of a small message is one robust lock and unlock, and a copy; no system call unless somebody
//! sleeps. A message whose rank puts it between others costs the shifting of four bytes for each message
//! behind or before it, whichever are fewer; a broadcast, and each message to a receiver that waits in
//! order, a look at every task of the region. A broadcast is copied under the locks.
#![allow(unsafe_code)]

mod attempt;
mod batch;
mod broadcast;
mod cells;
mod control;
mod error;
pub mod inspect;
pub(crate) mod lane;
mod layout;
mod message;
pub(crate) mod places;
mod rank;
mod ready;
mod receive;
mod recover;
mod reserve;
pub(crate) mod ring;
mod send;
pub(crate) mod sleepers;
mod spares;
pub mod spsc;
mod stock;
mod wait;
mod waiters;
mod wake;
mod watch;

pub use error::{ControlError, QueueError, ReceiveError, SendBlockError, SendError};
pub use message::{Message, Messages};
pub use rank::{Priority, Rank};
pub use reserve::Reservation;
pub use wait::Wait;
pub use waiters::Discipline;
pub use watch::{Watch, WatchError};

use crate::atomic::Ordering;
use crate::region::{AttachError, Inner, ObjectError, Region, Reused, SpareKind, fingerprint};
use attempt::Side;
use core::fmt;
use layout::Cells;
use std::sync::Arc;
use wake::Wake;

/// Up to this size a message is copied under the side's lock: to take it twice more costs longer.
const SMALL: usize = 4096;

/// How a queue is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    capacity: u32,
    max_message: u32,
    discipline: Discipline,
}

impl QueueOptions {
    /// A queue for `capacity` messages of at most `max_message` bytes each. Its memory is taken at once, but for what
    /// is on its way to receivers that wait and have not run yet: where several do, one that begins to wait may take
    /// memory for one more message (and there is [`ReceiveError::Storage`] if the region has none). It is given back
    /// when the queue is deleted.
    #[must_use]
    pub const fn new(capacity: u32, max_message: u32) -> Self {
        Self {
            capacity,
            max_message,
            discipline: Discipline::Racing,
        }
    }

    /// Says which of several receivers that wait gets a message.
    #[must_use]
    pub const fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    fn capacities(self) -> (u32, u32) {
        (self.capacity, self.max_message)
    }

    fn parts(self) -> (u32, u32, u32) {
        (self.capacity, self.max_message, self.discipline.code())
    }

    fn check(self, region: &Region) -> Result<(), QueueError> {
        let fits = |value: u32| (1..=layout::MOST).contains(&value);
        let error = QueueError::Capacity {
            capacity: self.capacity,
            max_message: self.max_message,
        };
        if fits(self.capacity) && fits(self.max_message) {
            let tasks = region.inner().slots().len();
            let shape = layout::shape(self.parts(), tasks);
            shape.map(|_| ()).ok_or(error)
        } else {
            Err(error)
        }
    }
}

const FINGERPRINT: u64 = fingerprint(
    "queue",
    size_of::<layout::Core>(),
    align_of::<layout::Core>(),
    &[size_of::<cells::Cell>() as u64, 6],
);

pub(crate) use layout::Core as Head;

impl Reused for Head {
    const FINGERPRINT: u64 = FINGERPRINT;
    const KIND: SpareKind = SpareKind {
        list: 0,
        link: Self::NEXT_SPARE,
    };

    fn new() -> Self {
        Self::new()
    }

    fn has_ended(&self) -> bool {
        !self.is_alive()
    }

    fn is_over(&self, region: &Region) -> bool {
        Queue::may_begin_in(region, self)
    }
}

/// A handle on a message queue in a region. Any task of the region may send and receive.
///
/// What it sends has the handle's [rank](Self::urgent).
#[derive(Clone, Copy)]
pub struct Queue<'r> {
    region: &'r Region,
    cells: Cells<'r>,
    /// The queue's life that this is a handle on.
    life: u32,
    rank: Rank,
}

// SAFETY: all of a queue is atomics under its lock, or bytes that one task has.
unsafe impl Send for Queue<'_> {}
// SAFETY: as above.
unsafe impl Sync for Queue<'_> {}

impl<'r> Queue<'r> {
    /// Makes the queue of this name, or opens it if it exists with the same options.
    ///
    /// # Errors
    /// See [`QueueError`].
    #[track_caller]
    pub fn create(
        region: &'r Region,
        name: &str,
        options: &QueueOptions,
    ) -> Result<Self, QueueError> {
        let site = crate::hook::Site::caller();
        options.check(region)?;
        region.reused(name, |head: &'r Head| {
            if !head.is_alive() {
                let queue = Self::begin_in(region, head, options)?;
                queue.report_name(name, site);
                return Ok(queue);
            }
            let queue = Self::open_in(region, head)?;
            if queue.options() != *options {
                return Err(QueueError::OtherOptions {
                    capacity: queue.capacity(),
                    max_message: queue.max_message(),
                });
            }
            Ok(queue)
        })
    }

    /// Opens the queue of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], also if the queue was deleted; see
    /// [`QueueError`].
    pub fn open(region: &'r Region, name: &str) -> Result<Self, QueueError> {
        region.find_reused(name, |head: &'r Head| Self::open_in(region, head))
    }

    /// The queue that lives in a head, which may be of a file of anybody's.
    fn open_in(region: &'r Region, head: &'r Head) -> Result<Self, QueueError> {
        let queue = Self::at(region, head);
        let is_sound = Cells::is_sound(head, region.inner());
        // It may be deleted meanwhile.
        match queue.check_life() {
            Ok(()) if !queue.is_deleted() && is_sound => Ok(queue),
            Ok(()) if !queue.is_deleted() => Err(ObjectError::OtherType.into()),
            _ => Err(ObjectError::NotFound.into()),
        }
    }

    /// Has a queue begin in a head that has none, and is [over](Self::is_over). Under the lock of those who have one
    /// begin there.
    pub(crate) fn begin_in(
        region: &'r Region,
        head: &'r Head,
        options: &QueueOptions,
    ) -> Result<Self, QueueError> {
        options.check(region)?;
        let queue = Self::at(region, head);
        let task = queue.inner().task()?;
        let locked = queue.lock_now(Side::Both, task)?;
        let life = locked.cells.begin(task, options.parts())?;
        locked.unlock(Wake::NONE);
        Ok(Self { life, ..queue })
    }

    /// A handle on the queue that a head has at this moment, if it has one; see [`Self::is_alive`].
    pub(crate) fn at(region: &'r Region, head: &'r Head) -> Self {
        Self {
            region,
            cells: Cells {
                core: head,
                inner: region.inner(),
            },
            life: head.fixed.life.load(Ordering::Acquire),
            rank: Rank::default(),
        }
    }

    /// What [`Self::of_token`] makes the handle of again.
    fn token(&self) -> (usize, u32) {
        let address = core::ptr::from_ref(self.cells.core).expose_provenance();
        (address, self.life)
    }

    /// # Safety
    /// The token is of a queue in this region.
    unsafe fn of_token(region: &'r Region, (address, life): (usize, u32)) -> Self {
        // SAFETY: by the contract a head, which stays as long as the region.
        let head: &'r Head = unsafe { &*core::ptr::with_exposed_provenance(address) };
        Self {
            life,
            ..Self::at(region, head)
        }
    }

    /// Whether the queue that a head has, or had, can be used at all: for heads of files.
    pub(crate) fn is_sound_in(region: &Region, head: &Head) -> bool {
        !head.is_alive() || Cells::is_sound(head, region.inner())
    }

    /// Whether the queue of the handle has not been deleted.
    pub(crate) fn is_alive(&self) -> bool {
        self.check_life().is_ok() && !self.is_deleted()
    }

    /// The queue's number in its head, which grows by one with each.
    pub(crate) fn number(&self) -> u32 {
        self.life / 2
    }

    /// Whether the handle was made when there was no queue.
    fn is_deleted(&self) -> bool {
        self.life % 2 == 1
    }

    /// Whether a queue may begin in a head, which may be of a file of anybody's. Under the lock of those who have one
    /// begin there.
    pub(crate) fn may_begin_in(region: &'r Region, head: &'r Head) -> bool {
        if !head.is_alive() && head.has_body() && !Cells::is_sound(head, region.inner()) {
            // Nobody frees what it says, unless that has been done by now.
            head.forget_body();
        }
        Self::at(region, head).is_over()
    }

    /// Whether there is no queue, and nothing is in flight. Settles what the dead left.
    fn is_over(&self) -> bool {
        let head = self.cells.core;
        if head.is_alive() || !head.has_body() {
            return !head.is_alive();
        }
        let Ok(task) = self.inner().task() else {
            return false;
        };
        let Ok(locked) = self.lock_now(Side::Both, task) else {
            return false;
        };
        let is_over = locked.cells.clear_away(task);
        locked.unlock(Wake::NONE);
        is_over
    }

    /// After a flight: should it have been the last of a deleted queue, its memory is freed.
    #[inline]
    fn after_flight(&self) {
        if self.check_life().is_err() {
            self.is_over();
        }
    }

    /// A handle whose messages go before all others; of several urgent ones, the last sent is received
    /// first.
    #[must_use]
    pub fn urgent(self) -> Self {
        Self {
            rank: Rank::Urgent,
            ..self
        }
    }

    /// A handle whose messages have this priority: they are received before those of lower priority,
    /// and after those of the same that were sent before.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self {
            rank: Rank::Priority(priority),
            ..self
        }
    }

    /// The region that the queue lies in.
    #[must_use]
    pub fn region(&self) -> &'r Region {
        self.region
    }

    /// The options that the queue was made with.
    #[must_use]
    pub fn options(&self) -> QueueOptions {
        QueueOptions::new(self.capacity(), self.max_message()).discipline(self.cells.discipline())
    }

    /// The most messages.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.cells.core.capacity()
    }

    /// The most bytes of a message.
    #[must_use]
    pub fn max_message(&self) -> u32 {
        self.cells.core.max_message()
    }

    /// Messages that are ready to be received at this moment; those [in flight](Self::in_flight) are not counted.
    /// More than the capacity, if messages came back from receivers that had waited for them.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.cells.pending()
    }

    /// Whether no message is ready at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Messages that are neither ready nor done with at this moment: that senders are writing or have
    /// [reserved](Self::reserve), that receivers have in hand, and that were handed or [broadcast](Self::broadcast)
    /// to receivers which have not returned yet. (A broadcast counts once, until the last of its receivers has read
    /// it.) What a task had that died is counted here until its death is settled, and then it is ready, or gone.
    ///
    /// *Cost:* the queue's locks, and no look at its messages.
    ///
    /// # Errors
    /// If the calling thread cannot become a task of the region.
    pub fn in_flight(&self) -> Result<u32, AttachError> {
        Ok(self.ready_and_in_flight()?.1)
    }

    /// Whether all that was sent is done with: at one moment during the call no message was ready, and none
    /// [in flight](Self::in_flight). So if nobody sends any more, nothing is left to do, and nothing comes again.
    ///
    /// [`Self::receive`] is done with a message when it returns; a task that is not until it has processed it
    /// receives with [`Self::receive_held`], and drops the [`Message`] then.
    ///
    /// # Errors
    /// As for [`Self::in_flight`].
    pub fn is_drained(&self) -> Result<bool, AttachError> {
        Ok(self.ready_and_in_flight()? == (0, 0))
    }

    /// Both of one moment.
    fn ready_and_in_flight(&self) -> Result<(u32, u32), AttachError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(Side::Both, task)?;
        let ended = self.life.wrapping_add(1);
        // What was in flight when the queue was deleted is so until it is finished.
        let counts = match self.cells.core.fixed.life.load(Ordering::Relaxed) {
            life if life == self.life || life == ended => locked.cells.ready_and_in_flight(),
            _ => (0, 0),
        };
        locked.unlock(Wake::NONE);
        Ok(counts)
    }

    /// How many messages were put back so far, because a receiver died or gave them back.
    #[must_use]
    pub fn redelivered(&self) -> u64 {
        self.cells
            .core
            .receiving
            .redelivered
            .load(Ordering::Relaxed)
    }

    /// Checks that the queue's indices agree with its cells, for tests and doubtful regions.
    ///
    /// # Errors
    /// If the calling thread cannot become a task of the region.
    pub fn is_consistent(&self) -> Result<bool, AttachError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(Side::Both, task)?;
        let consistent = !locked.cells.core.has_body() || locked.cells.is_consistent();
        locked.unlock(Wake::NONE);
        Ok(consistent)
    }

    fn inner(&self) -> &'r Arc<Inner> {
        self.region.inner()
    }
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Queue")
            .field("capacity", &self.capacity())
            .field("max_message", &self.max_message())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
