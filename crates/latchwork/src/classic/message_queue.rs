//! The directives of RTEMS's message queue manager.
//!
//! An entry of the table is the head of a queue, with its name. A head has one queue after the other, numbered; an id
//! consists of the entry and the number.
//!
//! Creation runs under the table's lock. Everything else reads the entry, and leaves the rest to the queue,
//! which checks whether it was deleted. A queue begins with the store of its life, after that of its name, and ends
//! with the next store of the life. A task killed in a creation or a deletion leaves a queue or none; memory that is
//! left is freed when another queue is created.
//!
//! *Memory* for messages is allocated when a queue is created, and freed when it is deleted; if a task is copying a
//! message out of it or into it at that moment, it is freed when that task has finished. Until then the queue's entry
//! is not free.

use super::handle::{Classic, directive, ident};
use super::status::{Id, Interval, NO_WAIT, Name, PRIORITY, Status};
use super::table::{MESSAGE_QUEUE, id_of, parts_of};
use crate::queue::{
    ControlError, Discipline, Queue, QueueError, QueueOptions, ReceiveError, SendError, Wait,
};
use crate::{atomic::Ordering, region::ObjectError};

/// The bytes that RTEMS has before a message: two links and the size.
const BUFFER_HEAD: usize = 3 * size_of::<usize>();
/// The longest message for which RTEMS would have a buffer, if the memory existed.
const LARGEST: usize = usize::MAX - (BUFFER_HEAD + size_of::<usize>() - 1);
/// The largest number of messages of a [`Queue`].
const MOST: u32 = 1 << 30;

/// The size of `RTEMS_MESSAGE_QUEUE_BUFFER`: the memory for one message in the storage that is given to
/// [`Classic::message_queue_construct`].
#[must_use]
pub const fn message_queue_buffer_size(max_message_size: usize) -> usize {
    (max_message_size.next_multiple_of(size_of::<usize>())).saturating_add(BUFFER_HEAD)
}

fn id_in(queue: &Queue<'_>, index: usize) -> Id {
    id_of(MESSAGE_QUEUE, queue.number(), index)
}

impl<'r> Classic<'r> {
    /// `rtems_message_queue_create`. Checks in this order:
    ///
    /// | if | then |
    /// | --- | --- |
    /// | `name` is 0 | [`Status::InvalidName`] |
    /// | there is no `id` | [`Status::InvalidAddress`] |
    /// | `count` is 0 | [`Status::InvalidNumber`] |
    /// | `max_message_size` is 0 | [`Status::InvalidSize`] |
    /// | the table is full | [`Status::TooMany`] |
    /// | no buffer can be so large | [`Status::InvalidSize`] |
    /// | no memory could hold so many | [`Status::InvalidNumber`]; also if they are more than 2³⁰ |
    /// | the region has no room for them | [`Status::Unsatisfied`]; also if a message has more than 2³⁰ bytes |
    pub fn message_queue_create(
        &self,
        name: Name,
        count: u32,
        max_message_size: usize,
        attributes: u32,
        id: Option<&mut Id>,
    ) -> Status {
        self.new_queue(name, count, max_message_size, attributes, None, id)
    }

    /// `rtems_message_queue_construct`: as [`Self::message_queue_create`], for a caller that has memory of
    /// `storage_size` bytes for the messages. The memory is not used: the messages are in the region, where all tasks
    /// find them. But the call returns [`Status::Unsatisfied`] if the memory does not have the size that RTEMS
    /// requires, `count` times [`message_queue_buffer_size`].
    pub fn message_queue_construct(
        &self,
        name: Name,
        count: u32,
        max_message_size: usize,
        attributes: u32,
        storage_size: usize,
        id: Option<&mut Id>,
    ) -> Status {
        let storage = Some(storage_size);
        self.new_queue(name, count, max_message_size, attributes, storage, id)
    }

    fn new_queue(
        &self,
        name: Name,
        count: u32,
        max_message_size: usize,
        attributes: u32,
        storage: Option<usize>,
        id: Option<&mut Id>,
    ) -> Status {
        directive(|| {
            if name == 0 {
                return Err(Status::InvalidName);
            }
            let id = id.ok_or(Status::InvalidAddress)?;
            if count == 0 {
                return Err(Status::InvalidNumber);
            }
            if max_message_size == 0 {
                return Err(Status::InvalidSize);
            }
            *id = self.make(|| {
                // Checks all entries, to settle what dead tasks left in them.
                let entries = self.message_queues.iter().enumerate();
                let free =
                    entries.filter(|(_, entry)| Queue::may_begin_in(self.region, &entry.object));
                let (index, entry) = free.reduce(|first, _| first).ok_or(Status::TooMany)?;
                if max_message_size > LARGEST {
                    return Err(Status::InvalidSize);
                }
                let needed =
                    message_queue_buffer_size(max_message_size).checked_mul(count as usize);
                let needed = needed.filter(|_| count <= MOST);
                let needed = needed.ok_or(Status::InvalidNumber)?;
                if storage.is_some_and(|size| size != needed) {
                    return Err(Status::Unsatisfied);
                }
                let size = u32::try_from(max_message_size).map_err(|_| Status::Unsatisfied)?;
                let discipline = if attributes & PRIORITY == 0 {
                    Discipline::Fifo
                } else {
                    Discipline::Priority
                };
                let options = QueueOptions::new(count, size).discipline(discipline);
                // Release: see the head of `classic`.
                entry.name.store(name, Ordering::Release);
                let begun = Queue::begin_in(self.region, &entry.object, &options);
                let queue = begun.map_err(|error| match error {
                    QueueError::Object(ObjectError::Attach(_)) => Status::InternalError,
                    _ => Status::Unsatisfied,
                })?;
                Ok(id_in(&queue, index))
            })?;
            Ok(())
        })
    }

    /// `rtems_message_queue_ident`: of several queues of this name, the one with the lowest index. Only this node has
    /// any.
    pub fn message_queue_ident(&self, name: Name, node: u32, id: Option<&mut Id>) -> Status {
        ident(name, node, id, || {
            let mut entries = self.message_queues.iter().enumerate();
            entries.find_map(|(index, entry)| {
                let queue = Queue::at(self.region, &entry.object);
                // Acquire: see the head of `classic`.
                let is_it = queue.is_alive() && entry.name.load(Ordering::Acquire) == name;
                (is_it && queue.is_alive()).then(|| id_in(&queue, index))
            })
        })
    }

    /// `rtems_message_queue_delete`: its messages are dropped, and its waiters get [`Status::ObjectWasDeleted`].
    pub fn message_queue_delete(&self, id: Id) -> Status {
        directive(|| self.find(id)?.end_life().map_err(status_of_control))
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
        directive(|| {
            let buffer = buffer.ok_or(Status::InvalidAddress)?;
            let queue = ranked(self.find(id)?);
            queue.try_send(buffer).map_err(status_of_send)
        })
    }

    /// `rtems_message_queue_broadcast`.
    pub fn message_queue_broadcast(
        &self,
        id: Id,
        buffer: Option<&[u8]>,
        count: Option<&mut u32>,
    ) -> Status {
        directive(|| {
            let (buffer, count) = buffer.zip(count).ok_or(Status::InvalidAddress)?;
            let reached = self.find(id)?.broadcast(buffer);
            *count = reached.map_err(status_of_send)?;
            Ok(())
        })
    }

    /// `rtems_message_queue_receive`. The buffer's size is checked: if the message does not fit, the call returns
    /// [`Status::InvalidSize`], and leaves the message. `timeout` 0: for ever. Returns [`Status::InternalError`] if the
    /// call has to wait, other tasks wait, and the region has no memory for what it may be given.
    pub fn message_queue_receive(
        &self,
        id: Id,
        buffer: Option<&mut [u8]>,
        size: Option<&mut usize>,
        options: u32,
        timeout: Interval,
    ) -> Status {
        directive(|| {
            let (buffer, size) = buffer.zip(size).ok_or(Status::InvalidAddress)?;
            let queue = self.find(id)?;
            let wait = if options & NO_WAIT != 0 {
                Wait::Not
            } else {
                self.deadline(timeout).map_or(Wait::Forever, Wait::Until)
            };
            let received = queue.receive_within(buffer, wait);
            (*size, _) = received.map_err(|error| match error {
                ReceiveError::Empty => Status::Unsatisfied,
                ReceiveError::TimedOut => Status::Timeout,
                ReceiveError::BufferTooSmall { .. } => Status::InvalidSize,
                ReceiveError::Deleted => Status::ObjectWasDeleted,
                _ => Status::InternalError,
            })?;
            Ok(())
        })
    }

    /// `rtems_message_queue_get_number_pending`.
    pub fn message_queue_get_number_pending(&self, id: Id, count: Option<&mut u32>) -> Status {
        directive(|| {
            let count = count.ok_or(Status::InvalidAddress)?;
            *count = self.find(id)?.len();
            Ok(())
        })
    }

    /// `rtems_message_queue_flush`.
    pub fn message_queue_flush(&self, id: Id, count: Option<&mut u32>) -> Status {
        directive(|| {
            let count = count.ok_or(Status::InvalidAddress)?;
            *count = self.find(id)?.flush().map_err(status_of_control)?;
            Ok(())
        })
    }

    /// The largest size of a message in a queue, in bytes; `None` if there is no such queue. Not RTEMS's: for callers
    /// whose interface gives them no size of the buffer, since RTEMS requires it to be this long.
    #[must_use]
    pub fn message_queue_max_message_size(&self, id: Id) -> Option<usize> {
        let queue = self.find(id).ok()?;
        Some(queue.max_message() as usize)
    }

    /// The queue of an id. If it is deleted after this, it refuses later operations.
    fn find(&self, id: Id) -> Result<Queue<'r>, Status> {
        let find = || {
            let (_, index) = parts_of(id, MESSAGE_QUEUE)?;
            let queue = Queue::at(self.region, &self.message_queues.get(index)?.object);
            (queue.is_alive() && id_in(&queue, index) == id).then_some(queue)
        };
        find().ok_or(Status::InvalidId)
    }
}

fn status_of_send(error: SendError) -> Status {
    match error {
        SendError::Deleted => Status::InvalidId,
        SendError::TooLong { .. } => Status::InvalidSize,
        SendError::Full => Status::TooMany,
        _ => Status::InternalError,
    }
}

fn status_of_control(error: ControlError) -> Status {
    match error {
        ControlError::Deleted => Status::InvalidId,
        ControlError::Attach(_) => Status::InternalError,
    }
}
