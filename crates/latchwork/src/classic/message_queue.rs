//! The directives of RTEMS's message queue manager.
//!
//! An entry of the table names a queue's block and the life of it that the id stands for, so that an id never
//! means a later queue (until 4,096 have had its place).
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

use super::{
    Classic, Id, Interval, MESSAGE_QUEUE, NO_WAIT, Name, PRIORITY, Status, id_of, parts_of,
};
use crate::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::queue::{
    ControlError, Discipline, Queue, QueueError, QueueOptions, ReceiveError, SendError, Wait,
};
use crate::region::ObjectError;

/// A queue's place in the table.
#[repr(C)]
pub(super) struct Entry {
    state: AtomicU32,
    name: AtomicU32,
    /// The queue: where, and in which life.
    block: AtomicUsize,
    life: AtomicU32,
}

impl Entry {
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            name: AtomicU32::new(0),
            block: AtomicUsize::new(0),
            life: AtomicU32::new(0),
        }
    }
}

fn id_in(state: u32, index: usize) -> Id {
    id_of(MESSAGE_QUEUE, state / 2, index)
}

impl<'r> Classic<'r> {
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
        let made = self.naming(|| self.make_queue(name, count, max_message_size, attributes));
        match made {
            Ok(Ok(new)) => {
                *id = new;
                Status::Successful
            }
            Ok(Err(status)) | Err(status) => status,
        }
    }

    /// Under the table's lock.
    fn make_queue(
        &self,
        name: Name,
        count: u32,
        max_message_size: usize,
        attributes: u32,
    ) -> Result<Id, Status> {
        // Relaxed, here and below: ordered by the table's lock.
        let free = |entry: &Entry| entry.state.load(Ordering::Relaxed).is_multiple_of(2);
        let index = self.message_queues.iter().position(free);
        let index = index.ok_or(Status::TooMany)?;
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
        let entry = &self.message_queues[index];
        let (block, life) = queue.token();
        // Release, here and below: see the head of `classic`.
        entry.name.store(name, Ordering::Release);
        entry.block.store(block, Ordering::Release);
        entry.life.store(life, Ordering::Release);
        let state = entry.state.load(Ordering::Relaxed) + 1;
        entry.state.store(state, Ordering::Release);
        Ok(id_in(state, index))
    }

    /// `rtems_message_queue_ident`: of several queues of this name, that with the lowest index. Other nodes than
    /// this one have none.
    pub fn message_queue_ident(&self, name: Name, node: u32, id: Option<&mut Id>) -> Status {
        super::ident(name, node, id, || {
            let mut entries = self.message_queues.iter().enumerate();
            entries.find_map(|(index, entry)| {
                // Acquire, both: see the head of `classic`.
                let state = entry.state.load(Ordering::Acquire);
                let is_it = state % 2 == 1 && entry.name.load(Ordering::Acquire) == name;
                // Relaxed: behind an Acquire.
                (is_it && entry.state.load(Ordering::Relaxed) == state).then(|| id_in(state, index))
            })
        })
    }

    /// `rtems_message_queue_delete`: its messages go, and who waits gets
    /// [`Status::ObjectWasDeleted`].
    pub fn message_queue_delete(&self, id: Id) -> Status {
        let deleted = self.naming(|| {
            let (entry, queue) = self.entry(id).ok_or(Status::InvalidId)?;
            match queue.delete() {
                // Somebody was killed before the next step.
                Ok(()) | Err(ControlError::Deleted) => {}
                Err(_) => return Err(Status::InternalError),
            }
            let state = entry.state.load(Ordering::Relaxed).wrapping_add(1);
            // Release: who finds what comes next finds this.
            entry.state.store(state, Ordering::Release);
            Ok(())
        });
        match deleted {
            Ok(Ok(())) => Status::Successful,
            Ok(Err(status)) | Err(status) => status,
        }
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
    /// [`Status::InvalidSize`], and leaves the message. `timeout` 0: for ever. [`Status::InternalError`] if it has to wait,
    /// others wait, and the region has no memory for what it may be given.
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
        } else {
            self.deadline(timeout).map_or(Wait::Forever, Wait::Until)
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

    /// The most bytes of a message in a queue; `None` if there is no such queue. Not RTEMS's: for those who know no
    /// more of a buffer than that RTEMS wants it so long.
    #[must_use]
    pub fn message_queue_max_message_size(&self, id: Id) -> Option<usize> {
        self.find(id).map(|queue| queue.max_message() as usize)
    }

    /// The entry of an id, and its queue, dead or alive.
    fn entry(&self, id: Id) -> Option<(&'r Entry, Queue<'r>)> {
        let (_, index) = parts_of(id, MESSAGE_QUEUE)?;
        let entry = self.message_queues.get(index)?;
        // Acquire, here and below: see the head of `classic`.
        let state = entry.state.load(Ordering::Acquire);
        if state % 2 == 0 || id_in(state, index) != id {
            return None;
        }
        let token = (
            entry.block.load(Ordering::Acquire),
            entry.life.load(Ordering::Acquire),
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
