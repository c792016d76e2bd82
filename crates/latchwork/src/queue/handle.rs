//! A handle on a queue: creation, what can be read from it, flush and deletion.
#![allow(unsafe_code)]

use super::{
    ControlError, Priority, QueueError, QueueOptions, Rank, cell::Cell, head::Head, layout::Cells,
    locked::Side, shape, wake::Wake,
};
use crate::atomic::Ordering;
use crate::hook::{Misuse, Site};
use crate::region::{
    AttachError, Inner, ObjectError, Region, Reused, SpareKind, Task, fingerprint,
};
use core::fmt;
use std::sync::Arc;

pub(super) const FINGERPRINT: u64 = fingerprint(
    "queue",
    size_of::<Head>(),
    align_of::<Head>(),
    &[size_of::<Cell>() as u64, 7],
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

impl QueueOptions {
    /// Whether a region can have a queue with these options.
    pub(super) fn check(self, region: &Region) -> Result<(), QueueError> {
        let tasks = region.inner().max_tasks();
        let shape = shape::shape(self.parts(), tasks);
        shape.map(drop).ok_or(QueueError::Capacity {
            capacity: self.capacity,
            max_message: self.max_message,
        })
    }
}

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
        let site = Site::caller();
        options.check(region)?;
        let open = |head: &'r Head| {
            let queue = Self::open_in(region, head)?;
            match queue {
                Some(queue) if queue.options() != *options => Err(QueueError::OtherOptions {
                    capacity: queue.capacity(),
                    max_message: queue.max_message(),
                }),
                queue => Ok(queue),
            }
        };
        region.reused(name, open, |head: &'r Head| {
            let queue = Self::begin_in(region, head, options)?;
            queue.report().named(name, site);
            Ok(queue)
        })
    }

    /// Opens the queue of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], also if the queue was deleted; see [`QueueError`].
    pub fn open(region: &'r Region, name: &str) -> Result<Self, QueueError> {
        region.find_reused(name, |head: &'r Head| Self::open_in(region, head))
    }

    /// Opens the queue of a head, which may come from a file that anybody wrote; `None` if it has been deleted.
    fn open_in(region: &'r Region, head: &'r Head) -> Result<Option<Self>, QueueError> {
        let queue = Self::at(region, head);
        let is_sound = Cells::is_sound(head, region.inner());
        // Another task may have deleted it since.
        match queue.is_alive() {
            true if is_sound => Ok(Some(queue)),
            true => Err(ObjectError::OtherType.into()),
            false => Ok(None),
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
        let life = queue.under_both(|cells, task| cells.begin(task, options.parts()))??;
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

    /// Whether the queue that a head has, or had, can be used at all. For heads that come from files.
    pub(crate) fn is_sound_in(region: &Region, head: &Head) -> bool {
        !head.is_alive() || Cells::is_sound(head, region.inner())
    }

    /// Whether the handle's queue has not been deleted, and the head had a queue when the handle was made.
    pub(crate) fn is_alive(&self) -> bool {
        self.check_life().is_ok() && self.life.is_multiple_of(2)
    }

    /// The queue's number in its head, which grows by one with each queue.
    pub(crate) fn number(&self) -> u32 {
        self.life / 2
    }

    /// Whether a queue may begin in a head, which may come from a file that anybody wrote. The caller holds the lock
    /// under which queues begin there.
    pub(crate) fn may_begin_in(region: &'r Region, head: &'r Head) -> bool {
        if !head.is_alive() && head.has_body() && !Cells::is_sound(head, region.inner()) {
            // The body's address is not to be trusted, so it is forgotten, not freed. (If a task frees it first, the
            // word is 0.)
            head.blocks.body.store(0, Ordering::Relaxed);
        }
        Self::at(region, head).is_over()
    }

    /// Whether there is no queue, and nothing is in flight. Settles what dead tasks left.
    fn is_over(&self) -> bool {
        let head = self.cells.core;
        if head.is_alive() || !head.has_body() {
            return !head.is_alive();
        }
        let clear_away = || self.under_both(|cells, task| cells.clear_away(task));
        crate::atomic::unless_disabled!(QueueClearsAway, clear_away().unwrap_or(false), true)
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
    pub fn urgent(mut self) -> Self {
        self.rank = Rank::Urgent;
        self
    }

    /// A handle whose messages have this priority: they are received before those of lower priority, and after earlier
    /// ones of the same priority.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.rank = Rank::Priority(priority);
        self
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
    #[doc(hidden)]
    pub fn ready_and_in_flight(&self) -> Result<(u32, u32), AttachError> {
        let ended = self.life.wrapping_add(1);
        // Messages that were in flight when the queue was deleted are in flight until they are finished.
        self.under_both(
            |cells, _| match cells.core.fixed.life.load(Ordering::Relaxed) {
                life if life == self.life || life == ended => cells.ready_and_in_flight(),
                _ => (0, 0),
            },
        )
    }

    /// The number of messages that were put back so far, because a receiver died or gave them back.
    #[must_use]
    pub fn redelivered(&self) -> u64 {
        let redelivered = &self.cells.core.receiving.redelivered;
        redelivered.load(Ordering::Relaxed)
    }

    /// Checks that the queue's indices agree with its cells. For tests, and for regions in doubt.
    ///
    /// # Errors
    /// If the calling thread cannot become a task of the region.
    pub fn is_consistent(&self) -> Result<bool, AttachError> {
        loop {
            let deaths = self.inner().deaths();
            if self.under_both(|cells, _| !cells.core.has_body() || cells.is_consistent())? {
                return Ok(true);
            }
            // A count includes what was given to a dead task, until its death is noticed.
            self.inner().sweep()?;
            if self.inner().deaths() == deaths {
                return Ok(false);
            }
        }
    }

    /// Drops all messages that are ready, and returns their number. Messages in flight stay in flight, and waiting
    /// receivers go on waiting; waiting senders find room.
    ///
    /// If the caller is killed during the flush, each message is still there or dropped.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    #[track_caller]
    pub fn flush(&self) -> Result<u32, ControlError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(Side::Receivers, task)?;
        self.check_use(Site::caller())?;
        let count = locked.cells.flush(task);
        locked.unlock(Wake::senders(count));
        Ok(count)
    }

    /// Deletes the queue. Its messages are dropped; all tasks that wait at it, or use it later through any handle made
    /// before, get an error that reports the deletion. Messages in flight stay valid until they are finished, and are
    /// not delivered again.
    ///
    /// The name is free at once; the memory of the messages is freed when the last message in flight is finished. A few
    /// hundred bytes stay for the next queue, of any name and options; old handles do not become valid by that.
    ///
    /// A kill before the deletion is done leaves the queue as it was, or deleted; in the second case name and memory
    /// are freed when another queue is created after the death was detected.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    #[track_caller]
    pub fn delete(&self) -> Result<(), ControlError> {
        self.end_life()?;
        self.report().ends(Site::caller());
        self.inner().release_name(self.cells.core);
        Ok(())
    }

    /// Deletes a queue that has no name.
    #[track_caller]
    pub(crate) fn end_life(&self) -> Result<(), ControlError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(Side::Both, task)?;
        self.check_use(Site::caller())?;
        let waiting = locked.cells.waiting();
        let life = &self.cells.core.fixed.life;
        // Release: a task that sees the later changes also sees this one.
        life.store(self.life.wrapping_add(1), Ordering::Release);
        locked.cells.clear_away(task);
        locked.unlock(Wake::ALL);
        if waiting > 0 {
            self.report()
                .misused(Misuse::DeleteAwaited { waiting }, Site::caller());
        }
        Ok(())
    }

    /// Runs `step` under both locks, once what dead tasks left is settled.
    fn under_both<T>(&self, step: impl FnOnce(Cells<'r>, Task<'r>) -> T) -> Result<T, AttachError> {
        let task = self.inner().task()?;
        let locked = self.lock_now(Side::Both, task)?;
        Ok(step(locked.cells, task))
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
