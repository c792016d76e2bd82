//! Message queues in a region: bounded, many to many, and whole after any death.
//!
//! A message is 0 to `max_message` bytes. Messages arrive in the order in which their sends were
//! committed. Small ones are copied under the queue's lock, in one step; larger ones outside it.
//!
//! | who dies | when | then |
//! | --- | --- | --- |
//! | a sender | before the commit | nothing of the message is visible, its place is free again |
//! | a receiver (or its thread ends) | before [`Queue::receive`] has copied the message, or before [`Message::done`] | the message is delivered again, in its place |
//! | anybody | holding the queue's lock | the next one rebuilds the queue from its cells |
//! | a task that was woken for a message | before it took it | another one is woken |
//!
//! So a message is delivered at least once. To process each exactly once, take it with
//! [`Queue::receive_held`], and have the result and the mark "done" committed in one step (the
//! message's [deliveries](Message::deliveries) say whether there was an earlier try).
//!
//! ```
//! use latchwork::queue::{Queue, QueueOptions};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let queue = Queue::create(&region, "jobs", &QueueOptions::new(16, 64))?;
//! queue.send(b"first")?;
//! let message = queue.receive_held()?;
//! assert_eq!(&*message, b"first");
//! message.done();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Waiting:* a task polls for a moment, then sleeps through `region/park.rs`, which also notices
//! deaths; see `sleepers.rs` for why no wake-up is lost. Real-time tasks wake in priority order (the
//! kernel's order for sleepers on one word). *Fork:* the child is a task of its own; a message that
//! its parent has in flight stays the parent's, and finishing it in the child aborts. *Signal
//! handlers* must not use a queue that the code they interrupt may be using, nor keep a message.
//! *Cost:* a send or receive of a small message is one robust lock and unlock, and a copy; no system
//! call unless somebody sleeps.
#![allow(unsafe_code)]

mod cells;
mod error;
pub(crate) mod sleepers;

pub use error::{QueueError, ReceiveError, SendError};

use crate::atomic::{Ordering, spin_hint};
use crate::mutex::{Acquired, RawError};
use crate::region::heap::Owner;
use crate::region::{AttachError, Inner, Parked, Region, Task, fingerprint};
use crate::time::Deadline;
use cells::{Cells, Index, Shape};
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::time::Duration;
use sleepers::{Sleepers, Wake};
use std::sync::Arc;

/// Up to this size a message is copied under the lock: two more lock operations cost as much as
/// copying some hundred bytes.
const SMALL: usize = 512;

/// Polls before a sleep. A sleep and wake-up across CPUs costs some 6 µs; this is about as long.
const SPINS: u32 = 300;

/// How a queue is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    capacity: u32,
    max_message: u32,
}

impl QueueOptions {
    /// A queue for `capacity` messages of at most `max_message` bytes each. All of its memory is
    /// taken at once.
    #[must_use]
    pub const fn new(capacity: u32, max_message: u32) -> Self {
        Self {
            capacity,
            max_message,
        }
    }

    fn shape(self) -> Result<Shape, QueueError> {
        let fits = |value: u32| (1..=1 << 30).contains(&value);
        let error = QueueError::Capacity {
            capacity: self.capacity,
            max_message: self.max_message,
        };
        if fits(self.capacity) && fits(self.max_message) {
            Shape::new(self.capacity, self.max_message).ok_or(error)
        } else {
            Err(error)
        }
    }
}

const FINGERPRINT: u64 = fingerprint(
    "queue",
    size_of::<cells::Core>(),
    align_of::<cells::Core>(),
    &[size_of::<cells::Cell>() as u64, 1],
);

/// A handle on a message queue in a region. Any task of the region may send and receive.
#[derive(Clone, Copy)]
pub struct Queue<'r> {
    region: &'r Region,
    cells: Cells<'r>,
}

// SAFETY: all of a queue is atomics under its lock, or bytes that one task has.
unsafe impl Send for Queue<'_> {}
// SAFETY: as above.
unsafe impl Sync for Queue<'_> {}

/// What a task does under the lock.
enum Step<T> {
    Done(T),
    Wait,
}

impl<'r> Queue<'r> {
    /// Makes the queue of this name, or opens it if it exists with the same capacities.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub fn create(
        region: &'r Region,
        name: &str,
        options: &QueueOptions,
    ) -> Result<Self, QueueError> {
        let shape = options.shape()?;
        let (block, bytes) = region.raw_object(name, FINGERPRINT, shape.layout, |block| {
            // SAFETY: a fresh block of the layout.
            unsafe { Cells::initialise(block, shape, options.capacity, options.max_message) }
        })?;
        let queue = Self::from_block(region, block, bytes)?;
        if QueueOptions::new(queue.capacity(), queue.max_message()) == *options {
            Ok(queue)
        } else {
            Err(QueueError::OtherCapacity {
                capacity: queue.capacity(),
                max_message: queue.max_message(),
            })
        }
    }

    /// Opens the queue of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`](crate::region::ObjectError::NotFound); see [`QueueError`].
    pub fn open(region: &'r Region, name: &str) -> Result<Self, QueueError> {
        let (block, bytes) = region.find_raw_object(name, FINGERPRINT)?;
        Self::from_block(region, block, bytes)
    }

    fn from_block(
        region: &'r Region,
        block: NonNull<u8>,
        bytes: usize,
    ) -> Result<Self, QueueError> {
        // SAFETY: an object with the queue's fingerprint was written by `initialise`, and stays as
        // long as the region.
        match unsafe { Cells::open(block, bytes) } {
            Some(cells) => Ok(Self { region, cells }),
            None => Err(QueueError::Object(crate::region::ObjectError::OtherType)),
        }
    }

    /// The most messages.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.cells.core.capacity
    }

    /// The most bytes of a message.
    #[must_use]
    pub fn max_message(&self) -> u32 {
        self.cells.core.max_message
    }

    /// Messages that are ready to be received at this moment.
    #[must_use]
    pub fn len(&self) -> u32 {
        // Relaxed: the answer may be stale before it arrives.
        self.cells.core.ready_count.load(Ordering::Relaxed)
    }

    /// Whether no message is ready at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages were put back so far, because a receiver died or gave them back.
    #[must_use]
    pub fn redelivered(&self) -> u64 {
        self.cells.core.redelivered.load(Ordering::Relaxed)
    }

    /// Sends a message, waiting while the queue is full.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Attach`].
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message, Patience::Until(None))
    }

    /// Sends a message if there is room at this moment.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::TooLong`], [`SendError::Attach`].
    pub fn try_send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message, Patience::Try)
    }

    /// Sends a message, waiting for room until `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`], [`SendError::TooLong`], [`SendError::Attach`].
    pub fn send_until(&self, message: &[u8], deadline: Deadline) -> Result<(), SendError> {
        self.send_with(message, Patience::Until(Some(deadline)))
    }

    /// Sends a message, waiting for room for at most `timeout`.
    ///
    /// # Errors
    /// As for [`Self::send_until`].
    pub fn send_for(&self, message: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.send_until(message, Deadline::after(timeout))
    }

    /// Receives a message into `buffer`, waiting while the queue is empty; returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::BufferTooSmall`], [`ReceiveError::Attach`].
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.receive_with(buffer, Patience::Until(None))
    }

    /// Receives a message into `buffer` if there is one at this moment; returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`], [`ReceiveError::BufferTooSmall`], [`ReceiveError::Attach`].
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.receive_with(buffer, Patience::Try)
    }

    /// Receives a message into `buffer`, waiting for one until `deadline`; returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::BufferTooSmall`], [`ReceiveError::Attach`].
    pub fn receive_until(
        &self,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<usize, ReceiveError> {
        self.receive_with(buffer, Patience::Until(Some(deadline)))
    }

    /// Receives a message into `buffer`, waiting for one for at most `timeout`; returns its length.
    ///
    /// # Errors
    /// As for [`Self::receive_until`].
    pub fn receive_for(&self, buffer: &mut [u8], timeout: Duration) -> Result<usize, ReceiveError> {
        self.receive_until(buffer, Deadline::after(timeout))
    }

    /// Takes a message in place, waiting while the queue is empty. It stays in flight, and is
    /// delivered again should this task die, until [`Message::done`].
    ///
    /// # Errors
    /// [`ReceiveError::Attach`].
    pub fn receive_held(&self) -> Result<Message<'r>, ReceiveError> {
        self.hold_with(Patience::Until(None))
    }

    /// Takes a message in place if there is one at this moment.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`], [`ReceiveError::Attach`].
    pub fn try_receive_held(&self) -> Result<Message<'r>, ReceiveError> {
        self.hold_with(Patience::Try)
    }

    /// Takes a message in place, waiting for one until `deadline`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::Attach`].
    pub fn receive_held_until(&self, deadline: Deadline) -> Result<Message<'r>, ReceiveError> {
        self.hold_with(Patience::Until(Some(deadline)))
    }

    /// Checks that the queue's indices agree with its cells, for tests and doubtful regions.
    ///
    /// # Errors
    /// If the calling thread cannot become a task of the region.
    pub fn is_consistent(&self) -> Result<bool, AttachError> {
        self.inner().task()?;
        let locked = self.lock(self.inner().deaths())?;
        let consistent = locked.cells.is_consistent();
        locked.unlock(Wake::NONE);
        Ok(consistent)
    }

    fn inner(&self) -> &'r Arc<Inner> {
        self.region.inner()
    }

    fn send_with(&self, message: &[u8], patience: Patience) -> Result<(), SendError> {
        let max_message = self.max_message() as usize;
        if message.len() > max_message {
            return Err(SendError::TooLong {
                bytes: message.len(),
                max_message,
            });
        }
        let senders = &self.cells.core.senders;
        let failed = |failure| match failure {
            Failure::Refused => SendError::Full,
            Failure::TimedOut => SendError::TimedOut,
            Failure::Attach(error) => SendError::Attach(error),
        };
        if message.len() <= SMALL {
            return self
                .attempt(patience, senders, |cells, _| {
                    if cells.send_small(message) {
                        (Step::Done(()), cells.core.receivers.notify())
                    } else {
                        (Step::Wait, Wake::NONE)
                    }
                })
                .map_err(failed);
        }
        let index = self
            .attempt(patience, senders, |cells, task| {
                match cells.begin_send(task.owner()) {
                    Some(index) => (Step::Done(index), Wake::NONE),
                    None => (Step::Wait, Wake::NONE),
                }
            })
            .map_err(failed)?;
        // SAFETY: the cell is ours until the commit, and has room for `max_message` bytes.
        unsafe {
            self.cells
                .bytes(index)
                .copy_from_nonoverlapping(NonNull::from(message).cast(), message.len())
        };
        let locked = self.lock(self.inner().deaths())?;
        locked.cells.commit(index, message.len());
        let wake = locked.cells.core.receivers.notify();
        locked.unlock(wake);
        Ok(())
    }

    fn receive_with(&self, buffer: &mut [u8], patience: Patience) -> Result<usize, ReceiveError> {
        let small = self
            .attempt(patience, &self.cells.core.receivers, |cells, task| {
                let Some(first) = cells.peek() else {
                    return (Step::Wait, Wake::NONE);
                };
                let message = cells.message(first);
                if message.len() > buffer.len() {
                    // Another receiver may have the room: pass the wake-up on.
                    let error = ReceiveError::BufferTooSmall {
                        bytes: message.len(),
                        buffer: buffer.len(),
                    };
                    return (Step::Done(Err(error)), cells.core.receivers.notify());
                }
                if message.len() <= SMALL {
                    let length = message.len();
                    buffer[..length].copy_from_slice(message);
                    cells.drop_first();
                    return (
                        Step::Done(Ok(Received::Copied(length))),
                        cells.core.senders.notify(),
                    );
                }
                match cells.begin_receive(task.owner()) {
                    Some(index) => (
                        Step::Done(Ok(Received::Held(index, task.owner()))),
                        Wake::NONE,
                    ),
                    None => (Step::Wait, Wake::NONE),
                }
            })
            .map_err(receive_error)??;
        match small {
            Received::Copied(length) => Ok(length),
            Received::Held(index, owner) => {
                let message = self.cells.message(index);
                buffer[..message.len()].copy_from_slice(message);
                let length = message.len();
                self.finish(index, owner, Cells::release)?;
                Ok(length)
            }
        }
    }

    fn hold_with(&self, patience: Patience) -> Result<Message<'r>, ReceiveError> {
        self.attempt(patience, &self.cells.core.receivers, |cells, task| {
            let owner = task.owner();
            let Some(index) = cells.begin_receive(owner) else {
                return (Step::Wait, Wake::NONE);
            };
            task.slot.message_taken();
            let message = Message {
                queue: *self,
                index,
                owner,
                not_send: PhantomData,
            };
            (Step::Done(message), Wake::NONE)
        })
        .map_err(receive_error)
    }

    /// Ends the flight of a message that `owner` took; whoever waits for what that frees is woken. Aborts
    /// if that is another task.
    fn finish(
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
        let is_free = locked.cells.cell(index).state.load(Ordering::Relaxed) == cells::FREE;
        let wake = if is_free {
            core.senders.notify()
        } else {
            core.receivers.notify()
        };
        locked.unlock(wake);
        Ok(())
    }

    /// Tries `step` under the lock until it is done, sleeping among `sleepers` in between.
    fn attempt<T>(
        &self,
        patience: Patience,
        sleepers: &Sleepers,
        mut step: impl FnMut(Cells<'r>, Task<'r>) -> (Step<T>, Wake<'r>),
    ) -> Result<T, Failure> {
        let inner = self.inner();
        let task = inner.task()?;
        let mut polls = SPINS;
        loop {
            // Before the look at the queue: see `park`.
            let deaths = inner.deaths();
            let locked = self.lock(deaths)?;
            let (outcome, wake) = step(locked.cells, task);
            if let Step::Done(value) = outcome {
                locked.unlock(wake);
                return Ok(value);
            }
            let Patience::Until(deadline) = patience else {
                locked.unlock(wake);
                // What a dead task had in flight would be ours.
                if inner.has_unswept() {
                    inner.sweep()?;
                    continue;
                }
                return Err(Failure::Refused);
            };
            if polls > 0 {
                locked.unlock(wake);
                self.poll(sleepers, &mut polls);
                continue;
            }
            let ticket = sleepers.register();
            locked.unlock(wake);
            match inner.park(task, &[(sleepers.word(), ticket)], deaths, deadline) {
                Parked::Again => polls = 1,
                Parked::TimedOut => return Err(Failure::TimedOut),
            }
        }
    }

    /// Waits for a change without sleeping.
    fn poll(&self, sleepers: &Sleepers, polls: &mut u32) {
        let core = self.cells.core;
        let receiving = core::ptr::eq(sleepers, &core.receivers);
        let seen = core.ready_count.load(Ordering::Relaxed);
        while *polls > 0 {
            *polls -= 1;
            let now = core.ready_count.load(Ordering::Relaxed);
            if if receiving { now > 0 } else { now < seen } {
                return;
            }
            spin_hint();
        }
    }

    /// Takes the queue's lock, and settles what dead tasks left first.
    fn lock(&self, deaths: u32) -> Result<Locked<'r>, AttachError> {
        let core = self.cells.core;
        // SAFETY: the queue lies in the region, which the handle keeps mapped.
        let acquired = unsafe { core.lock.lock_raw(None) };
        let locked = Locked { cells: self.cells };
        match acquired {
            Ok(Acquired::Clean) if core.recovered.load(Ordering::Relaxed) == deaths => {}
            Ok(how) => {
                locked.cells.recover(|owner| self.inner().is_alive(owner));
                core.recovered.store(deaths, Ordering::Relaxed);
                if how == Acquired::OwnerDied {
                    core.lock.mark_consistent();
                }
            }
            Err(error) => {
                core::mem::forget(locked);
                return Err(match error {
                    RawError::Unavailable(error) => AttachError::Task(error),
                    _ => crate::fatal(format_args!(
                        "a queue was used by a signal handler that interrupted its use"
                    )),
                });
            }
        }
        Ok(locked)
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

#[derive(Clone, Copy)]
enum Patience {
    Try,
    Until(Option<Deadline>),
}

enum Failure {
    Refused,
    TimedOut,
    Attach(AttachError),
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

fn receive_error(failure: Failure) -> ReceiveError {
    match failure {
        Failure::Refused => ReceiveError::Empty,
        Failure::TimedOut => ReceiveError::TimedOut,
        Failure::Attach(error) => ReceiveError::Attach(error),
    }
}

enum Received {
    Copied(usize),
    Held(Index, Owner),
}

/// The queue's lock, held.
struct Locked<'r> {
    cells: Cells<'r>,
}

impl Locked<'_> {
    fn unlock(self, wake: Wake<'_>) {
        drop(self);
        wake.carry_out();
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // A panic under the lock is a bug of ours, and the cells are whole at every instruction.
        // SAFETY: locked by `Queue::lock`.
        unsafe { self.cells.core.lock.unlock_raw() };
    }
}

/// A message in flight: read in place, delivered again unless it is [done](Self::done).
///
/// Dropping it undone gives it back to the queue, in its old place. Not `Send`: it is in flight with
/// the task that took it, which cannot [detach](Region::detach) meanwhile. Forgetting it leaves it in
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
        core::mem::ManuallyDrop::new(self).finish(Cells::release);
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
