//! The directives of RTEMS's message queue manager.
//!
//! The table of queues is a named object of the region, of a capacity that is given when it is made. An
//! entry names a queue's block and the life of it that the id stands for, so that an id never means a
//! later queue (until 4,096 have had its place).
//!
//! | entry's `state` | meaning | entered by |
//! | --- | --- | --- |
//! | even: 2 × generation | free | made; deletion, last of all |
//! | odd | a queue | creation, when all else stands there |
//!
//! Creation and deletion run under the table's robust lock; everything else looks at the entry, and
//! leaves the rest to the queue, which knows whether it was deleted. Killed in a creation, a task leaves
//! at most an empty queue of that place, for the next one; killed in a deletion, a queue that refuses, whose
//! id can still be deleted.
//!
//! *Memory* of a deleted queue serves the next one of the same place, size, count and discipline, and
//! stays until the region ends.
#![allow(unsafe_code)]

use super::{Id, Interval, NO_WAIT, Name, PRIORITY, Status};
use crate::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::mutex::Robust;
use crate::queue::{
    ControlError, Discipline, Queue, QueueError, QueueOptions, ReceiveError, SendError, Wait,
};
use crate::region::{ObjectError, Region, fingerprint};
use core::alloc::Layout;
use core::time::Duration;

const NAME: &str = "latchwork.classic.queues";
/// Class, in the first four bits of an id.
const CLASS: u32 = 4;
/// Bits of an id's generation.
const GENERATION: u32 = 0xfff;

#[repr(C, align(64))]
struct Table {
    lock: Robust,
    capacity: u32,
    microseconds: u32,
}

#[repr(C)]
struct Entry {
    state: AtomicU32,
    name: AtomicU32,
    /// The queue: where, and in which life.
    block: AtomicUsize,
    life: AtomicU32,
}

fn id_of(state: u32, index: usize) -> Id {
    CLASS << 28 | ((state / 2) & GENERATION) << 16 | (index as u32 + 1)
}

const FINGERPRINT: u64 = fingerprint(
    "classic queues",
    size_of::<Table>(),
    align_of::<Table>(),
    &[size_of::<Entry>() as u64, 1],
);

/// RTEMS's message queues in a region. What is a null pointer in C is `None` here.
///
/// ```
/// use core::time::Duration;
/// use latchwork::classic::{MessageQueues, NO_WAIT, Status};
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let rtems = MessageQueues::create(&region, 8, Duration::from_millis(10))?;
/// let mut id = 0;
/// let status = rtems.message_queue_create(u32::from_be_bytes(*b"MAIL"), 3, 16, 0, Some(&mut id));
/// assert_eq!(status, Status::Successful);
/// assert_eq!(rtems.message_queue_send(id, Some(b"hello")), Status::Successful);
/// let (mut buffer, mut size) = ([0; 16], 0);
/// let status = rtems.message_queue_receive(id, Some(&mut buffer), Some(&mut size), NO_WAIT, 0);
/// assert_eq!((status, &buffer[..size]), (Status::Successful, &b"hello"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct MessageQueues<'r> {
    region: &'r Region,
    table: &'r Table,
    entries: &'r [Entry],
}

// SAFETY: the table is atomics and a lock.
unsafe impl Send for MessageQueues<'_> {}
// SAFETY: as above.
unsafe impl Sync for MessageQueues<'_> {}

impl<'r> MessageQueues<'r> {
    /// Makes the region's table with room for `capacity` queues, or opens it, whatever it was made with.
    /// `tick`: the length of a clock tick, from 1 µs to an hour.
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub fn create(region: &'r Region, capacity: u16, tick: Duration) -> Result<Self, ObjectError> {
        let microseconds = tick.as_micros().clamp(1, 3_600_000_000) as u32;
        let bytes = size_of::<Table>() + usize::from(capacity) * size_of::<Entry>();
        let layout = Layout::from_size_align(bytes, align_of::<Table>())
            .map_err(|_| ObjectError::OtherType)?;
        let (block, _) = region.raw_object(NAME, FINGERPRINT, layout, |block| {
            // SAFETY: a fresh block of the layout; zero is a valid entry, a free one.
            unsafe {
                block.write_bytes(0, bytes);
                block.cast::<Table>().write(Table {
                    lock: Robust::new(),
                    capacity: u32::from(capacity),
                    microseconds,
                });
            }
        })?;
        // SAFETY: an object with the table's fingerprint was written as above, and stays as long as the
        // region.
        unsafe {
            let table: &'r Table = block.cast().as_ref();
            let entries = block.add(size_of::<Table>()).cast::<Entry>();
            Ok(Self {
                region,
                table,
                entries: core::slice::from_raw_parts(entries.as_ptr(), table.capacity as usize),
            })
        }
    }

    /// `rtems_message_queue_create`.
    pub fn message_queue_create(
        &self,
        name: Name,
        count: u32,
        max_message_size: usize,
        attributes: u32,
        id: Option<&mut Id>,
    ) -> Status {
        if name == 0 {
            return Status::InvalidName;
        }
        let Some(id) = id else {
            return Status::InvalidAddress;
        };
        if count == 0 {
            return Status::InvalidNumber;
        }
        if max_message_size == 0 {
            return Status::InvalidSize;
        }
        self.locked(|| self.make(name, count, max_message_size, attributes))
            .map_or_else(
                |status| status,
                |new| {
                    *id = new;
                    Status::Successful
                },
            )
    }

    fn make(
        &self,
        name: Name,
        count: u32,
        max_message_size: usize,
        attributes: u32,
    ) -> Result<Id, Status> {
        // Relaxed, here and below: ordered by the table's lock.
        let free = |entry: &Entry| entry.state.load(Ordering::Relaxed).is_multiple_of(2);
        let index = self.entries.iter().position(free).ok_or(Status::TooMany)?;
        let size = u32::try_from(max_message_size).map_err(|_| Status::InvalidSize)?;
        let discipline = if attributes & PRIORITY == 0 {
            Discipline::Fifo
        } else {
            Discipline::Priority
        };
        let options = QueueOptions::new(count, size).discipline(discipline);
        let place = format!("rtems.{index}.{count}.{size}.{}", attributes & PRIORITY);
        let queue = Queue::create(self.region, &place, &options).map_err(|error| match error {
            QueueError::Capacity { .. } if size > 1 << 30 => Status::InvalidSize,
            QueueError::Capacity { .. } => Status::InvalidNumber,
            QueueError::Object(ObjectError::Attach(_)) => Status::InternalError,
            _ => Status::Unsatisfied,
        })?;
        let entry = &self.entries[index];
        let (block, life) = queue.token();
        entry.name.store(name, Ordering::Relaxed);
        entry.block.store(block, Ordering::Relaxed);
        entry.life.store(life, Ordering::Relaxed);
        let state = entry.state.load(Ordering::Relaxed) + 1;
        // Release: pairs with the Acquire in `find`.
        entry.state.store(state, Ordering::Release);
        Ok(id_of(state, index))
    }

    /// `rtems_message_queue_ident`: the queue of this name that stands first in the table.
    pub fn message_queue_ident(&self, name: Name, id: Option<&mut Id>) -> Status {
        let Some(id) = id else {
            return Status::InvalidAddress;
        };
        if name == 0 {
            return Status::InvalidName;
        }
        let found = self.entries.iter().enumerate().find_map(|(index, entry)| {
            // Acquire: pairs with the Release in `make`.
            let state = entry.state.load(Ordering::Acquire);
            let is = state % 2 == 1 && entry.name.load(Ordering::Relaxed) == name;
            is.then_some(id_of(state, index))
        });
        match found {
            Some(found) => {
                *id = found;
                Status::Successful
            }
            None => Status::InvalidName,
        }
    }

    /// `rtems_message_queue_delete`: its messages go, and who waits gets
    /// [`Status::ObjectWasDeleted`].
    pub fn message_queue_delete(&self, id: Id) -> Status {
        let deleted = self.locked(|| {
            let (entry, queue) = self.entry(id).ok_or(Status::InvalidId)?;
            match queue.delete() {
                // Somebody was killed before the next step.
                Ok(()) | Err(ControlError::Deleted) => {}
                Err(_) => return Err(Status::InternalError),
            }
            let state = entry.state.load(Ordering::Relaxed).wrapping_add(1);
            entry.state.store(state, Ordering::Release);
            Ok(())
        });
        deleted.map_or_else(|status| status, |()| Status::Successful)
    }

    /// `rtems_message_queue_send`.
    pub fn message_queue_send(&self, id: Id, buffer: Option<&[u8]>) -> Status {
        self.send(id, buffer, |queue| queue)
    }

    /// `rtems_message_queue_urgent`.
    pub fn message_queue_urgent(&self, id: Id, buffer: Option<&[u8]>) -> Status {
        self.send(id, buffer, Queue::urgent)
    }

    fn send(
        &self,
        id: Id,
        buffer: Option<&[u8]>,
        ranked: impl FnOnce(Queue<'r>) -> Queue<'r>,
    ) -> Status {
        let Some(buffer) = buffer else {
            return Status::InvalidAddress;
        };
        let Some(queue) = self.find(id) else {
            return Status::InvalidId;
        };
        status_of_send(ranked(queue).try_send(buffer))
    }

    /// `rtems_message_queue_broadcast`.
    pub fn message_queue_broadcast(
        &self,
        id: Id,
        buffer: Option<&[u8]>,
        count: Option<&mut u32>,
    ) -> Status {
        let (Some(buffer), Some(count)) = (buffer, count) else {
            return Status::InvalidAddress;
        };
        let Some(queue) = self.find(id) else {
            return Status::InvalidId;
        };
        status_of_send(queue.broadcast(buffer).map(|reached| *count = reached))
    }

    /// `rtems_message_queue_receive`. The buffer is checked: one that is too small for the message gives
    /// [`Status::InvalidSize`], and leaves the message. `timeout` 0: for ever.
    pub fn message_queue_receive(
        &self,
        id: Id,
        buffer: Option<&mut [u8]>,
        size: Option<&mut usize>,
        options: u32,
        timeout: Interval,
    ) -> Status {
        let (Some(buffer), Some(size)) = (buffer, size) else {
            return Status::InvalidAddress;
        };
        let Some(queue) = self.find(id) else {
            return Status::InvalidId;
        };
        let wait = if options & NO_WAIT != 0 {
            Wait::Not
        } else if timeout == 0 {
            Wait::Forever
        } else {
            Wait::at_most(Duration::from_micros(self.table.microseconds.into()) * timeout)
        };
        match queue.receive_within(buffer, wait) {
            Ok(length) => {
                *size = length;
                Status::Successful
            }
            Err(ReceiveError::Empty) => Status::Unsatisfied,
            Err(ReceiveError::TimedOut) => Status::Timeout,
            Err(ReceiveError::BufferTooSmall { .. }) => Status::InvalidSize,
            Err(ReceiveError::Deleted) => Status::ObjectWasDeleted,
            Err(_) => Status::InternalError,
        }
    }

    /// `rtems_message_queue_get_number_pending`.
    pub fn message_queue_get_number_pending(&self, id: Id, count: Option<&mut u32>) -> Status {
        let Some(count) = count else {
            return Status::InvalidAddress;
        };
        let Some(queue) = self.find(id) else {
            return Status::InvalidId;
        };
        *count = queue.len();
        Status::Successful
    }

    /// `rtems_message_queue_flush`.
    pub fn message_queue_flush(&self, id: Id, count: Option<&mut u32>) -> Status {
        let Some(count) = count else {
            return Status::InvalidAddress;
        };
        let Some(queue) = self.find(id) else {
            return Status::InvalidId;
        };
        match queue.flush() {
            Ok(flushed) => {
                *count = flushed;
                Status::Successful
            }
            Err(ControlError::Deleted) => Status::InvalidId,
            Err(_) => Status::InternalError,
        }
    }

    /// The entry of an id, and its queue, dead or alive.
    fn entry(&self, id: Id) -> Option<(&'r Entry, Queue<'r>)> {
        let index = (id & 0xffff).checked_sub(1)? as usize;
        let entry = self.entries.get(index)?;
        // Acquire: pairs with the Release in `make`.
        let state = entry.state.load(Ordering::Acquire);
        if state % 2 == 0 || id_of(state, index) != id {
            return None;
        }
        let token = (
            entry.block.load(Ordering::Relaxed),
            entry.life.load(Ordering::Relaxed),
        );
        // SAFETY: a token of a queue of this region. (Should the place have changed hands between the
        // looks, it is one of another; a generation later the id is refused.)
        let queue = unsafe { Queue::of_token(self.region, token)? };
        Some((entry, queue))
    }

    /// The queue of an id, unless it was deleted.
    fn find(&self, id: Id) -> Option<Queue<'r>> {
        let (_, queue) = self.entry(id)?;
        // Again, so that what was read in between is of one queue.
        (self.entry(id).is_some() && queue.is_alive()).then_some(queue)
    }

    /// Runs what makes or deletes under the table's lock.
    fn locked<T>(&self, step: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        // First, for it can fail, and a failure under the lock would leave it locked.
        self.region
            .inner()
            .task()
            .map_err(|_| Status::InternalError)?;
        let lock = &self.table.lock;
        // SAFETY: the lock lies in the region, which the handle keeps mapped.
        match unsafe { lock.lock_raw(None) } {
            // An entry is whole at every instruction.
            Ok(_) => lock.mark_consistent(),
            Err(_) => return Err(Status::InternalError),
        }
        let result = step();
        // SAFETY: locked above; `step` does not panic.
        unsafe { lock.unlock_raw() };
        result
    }
}

fn status_of_send(sent: Result<(), SendError>) -> Status {
    match sent {
        Ok(()) => Status::Successful,
        Err(SendError::Deleted) => Status::InvalidId,
        Err(SendError::TooLong { .. }) => Status::InvalidSize,
        Err(SendError::Full) => Status::TooMany,
        Err(_) => Status::InternalError,
    }
}
