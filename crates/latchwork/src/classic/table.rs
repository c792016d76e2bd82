//! The table: its options, its head, its entries, and the identifiers of the objects in them: class, generation, index.

use super::status::Id;
use crate::{atomic::AtomicU32, mutex::Robust, queue::Head, semaphore::object::Core};
use core::{alloc::Layout, time::Duration};

/// The options of a table to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicOptions {
    pub(super) semaphores: u16,
    pub(super) message_queues: u16,
    pub(super) tick: Duration,
}

impl ClassicOptions {
    /// Room for 64 semaphores and 64 message queues, 10 ms a tick.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            semaphores: 64,
            message_queues: 64,
            tick: Duration::from_millis(10),
        }
    }

    /// Room for this many semaphores at a time. All of their memory is allocated at once.
    #[must_use]
    pub const fn semaphores(mut self, semaphores: u16) -> Self {
        self.semaphores = semaphores;
        self
    }

    /// Room for this many message queues at a time, of some hundred bytes each. The memory for messages is allocated
    /// when a queue is created.
    #[must_use]
    pub const fn message_queues(mut self, message_queues: u16) -> Self {
        self.message_queues = message_queues;
        self
    }

    /// The length of a clock tick, in whole microseconds; at least one microsecond, at most an hour.
    #[must_use]
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The offsets of the table's parts, the semaphores and the message queues; and the layout of all of it.
    pub(super) fn layout(&self) -> Option<(usize, usize, Layout)> {
        let table = Layout::new::<Table>();
        let semaphores = Layout::array::<Entry<Core>>(self.semaphores.into()).ok()?;
        let queues = Layout::array::<Entry<Head>>(self.message_queues.into()).ok()?;
        let (table, semaphores) = table.extend(semaphores).ok()?;
        let (table, queues) = table.extend(queues).ok()?;
        Some((semaphores, queues, table))
    }
}

impl Default for ClassicOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The head of the table. Only the lock changes.
#[repr(C, align(64))]
pub(super) struct Table {
    /// Protects the creation of named objects.
    pub(super) lock: Robust,
    pub(super) semaphores: u16,
    pub(super) message_queues: u16,
    /// The length of a tick.
    pub(super) microseconds: u32,
}

impl Table {
    pub(super) fn options(&self) -> ClassicOptions {
        ClassicOptions {
            semaphores: self.semaphores,
            message_queues: self.message_queues,
            tick: Duration::from_micros(self.microseconds.into()),
        }
    }
}

/// A table entry: a semaphore's object or a queue's head, and the name. It is in use while there is a semaphore or queue.
#[repr(C, align(64))]
pub(super) struct Entry<T> {
    pub(super) object: T,
    pub(super) name: AtomicU32,
}

impl<T> Entry<T> {
    pub(super) fn new(object: T) -> Self {
        let name = AtomicU32::new(0);
        Self { object, name }
    }
}

/// The class, in the first four bits of an id.
pub(super) const TASK: u32 = 1;
pub(super) const SEMAPHORE: u32 = 3;
pub(super) const MESSAGE_QUEUE: u32 = 4;
/// Bits of an id's generation.
pub(super) const GENERATION: u32 = 0xfff;

/// The id of the object of this class in this entry.
pub(super) fn id_of(class: u32, generation: u32, index: usize) -> Id {
    class << 28 | (generation & GENERATION) << 16 | (index as u32 + 1)
}

/// Generation and index of an id of this class.
#[inline]
pub(super) fn parts_of(id: Id, class: u32) -> Option<(u32, usize)> {
    let index = (id & 0xffff).checked_sub(1)? as usize;
    (id >> 28 == class).then_some((id >> 16 & GENERATION, index))
}
