//! The table: its options, its head, its entries, and the identifiers of the objects in them: class, generation, index.

use super::instances::{Instances, MAX_SCHEDULERS};
use super::status::{Id, Name};
use crate::atomic::{AtomicU8, AtomicU32, AtomicU64};
use crate::sys::scheduling::MAX_CPUS;
use crate::{mutex::InRegion, queue::Head, semaphore::object::Core};
use core::{alloc::Layout, time::Duration};

/// The options of a table to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicOptions {
    pub(super) semaphores: u16,
    pub(super) message_queues: u16,
    pub(super) tick: Duration,
    pub(super) instances: Instances,
}

impl ClassicOptions {
    /// Room for 64 semaphores and 64 message queues, 10 ms a tick, one scheduler of all processors.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            semaphores: 64,
            message_queues: 64,
            tick: Duration::from_millis(10),
            instances: Instances::NONE,
        }
    }

    /// A scheduler instance of this name, with these processors, by their numbers. A processor belongs to one instance
    /// at most; an instance may have none. Tasks begin in the instance that is declared first.
    ///
    /// If none is declared, there is one, [`SCHEDULER_NAME`](super::SCHEDULER_NAME), of all processors.
    /// [`Classic::create`](super::Classic::create) refuses a name of 0 or one that is used twice, a processor that an
    /// earlier instance has or from 1024 on, and more than [`MAX_SCHEDULERS`] instances.
    ///
    /// ```
    /// use latchwork::classic::{self, Classic, ClassicOptions, Status};
    /// use latchwork::region::RegionOptions;
    ///
    /// let [work, control] = [*b"WORK", *b"CTRL"].map(classic::build_name);
    /// let options = ClassicOptions::new().scheduler(work, &[0]).scheduler(control, &[1, 2]);
    /// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
    /// let rtems = Classic::create(&region, &options)?;
    /// let mut id = 0;
    /// assert_eq!(rtems.scheduler_ident(control, Some(&mut id)), Status::Successful);
    /// // Binds the calling thread to processors 1 and 2, at priority 50.
    /// match rtems.task_set_scheduler(classic::SELF, id, 50) {
    ///     Status::Successful => assert!(rtems.scheduler_get_processor() > 0),
    ///     // There are no such processors, or the thread may not use them.
    ///     status => assert_eq!(status, Status::Unsatisfied),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn scheduler(mut self, name: Name, processors: &[u32]) -> Self {
        self.instances = self.instances.with(name, processors);
        self
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

    /// The table's parts, with this number of tasks.
    pub(super) fn parts(&self, tasks: usize) -> Option<Parts> {
        let table = Layout::new::<Table>();
        let semaphores = Layout::array::<Entry<Core>>(self.semaphores.into()).ok()?;
        let ceilings = Layout::array::<Ceilings>(self.semaphores.into()).ok()?;
        let queues = Layout::array::<Entry<Head>>(self.message_queues.into()).ok()?;
        let homes = Layout::array::<Home>(tasks).ok()?;
        let (table, semaphores) = table.extend(semaphores).ok()?;
        let (table, ceilings) = table.extend(ceilings).ok()?;
        let (table, queues) = table.extend(queues).ok()?;
        let (layout, homes) = table.extend(homes).ok()?;
        Some(Parts {
            semaphores,
            ceilings,
            queues,
            homes,
            layout,
        })
    }
}

/// The offsets of the table's parts, and the layout of all of it.
pub(super) struct Parts {
    pub(super) semaphores: usize,
    pub(super) ceilings: usize,
    pub(super) queues: usize,
    pub(super) homes: usize,
    pub(super) layout: Layout,
}

impl Default for ClassicOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The head of the table. Only the lock and `moving` change.
#[repr(C, align(64))]
pub(super) struct Table {
    /// Protects the creation of named objects, and the homes of tasks.
    pub(super) lock: InRegion,
    /// The home that a task is getting, if its number is not 0. Under the lock.
    pub(super) moving: Home,
    pub(super) semaphores: u16,
    pub(super) message_queues: u16,
    /// The length of a tick.
    pub(super) microseconds: u32,
    pub(super) instances: Instances,
}

impl Table {
    pub(super) fn options(&self) -> ClassicOptions {
        ClassicOptions {
            semaphores: self.semaphores,
            message_queues: self.message_queues,
            tick: Duration::from_micros(self.microseconds.into()),
            instances: self.instances,
        }
    }
}

/// What a semaphore with a ceiling needs of schedulers, beside its entry.
#[repr(C)]
pub(super) struct Ceilings {
    /// The index of the scheduler that it was created in, whose ceiling is in the semaphore itself.
    pub(super) creator: AtomicU32,
    /// The ceilings of a MrsP semaphore in the other schedulers, by their index.
    pub(super) others: [AtomicU8; MAX_SCHEDULERS],
}

impl Ceilings {
    pub(super) fn new() -> Self {
        Self {
            creator: AtomicU32::new(0),
            others: [const { AtomicU8::new(0) }; MAX_SCHEDULERS],
        }
    }
}

/// Where a task belongs, by its slot. Changed under the table's lock.
#[repr(C)]
pub(super) struct Home {
    /// The task, stored after the other fields; another number: the slot's task begins in the first scheduler, and its
    /// processors are the kernel's.
    pub(super) task: AtomicU64,
    /// The index of its scheduler.
    pub(super) scheduler: AtomicU32,
    /// The processors that it may use, if they are its scheduler's.
    pub(super) affinity: [AtomicU64; MAX_CPUS / 64],
}

impl Home {
    pub(super) fn new() -> Self {
        Self {
            task: AtomicU64::new(0),
            scheduler: AtomicU32::new(0),
            affinity: [const { AtomicU64::new(0) }; MAX_CPUS / 64],
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
pub(super) const SCHEDULERS: u32 = 15;
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
