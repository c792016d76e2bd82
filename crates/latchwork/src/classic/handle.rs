//! A handle on a region's table: creation, opening, and what all directives share.
#![allow(unsafe_code)]

use super::status::{
    Id, Interval, LOCAL_NODE, NO_TIMEOUT, Name, SEARCH_ALL_NODES, SEARCH_LOCAL_NODE, Status,
    not_attached,
};
use super::table::{Ceilings, ClassicOptions, Entry, Home, Table};
use crate::mutex::in_region::RawError;
use crate::mutex::{Acquired, InRegion};
use crate::queue::{Head, Queue};
use crate::region::{ObjectError, Region, fingerprint};
use crate::{semaphore::object::Core, time::Deadline};
use core::{fmt, ptr::NonNull, time::Duration};

/// The name of the table in its region.
const NAME: &str = "latchwork.classic";

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
    /// [`ClassicOptions::scheduler`] was used wrongly.
    #[error("the scheduler named {name:#010x}: {reason}")]
    Scheduler {
        /// The instance's name.
        name: Name,
        /// What is wrong.
        reason: &'static str,
    },
    /// The region's table was created with other options.
    #[error(
        "the region's table has room for {semaphores} semaphores and {message_queues} message queues, \
         ticks of {tick:?}, and {schedulers} schedulers"
    )]
    OtherOptions {
        /// The table's capacity for semaphores.
        semaphores: u16,
        /// The table's capacity for message queues.
        message_queues: u16,
        /// The table's tick.
        tick: Duration,
        /// The number of the table's schedulers. Their names or processors may be others, too.
        schedulers: usize,
    },
}

pub(super) const FINGERPRINT: u64 = fingerprint(
    "classic",
    size_of::<Table>(),
    align_of::<Table>(),
    &[
        size_of::<Entry<Core>>() as u64,
        size_of::<Entry<Head>>() as u64,
        size_of::<Ceilings>() as u64,
        size_of::<Home>() as u64,
        6,
    ],
);

/// The classic interface to a region. Where C passes a pointer that may be null, the parameter is an `Option`.
#[derive(Clone, Copy)]
pub struct Classic<'r> {
    pub(super) region: &'r Region,
    pub(super) table: &'r Table,
    pub(super) semaphores: &'r [Entry<Core>],
    /// Beside the semaphores.
    pub(super) ceilings: &'r [Ceilings],
    pub(super) message_queues: &'r [Entry<Head>],
    /// By the tasks' slots.
    pub(super) homes: &'r [Home],
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
        let instances = options.instances.complete();
        let instances =
            instances.map_err(|(name, reason)| ClassicError::Scheduler { name, reason })?;
        let options = ClassicOptions {
            instances,
            ..*options
        };
        let tasks = region.inner().max_tasks();
        let parts = options.parts(tasks).ok_or(ObjectError::OtherType)?;
        region.raw_object(NAME, FINGERPRINT, parts.layout, |block| {
            // SAFETY: a fresh block of the layout, which no other task knows yet.
            unsafe {
                block.cast().write(Table {
                    lock: InRegion::new(),
                    moving: Home::new(),
                    semaphores: options.semaphores,
                    message_queues: options.message_queues,
                    microseconds: microseconds as u32,
                    instances: options.instances,
                });
                let entries = block.add(parts.semaphores).cast();
                let ceilings = block.add(parts.ceilings).cast();
                for index in 0..options.semaphores {
                    entries.add(index.into()).write(Entry::new(Core::new()));
                    ceilings.add(index.into()).write(Ceilings::new());
                }
                let entries = block.add(parts.queues).cast();
                for index in 0..options.message_queues {
                    entries.add(index.into()).write(Entry::new(Head::new()));
                }
                let homes = block.add(parts.homes).cast();
                for index in 0..tasks {
                    homes.add(index).write(Home::new());
                }
            }
        })?;
        let made = Self::open(region)?;
        let found = made.options();
        if found != options {
            return Err(ClassicError::OtherOptions {
                semaphores: found.semaphores,
                message_queues: found.message_queues,
                tick: found.tick,
                schedulers: found.instances.count(),
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
        if !table.instances.is_sound() {
            return Err(ObjectError::Damaged.into());
        }
        let tasks = region.inner().max_tasks();
        let parts = table.options().parts(tasks);
        let parts = parts
            .filter(|parts| parts.layout.size() == bytes)
            .ok_or(ObjectError::OtherType)?;
        let [semaphore_count, queue_count] =
            [table.semaphores, table.message_queues].map(usize::from);
        // SAFETY: the block has the length that the table's options give, as checked above.
        let (semaphores, ceilings, message_queues, homes) = unsafe {
            (
                slice_at(block, parts.semaphores, semaphore_count),
                slice_at(block, parts.ceilings, semaphore_count),
                slice_at(block, parts.queues, queue_count),
                slice_at(block, parts.homes, tasks),
            )
        };
        let is_sound = |entry: &Entry<Head>| Queue::is_sound_in(region, &entry.object);
        if !message_queues.iter().all(is_sound) {
            return Err(ObjectError::Damaged.into());
        }
        Ok(Self {
            region,
            table,
            semaphores,
            ceilings,
            message_queues,
            homes,
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
        Duration::from_micros(self.table.microseconds.into())
    }

    /// The deadline of a wait that begins now.
    pub(super) fn deadline(&self, timeout: Interval) -> Option<Deadline> {
        (timeout != NO_TIMEOUT).then(|| Deadline::after(self.tick() * timeout))
    }

    /// Makes or changes something while no other task makes or names an object, or changes a task's home.
    pub(super) fn make<T>(&self, make: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let lock = &self.table.lock;
        match lock.lock_raw() {
            Ok(Acquired::OwnerDied) => {
                // One store makes an entry's object; only a task that was being moved may be left half-way.
                crate::atomic::unless_disabled!(ClassicFinishesMove, self.finish_move(), ());
                crate::atomic::unless_disabled!(
                    ClassicTakesOver,
                    // SAFETY: locked above.
                    unsafe { lock.mark_raw_consistent() },
                    ()
                );
            }
            Ok(_) => {}
            Err(RawError::Unavailable(error)) => return Err(not_attached(error.into())),
            // No task marks it so; a corrupted file may.
            Err(RawError::NotRecoverable) => return Err(Status::InternalError),
            Err(_) => crate::fatal(format_args!(
                "a directive was used by a signal handler that interrupted one"
            )),
        }
        let made = make();
        // SAFETY: this function locked it above.
        unsafe { lock.unlock_raw() };
        made
    }
}

/// The status of a directive, whose errors are statuses.
#[inline]
pub(super) fn directive(body: impl FnOnce() -> Result<(), Status>) -> Status {
    body().err().unwrap_or(Status::Successful)
}

/// # Safety
/// The block contains this many values of the type from `offset` on, and stays.
pub(super) unsafe fn slice_at<'r, T>(block: NonNull<u8>, offset: usize, count: usize) -> &'r [T] {
    // SAFETY: the caller promises that `count` values lie there, in a block that stays.
    unsafe { core::slice::from_raw_parts(block.add(offset).cast().as_ptr(), count) }
}

/// The body of the `ident` directives: `find` searches for the object of a name, from the first entry on.
pub(super) fn ident(
    name: Name,
    node: u32,
    id: Option<&mut Id>,
    find: impl FnOnce() -> Option<Id>,
) -> Status {
    directive(|| {
        let id = id.ok_or(Status::InvalidAddress)?;
        let is_searched = [SEARCH_ALL_NODES, SEARCH_LOCAL_NODE, LOCAL_NODE].contains(&node);
        let found = (name != 0 && is_searched).then(find).flatten();
        *id = found.ok_or(Status::InvalidName)?;
        Ok(())
    })
}

impl fmt::Debug for Classic<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Classic")
            .field("options", &self.options())
            .finish_non_exhaustive()
    }
}
