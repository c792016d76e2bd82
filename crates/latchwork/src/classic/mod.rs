//! RTEMS's classic interface to the objects of a region: semaphores, events and message queues, by names and ids, with
//! RTEMS's constants and status codes, and its order of checks.
//!
//! The objects are in a table of the region. The table's capacity is set when it is created, as RTEMS's tables are
//! configured. An id means the same object in every process, and never a later object (until 4096 objects have had its
//! entry). A pointer that may be null in C is an `Option` here.
//!
//! | RTEMS | here |
//! | --- | --- |
//! | one system, one table | one table in each region |
//! | a task | a thread that has used the region |
//! | nodes | one, [`LOCAL_NODE`] |
//! | schedulers | one, [`SCHEDULER`] |
//! | fatal errors of broken mutexes | [`Status::OwnerDied`], besides RTEMS's own codes |
//! | clock ticks | their length is set when the table is created, 10 ms by default as in RTEMS |
//!
//! ```
//! use latchwork::classic::{self, Classic, ClassicOptions, Status};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let options = ClassicOptions::new().semaphores(8).message_queues(8);
//! let rtems = Classic::create(&region, &options)?;
//! let mut jobs = 0;
//! let name = classic::build_name(*b"JOBS");
//! let status = rtems.semaphore_create(name, 1, classic::PRIORITY, 0, Some(&mut jobs));
//! assert_eq!(status, Status::Successful);
//! assert_eq!(rtems.semaphore_obtain(jobs, classic::WAIT, classic::NO_TIMEOUT), Status::Successful);
//! assert_eq!(rtems.semaphore_obtain(jobs, classic::NO_WAIT, 0), Status::Unsatisfied);
//! assert_eq!(rtems.semaphore_release(jobs), Status::Successful);
//!
//! let (mut mail, mut buffer, mut size) = (0, [0; 16], 0);
//! rtems.message_queue_create(classic::build_name(*b"MAIL"), 3, 16, 0, Some(&mut mail));
//! assert_eq!(rtems.message_queue_send(mail, Some(b"hello")), Status::Successful);
//! let status = rtems.message_queue_receive(
//!     mail, Some(&mut buffer), Some(&mut size), classic::NO_WAIT, classic::NO_TIMEOUT);
//! assert_eq!((status, &buffer[..size]), (Status::Successful, &b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Crash:* an entry of the table is in use exactly while its object exists: one store creates the object, one ends it.
//! A task that is killed in a directive has carried it out or not.
//!
//! *An id's entry may get another object at any moment.* A reader of several fields of an entry therefore reads the
//! field that distinguishes the objects (a semaphore's key, a queue's life) before and after. The fields between are
//! stored with Release, after the end of the previous object, and read with Acquire: a reader that sees the next
//! object's value also sees that end.
#![allow(unsafe_code)]

mod event;
mod message_queue;
mod semaphore;
mod status;
mod task;

pub use event::*;
pub use message_queue::message_queue_buffer_size;
pub use status::*;

use crate::mutex::{RawError, Robust};
use crate::queue::Queue;
use crate::region::{AttachError, ObjectError, Region, fingerprint};
use crate::time::Deadline;
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;

/// The name of the table in its region.
const NAME: &str = "latchwork.classic";

/// The class, in the first four bits of an id.
const TASK: u32 = 1;
const SEMAPHORE: u32 = 3;
const MESSAGE_QUEUE: u32 = 4;
/// Bits of an id's generation.
const GENERATION: u32 = 0xfff;

fn id_of(class: u32, generation: u32, index: usize) -> Id {
    class << 28 | (generation & GENERATION) << 16 | (index as u32 + 1)
}

/// Generation and index of an id of this class.
#[inline]
fn parts_of(id: Id, class: u32) -> Option<(u32, usize)> {
    let index = (id & 0xffff).checked_sub(1)? as usize;
    (id >> 28 == class).then_some((id >> 16 & GENERATION, index))
}

/// The options of a table to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicOptions {
    semaphores: u16,
    message_queues: u16,
    tick: Duration,
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
    fn layout(&self) -> Option<(usize, usize, Layout)> {
        let table = Layout::new::<Table>();
        let semaphores = Layout::array::<semaphore::Entry>(self.semaphores.into()).ok()?;
        let queues = Layout::array::<message_queue::Entry>(self.message_queues.into()).ok()?;
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

/// The reason why a table was not created or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassicError {
    /// The region cannot hold it.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A tick must last from 1 µs to an hour, in whole microseconds.
    #[error("a tick of {0:?} is out of range")]
    Tick(Duration),
    /// The region's table was created with other options.
    #[error(
        "the region's table has room for {semaphores} semaphores and {message_queues} message queues, \
         and ticks of {tick:?}"
    )]
    OtherOptions {
        /// The table's capacity for semaphores.
        semaphores: u16,
        /// The table's capacity for message queues.
        message_queues: u16,
        /// The table's tick.
        tick: Duration,
    },
}

/// The head of the table. Only the lock changes.
#[repr(C, align(64))]
struct Table {
    /// Protects the creation of named objects.
    lock: Robust,
    semaphores: u16,
    message_queues: u16,
    /// The length of a tick.
    microseconds: u32,
}

const FINGERPRINT: u64 = fingerprint(
    "classic",
    size_of::<Table>(),
    align_of::<Table>(),
    &[
        size_of::<semaphore::Entry>() as u64,
        size_of::<message_queue::Entry>() as u64,
        4,
    ],
);

/// The classic interface to a region. Where C passes a pointer that may be null, the parameter is an `Option`.
#[derive(Clone, Copy)]
pub struct Classic<'r> {
    region: &'r Region,
    table: &'r Table,
    semaphores: &'r [semaphore::Entry],
    message_queues: &'r [message_queue::Entry],
}

// SAFETY: the table is atomics, and objects that synchronise themselves.
unsafe impl Send for Classic<'_> {}
// SAFETY: as for `Send`; a handle itself is never changed through a shared reference.
unsafe impl Sync for Classic<'_> {}

impl<'r> Classic<'r> {
    /// Creates the region's table, or opens it if it was created with the same options.
    ///
    /// # Errors
    /// See [`ClassicError`].
    pub fn create(region: &'r Region, options: &ClassicOptions) -> Result<Self, ClassicError> {
        let microseconds = options.tick.as_micros();
        let is_whole = options.tick.subsec_nanos().is_multiple_of(1_000);
        if !is_whole || !(1..=3_600_000_000).contains(&microseconds) {
            return Err(ClassicError::Tick(options.tick));
        }
        let (semaphores, queues, layout) = options.layout().ok_or(ObjectError::OtherType)?;
        region.raw_object(NAME, FINGERPRINT, layout, |block| {
            // SAFETY: a fresh block of the layout, which no other task knows yet.
            unsafe {
                block.cast().write(Table {
                    lock: Robust::new(),
                    semaphores: options.semaphores,
                    message_queues: options.message_queues,
                    microseconds: microseconds as u32,
                });
                let entries = block.add(semaphores).cast();
                for index in 0..options.semaphores {
                    entries.add(index.into()).write(semaphore::Entry::new());
                }
                let entries = block.add(queues).cast();
                for index in 0..options.message_queues {
                    entries.add(index.into()).write(message_queue::Entry::new());
                }
            }
        })?;
        let made = Self::open(region)?;
        let ClassicOptions {
            semaphores,
            message_queues,
            tick,
        } = made.options();
        if made.options() != *options {
            return Err(ClassicError::OtherOptions {
                semaphores,
                message_queues,
                tick,
            });
        }
        Ok(made)
    }

    /// Opens the region's table.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`]; see [`ClassicError`].
    pub fn open(region: &'r Region) -> Result<Self, ClassicError> {
        let (block, bytes) = region.find_raw_object(NAME, FINGERPRINT)?;
        if bytes < size_of::<Table>() || !block.cast::<Table>().is_aligned() {
            return Err(ObjectError::OtherType.into());
        }
        block.as_ptr().expose_provenance();
        // SAFETY: `create` wrote an object of this fingerprint there; nothing frees it.
        let table: &Table = unsafe { block.cast().as_ref() };
        let parts = table.options().layout();
        let (semaphores, queues, _) = parts
            .filter(|(.., layout)| layout.size() == bytes)
            .ok_or(ObjectError::OtherType)?;
        // SAFETY: the block has the length that the table's options give, as checked above.
        let (semaphores, message_queues) = unsafe {
            (
                slice_at(block, semaphores, table.semaphores),
                slice_at(block, queues, table.message_queues),
            )
        };
        let is_sound = |entry: &message_queue::Entry| Queue::is_sound_in(region, &entry.head);
        if !message_queues.iter().all(is_sound) {
            return Err(ObjectError::Damaged.into());
        }
        Ok(Self {
            region,
            table,
            semaphores,
            message_queues,
        })
    }

    /// The options that the table was created with.
    #[must_use]
    pub fn options(&self) -> ClassicOptions {
        self.table.options()
    }

    /// The length of a clock tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.options().tick
    }

    /// The deadline of a wait that begins now.
    fn deadline(&self, timeout: Interval) -> Option<Deadline> {
        (timeout != NO_TIMEOUT).then(|| Deadline::after(self.tick() * timeout))
    }

    /// Runs `name_it` while no other task creates or names an object.
    fn naming<T>(&self, name_it: impl FnOnce() -> T) -> Result<T, Status> {
        // A waiter of a robust lock in a region must be a task of it.
        self.region.inner().task().map_err(internal)?;
        let lock = &self.table.lock;
        // SAFETY: the table stays where it is, as long as the region is mapped.
        match unsafe { lock.lock_raw(None) } {
            // Nothing to repair after a dead owner: one store makes an entry's object.
            Ok(_) => lock.mark_consistent(),
            Err(RawError::Unavailable(error)) => return Err(internal(error.into())),
            Err(_) => crate::fatal(format_args!(
                "a directive was used by a signal handler that interrupted one"
            )),
        }
        let named = name_it();
        // SAFETY: this function locked it above.
        unsafe { lock.unlock_raw() };
        Ok(named)
    }
}

impl Table {
    fn options(&self) -> ClassicOptions {
        ClassicOptions {
            semaphores: self.semaphores,
            message_queues: self.message_queues,
            tick: Duration::from_micros(self.microseconds.into()),
        }
    }
}

/// # Safety
/// The block contains this many values of the type from `offset` on, and stays.
unsafe fn slice_at<'r, T>(block: NonNull<u8>, offset: usize, count: u16) -> &'r [T] {
    // SAFETY: the caller promises that `count` values lie there, in a block that stays.
    unsafe { core::slice::from_raw_parts(block.add(offset).cast().as_ptr(), count.into()) }
}

/// The body of the `ident` directives: `find` searches for the object of a name, from the first entry on.
fn ident(name: Name, node: u32, id: Option<&mut Id>, find: impl FnOnce() -> Option<Id>) -> Status {
    let Some(id) = id else {
        return Status::InvalidAddress;
    };
    let is_searched = [SEARCH_ALL_NODES, SEARCH_LOCAL_NODE, LOCAL_NODE].contains(&node);
    let found = (name != 0 && is_searched).then(find).flatten();
    found.map_or(Status::InvalidName, |found| {
        *id = found;
        Status::Successful
    })
}

fn internal(_: AttachError) -> Status {
    Status::InternalError
}

impl fmt::Debug for Classic<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Classic")
            .field("options", &self.options())
            .finish_non_exhaustive()
    }
}
