//! RTEMS's classic interface over the objects of a region: names, ids, status codes, in RTEMS's order of
//! checks.
//!
//! The objects live in a table of the region whose capacity is given when it is made, as RTEMS's are
//! configured. An id means the same in every process, and never a later object than its own (until 4096 have
//! had its place). What is a null pointer in C is `None` here.
//!
//! | what RTEMS has | here |
//! | --- | --- |
//! | one system, one table | one table in each region |
//! | a task | a thread that has used the region |
//! | schedulers | one, [`SCHEDULER`] |
//! | fatal errors of broken mutexes | [`Status::OwnerDied`], beside RTEMS's own |
//! | clock ticks | of a length that is given when the table is made, 10 ms by default as RTEMS's |
//!
//! ```
//! use latchwork::classic::{self, Classic, ClassicOptions, Status};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let rtems = Classic::create(&region, &ClassicOptions::new().semaphores(8))?;
//! let mut id = 0;
//! let name = classic::build_name(*b"JOBS");
//! let status = rtems.semaphore_create(name, 1, classic::PRIORITY, 0, Some(&mut id));
//! assert_eq!(status, Status::Successful);
//! assert_eq!(rtems.semaphore_obtain(id, classic::WAIT, classic::NO_TIMEOUT), Status::Successful);
//! assert_eq!(rtems.semaphore_obtain(id, classic::NO_WAIT, 0), Status::Unsatisfied);
//! assert_eq!(rtems.semaphore_release(id), Status::Successful);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Crash:* an entry of the table is taken exactly if its object is one: one store makes it, one ends it. A
//! task that is killed in a directive has carried it out or not.
#![allow(unsafe_code)]

mod event;
mod message_queue;
mod semaphore;
mod status;
mod task;

pub use event::*;
pub use message_queue::MessageQueues;
pub use status::*;

use crate::atomic::{AtomicU32, Ordering};
use crate::mutex::{RawError, Robust};
use crate::region::{AttachError, ObjectError, Region, fingerprint};
use crate::semaphore::object::Core;
use crate::time::Deadline;
use core::alloc::Layout;
use core::fmt;
use core::time::Duration;

/// The name by which a region knows its table.
const NAME: &str = "latchwork.classic";

/// Class, in the first four bits of an id.
const SEMAPHORE: u32 = 3;
const TASK: u32 = 1;
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

/// How a table is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicOptions {
    semaphores: u16,
    tick: Duration,
}

impl ClassicOptions {
    /// Room for 64 semaphores, 10 ms a tick.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            semaphores: 64,
            tick: Duration::from_millis(10),
        }
    }

    /// Room for so many semaphores at a time. All of its memory is taken at once.
    #[must_use]
    pub const fn semaphores(mut self, semaphores: u16) -> Self {
        self.semaphores = semaphores;
        self
    }

    /// The length of a clock tick; at least 1 µs, at most an hour.
    #[must_use]
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }
}

impl Default for ClassicOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a table was not made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassicError {
    /// The region cannot hold it.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A tick must last from 1 µs to an hour.
    #[error("a tick of {0:?} is out of range")]
    Tick(Duration),
    /// The region's table was made with other options.
    #[error("the region's table has room for {semaphores} semaphores, and ticks of {tick:?}")]
    OtherOptions {
        /// Its room.
        semaphores: u16,
        /// Its tick.
        tick: Duration,
    },
}

#[repr(C, align(64))]
struct Table {
    /// Of the naming of new objects.
    lock: Robust,
    semaphores: AtomicU32,
    microseconds: AtomicU32,
}

#[repr(C, align(64))]
struct Entry {
    core: Core,
    name: AtomicU32,
}

const FINGERPRINT: u64 = fingerprint(
    "classic",
    size_of::<Table>(),
    align_of::<Table>(),
    &[size_of::<Entry>() as u64, 1],
);

/// The classic interface to a region.
#[derive(Clone, Copy)]
pub struct Classic<'r> {
    region: &'r Region,
    table: &'r Table,
    semaphores: &'r [Entry],
}

// SAFETY: the table is atomics, and objects that synchronise themselves.
unsafe impl Send for Classic<'_> {}
// SAFETY: as above.
unsafe impl Sync for Classic<'_> {}

impl<'r> Classic<'r> {
    /// Makes the region's table, or opens it if it was made with the same options.
    ///
    /// # Errors
    /// See [`ClassicError`].
    pub fn create(region: &'r Region, options: &ClassicOptions) -> Result<Self, ClassicError> {
        let microseconds = options.tick.as_micros();
        if !(1..=3_600_000_000).contains(&microseconds) {
            return Err(ClassicError::Tick(options.tick));
        }
        let semaphores = usize::from(options.semaphores);
        region.raw_object(NAME, FINGERPRINT, layout(semaphores), |block| {
            let entries = block
                .as_ptr()
                .wrapping_add(size_of::<Table>())
                .cast::<Entry>();
            // SAFETY: a fresh block of the layout.
            unsafe {
                block.cast::<Table>().write(Table {
                    lock: Robust::new(),
                    semaphores: AtomicU32::new(semaphores as u32),
                    microseconds: AtomicU32::new(microseconds as u32),
                });
                for index in 0..semaphores {
                    entries.add(index).write(Entry {
                        core: Core::new(),
                        name: AtomicU32::new(0),
                    });
                }
            }
        })?;
        let made = Self::open(region)?;
        if made.semaphores.len() != semaphores || made.tick() != options.tick {
            return Err(ClassicError::OtherOptions {
                semaphores: made.semaphores.len() as u16,
                tick: made.tick(),
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
        // SAFETY: an object of this fingerprint was written by `create`; nothing frees it.
        let table: &Table = unsafe { block.cast().as_ref() };
        // Relaxed: written once, before it could be found.
        let semaphores = table.semaphores.load(Ordering::Relaxed) as usize;
        if semaphores > usize::from(u16::MAX) || bytes != layout(semaphores).size() {
            return Err(ObjectError::OtherType.into());
        }
        // SAFETY: the block is as long as the table says.
        let semaphores = unsafe {
            let entries = block.add(size_of::<Table>()).cast::<Entry>().as_ptr();
            core::slice::from_raw_parts(entries, semaphores)
        };
        Ok(Self {
            region,
            table,
            semaphores,
        })
    }

    /// The length of a clock tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        // Relaxed: as above.
        Duration::from_micros(self.table.microseconds.load(Ordering::Relaxed).into())
    }

    /// The end of a wait that begins now.
    fn deadline(&self, timeout: Interval) -> Option<Deadline> {
        (timeout != NO_TIMEOUT).then(|| Deadline::after(self.tick() * timeout))
    }

    /// Runs `name_it` while nobody else names anything.
    fn naming<T>(&self, name_it: impl FnOnce() -> T) -> Result<T, Status> {
        // What waits for a robust lock in a region is a task of it.
        self.region.inner().task().map_err(internal)?;
        let lock = &self.table.lock;
        // SAFETY: the table stays where it is.
        match unsafe { lock.lock_raw(None) } {
            // An entry is taken by one store.
            Ok(_) => lock.mark_consistent(),
            Err(RawError::Unavailable(error)) => return Err(internal(error.into())),
            Err(_) => crate::fatal(format_args!(
                "a directive was used by a signal handler that interrupted one"
            )),
        }
        let named = name_it();
        // SAFETY: locked above.
        unsafe { lock.unlock_raw() };
        Ok(named)
    }
}

fn layout(semaphores: usize) -> Layout {
    let bytes = size_of::<Table>() + semaphores * size_of::<Entry>();
    // Both are multiples of the alignment, and few enough of them.
    Layout::from_size_align(bytes, align_of::<Table>()).unwrap_or(Layout::new::<Table>())
}

fn internal(_: AttachError) -> Status {
    Status::InternalError
}

impl fmt::Debug for Classic<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Classic")
            .field("semaphores", &self.semaphores.len())
            .field("tick", &self.tick())
            .finish_non_exhaustive()
    }
}
