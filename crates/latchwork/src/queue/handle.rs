//! A handle on a queue: creation, and what can be read from it.
#![allow(unsafe_code)]

use super::cell::Cell;
use super::discipline::Discipline;
use super::error::QueueError;
use super::head::Head;
use super::layout::Cells;
use super::locked::Side;
use super::rank::{Priority, Rank};
use super::shape;
use super::wake::Wake;
use crate::atomic::Ordering;
use crate::region::{AttachError, Inner, ObjectError, Region, Reused, SpareKind, fingerprint};
use core::fmt;
use std::sync::Arc;

/// The options of a queue to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    capacity: u32,
    max_message: u32,
    discipline: Discipline,
}

impl QueueOptions {
    /// A queue for `capacity` messages of at most `max_message` bytes each. Creation allocates its memory, except for
    /// messages on their way to waiting receivers that have not run yet: where several receivers wait, one more may
    /// allocate memory for one more message when it begins to wait (and fails with
    /// [`ReceiveError::Storage`](super::ReceiveError::Storage) if the region has none). The memory is freed when the
    /// queue is deleted.
    #[must_use]
    pub const fn new(capacity: u32, max_message: u32) -> Self {
        Self {
            capacity,
            max_message,
            discipline: Discipline::Racing,
        }
    }

    /// Sets which of several waiting receivers gets a message.
    #[must_use]
    pub const fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    pub(super) fn capacities(self) -> (u32, u32) {
        (self.capacity, self.max_message)
    }

    fn parts(self) -> (u32, u32, u32) {
        (self.capacity, self.max_message, self.discipline.code())
    }

    pub(super) fn check(self, region: &Region) -> Result<(), QueueError> {
        let fits = |value: u32| (1..=shape::MAX).contains(&value);
        let error = QueueError::Capacity {
            capacity: self.capacity,
            max_message: self.max_message,
        };
        if fits(self.capacity) && fits(self.max_message) {
            let tasks = region.inner().slots().len();
            let shape = shape::shape(self.parts(), tasks);
            shape.map(|_| ()).ok_or(error)
        } else {
            Err(error)
        }
    }
}

pub(super) const FINGERPRINT: u64 = fingerprint(
    "queue",
    size_of::<Head>(),
    align_of::<Head>(),
    &[size_of::<Cell>() as u64, 6],
);

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

    fn can_be_reused(&self, region: &Region) -> bool {
        Queue::may_begin_in(region, self)
    }
}

/// A handle on a message queue in a region. Any task of the region may send and receive.
///
/// Messages that it sends have the handle's [rank](Self::urgent).
#[derive(Clone, Copy)]
pub struct Queue<'r> {
    pub(super) region: &'r Region,
    pub(super) cells: Cells<'r>,
    /// The life of the queue (a generation number, see `layout.rs`) that this handle was made in.
    pub(super) life: u32,
    pub(super) rank: Rank,
}

// SAFETY: a queue's words are atomics that change under its locks; its other bytes are used by one task at a time.
unsafe impl Send for Queue<'_> {}
// SAFETY: as for `Send`; a handle itself is never changed through a shared reference.
unsafe impl Sync for Queue<'_> {}

impl<'r> Queue<'r> {
    /// Creates the queue of this name, or opens it if it exists with the same options.
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

    /// Opens the queue of a head, which may come from a file that anybody wrote.
    fn open_in(region: &'r Region, head: &'r Head) -> Result<Self, QueueError> {
        let queue = Self::at(region, head);
        let is_sound = Cells::is_sound(head, region.inner());
        // Another task may have deleted it since.
        match queue.check_life() {
            Ok(()) if !queue.is_deleted() && is_sound => Ok(queue),
            Ok(()) if !queue.is_deleted() => Err(ObjectError::OtherType.into()),
            _ => Err(ObjectError::NotFound.into()),
        }
    }

    /// Begins a queue in a head that has none and is [over](Self::is_over). The caller holds the lock under which
    /// queues begin there.
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

    /// A token from which [`Self::of_token`] makes this handle again.
    pub(super) fn token(&self) -> (usize, u32) {
        let address = core::ptr::from_ref(self.cells.core).expose_provenance();
        (address, self.life)
    }

    /// # Safety
    /// The token is of a queue in this region.
    pub(super) unsafe fn of_token(region: &'r Region, (address, life): (usize, u32)) -> Self {
        // SAFETY: by the contract the address is a head's; a head stays as long as the region.
        let head: &'r Head = unsafe { &*core::ptr::with_exposed_provenance(address) };
        Self {
            life,
            ..Self::at(region, head)
        }
    }

    /// Whether the queue that a head has, or had, can be used at all. For heads that come from files.
    pub(crate) fn is_sound_in(region: &Region, head: &Head) -> bool {
        !head.is_alive() || Cells::is_sound(head, region.inner())
    }

    /// Whether the handle's queue has not been deleted.
    pub(crate) fn is_alive(&self) -> bool {
        self.check_life().is_ok() && !self.is_deleted()
    }

    /// The queue's number in its head, which grows by one with each queue.
    pub(crate) fn number(&self) -> u32 {
        self.life / 2
    }

    /// Whether the handle was made while the head had no queue.
    fn is_deleted(&self) -> bool {
        self.life % 2 == 1
    }

    /// Whether a queue may begin in a head, which may come from a file that anybody wrote. The caller holds the lock
    /// under which queues begin there.
    pub(crate) fn may_begin_in(region: &'r Region, head: &'r Head) -> bool {
        if !head.is_alive() && head.has_body() && !Cells::is_sound(head, region.inner()) {
            // The body's address is not to be trusted, so it is forgotten, not freed. (If a task frees it first, the
            // word is 0.)
            head.forget_body();
        }
        Self::at(region, head).is_over()
    }

    /// Whether there is no queue, and nothing is in flight. Settles what dead tasks left.
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

    /// Runs after a flight has ended: if it was the last one of a deleted queue, frees the queue's memory.
    #[inline]
    pub(super) fn after_flight(&self) {
        if self.check_life().is_err() {
            self.is_over();
        }
    }

    /// A handle whose messages go before all others; of several urgent messages, the last sent is received first.
    #[must_use]
    pub fn urgent(self) -> Self {
        Self {
            rank: Rank::Urgent,
            ..self
        }
    }

    /// A handle whose messages have this priority: they are received before those of lower priority, and after earlier
    /// ones of the same priority.
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

    /// The largest number of messages.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.cells.core.capacity()
    }

    /// The largest size of a message, in bytes.
    #[must_use]
    pub fn max_message(&self) -> u32 {
        self.cells.core.max_message()
    }

    /// The number of messages that are ready to be received at this moment; those [in flight](Self::in_flight) are not
    /// counted. It exceeds the capacity if messages came back from receivers that had waited for them.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.cells.pending()
    }

    /// Whether no message is ready at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of messages that are neither ready nor done with at this moment: those that senders are writing or
    /// have [reserved](Self::reserve), those that receivers have in hand, and those that were handed or
    /// [broadcast](Self::broadcast) to receivers whose calls have not returned. (A broadcast counts once, until the
    /// last of its receivers has read it.) Messages of a dead task count here until its death is settled; then they are
    /// ready, or gone.
    ///
    /// *Cost:* the queue's locks; its messages are not read.
    ///
    /// # Errors
    /// If the calling thread cannot become a task of the region.
    pub fn in_flight(&self) -> Result<u32, AttachError> {
        Ok(self.ready_and_in_flight()?.1)
    }

    /// Whether all that was sent is done with: at one moment during the call no message was ready, and none [in
    /// flight](Self::in_flight). So if no task sends any more, nothing is left to do, and no message comes again.
    ///
    /// [`Self::receive`] is done with a message when it returns. A task that is not done before it has processed the
    /// message receives with [`Self::receive_held`], and drops the [`Message`](super::Message) after that.
    ///
    /// # Errors
    /// As for [`Self::in_flight`].
    pub fn is_drained(&self) -> Result<bool, AttachError> {
        Ok(self.ready_and_in_flight()? == (0, 0))
    }

    /// The counts of ready messages and of messages in flight, of the same moment.
    fn ready_and_in_flight(&self) -> Result<(u32, u32), AttachError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(Side::Both, task)?;
        let ended = self.life.wrapping_add(1);
        // Messages that were in flight when the queue was deleted are in flight until they are finished.
        let counts = match self.cells.core.fixed.life.load(Ordering::Relaxed) {
            life if life == self.life || life == ended => locked.cells.ready_and_in_flight(),
            _ => (0, 0),
        };
        locked.unlock(Wake::NONE);
        Ok(counts)
    }

    /// The number of messages that were put back so far, because a receiver died or gave them back.
    #[must_use]
    pub fn redelivered(&self) -> u64 {
        self.cells
            .core
            .receiving
            .redelivered
            .load(Ordering::Relaxed)
    }

    /// Checks that the queue's indices agree with its cells. For tests, and for regions in doubt.
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

    pub(super) fn inner(&self) -> &'r Arc<Inner> {
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
