//! Inspecting regions from outside: the source of `latchwork ps`.
//!
//! A snapshot is read from the region's file with `pread` and never mapped; inspection takes no lock and writes
//! nothing. The file may be hostile, truncated or changing: every number from it is checked, or bounded by what this
//! build allows and by the memory that the file really has. A file that is not a region of this build is reported
//! with the error that an attach would return.
//!
//! A snapshot of running tasks is not of one instant: each slot, name and lock is read at some time during the
//! inspection. The programs that use a region choose its names and labels, which may contain anything, escape
//! sequences included.
//!
//! ```
//! use latchwork::region::{RegionOptions, inspect};
//!
//! let region = RegionOptions::new().label("inspected").create_anonymous()?;
//! region.object("answer", || 42u64)?;
//! let survey = inspect::survey();
//! let report = survey.regions.iter().find(|report| report.name == "inspected").unwrap();
//! assert_eq!(report.contents.as_ref().unwrap().objects[0].name, "answer");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(unsafe_code)]

mod lock;
mod place;
mod survey;
mod wait;

pub use super::heap::HeapUse;
pub use lock::{LockReport, LockState};
pub use place::RegionPlace;
pub(super) use survey::named_files;
pub use survey::{Survey, survey};
pub use wait::TaskWait;

use super::error::system;
use super::header::{FLAG_ANY_PID_NAMESPACE, Header, Identity, Layout};
use super::heap::Owner;
use super::names::{self, Entry, READY};
use super::task_table::{Life, Slot, life_of};
use super::wait_record::BUSY;
use super::{AttachError, header};
use crate::atomic::Ordering;
use crate::hook::TaskView;
use crate::sys::inspect::{self as sys, Place};
use crate::sys::memory;
use crate::sys::namespaces::Threads;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::slice;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of named regions' files.
#[doc(hidden)]
pub const DIRECTORY: &str = super::create::DIRECTORY;

/// A region, or a file that claims to be one, as seen from outside.
#[derive(Debug)]
#[non_exhaustive]
pub struct RegionReport {
    /// The region's name, or the label of an anonymous one.
    pub name: String,
    /// The file of a named region. `None` for an anonymous region, and for a named one whose name was removed while
    /// it was in use.
    pub path: Option<PathBuf>,
    /// Device and inode of the file: unique among the reports.
    pub file: (u64, u64),
    /// Bytes of memory behind the file.
    pub memory_bytes: u64,
    /// The processes that have the file open, as far as the caller may see them. Processes that share one descriptor
    /// table, and those of PID namespaces that are not visible here, are missing.
    pub openings: Vec<Opening>,
    /// The contents, or why they cannot be read: the error that an attach would return.
    pub contents: Result<Contents, AttachError>,
}

/// A process that has a region's file open for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opening {
    /// The process ID.
    pub process: u32,
    /// The number of its descriptor.
    pub descriptor: u32,
}

/// The contents of a region.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Contents {
    /// The region's address in every task.
    pub base: u64,
    /// The maximum size of its heap in bytes.
    pub max_bytes: u64,
    /// Bytes of the file that its tasks have committed, tables included.
    pub committed_bytes: u64,
    /// The fingerprint of the layout, which is this build's: others are reported as [`AttachError::OtherBuild`].
    pub fingerprint: u64,
    /// The PID namespace in which it was created: that of its tasks, unless it is for any.
    pub pid_namespace: u64,
    /// Whether that is the caller's namespace.
    pub pid_namespace_is_ours: bool,
    /// Whether it is for tasks of [any PID namespace](super::RegionOptions::any_pid_namespace).
    pub any_pid_namespace: bool,
    /// The ID of the process that made the region, in its PID namespace.
    pub creator: u32,
    /// The number of slots of its task table.
    pub max_tasks: u16,
    /// The maximum number of named objects.
    pub max_names: u32,
    /// The number of deaths of tasks that were detected so far.
    pub deaths: u32,
    /// The tasks, alive and dead, in the order of their slots.
    pub tasks: Vec<TaskReport>,
    /// The named objects.
    pub objects: Vec<ObjectReport>,
    /// The use of the heap.
    pub heap: HeapUse,
    /// The region's own locks.
    pub locks: [LockReport; 3],
    /// Indices of the objects, by address.
    by_address: Vec<usize>,
    /// For later queries, whose results are of a later moment.
    snapshot: Arc<Snapshot>,
}

/// A task of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskReport {
    /// Its slot in the task table.
    pub slot: u16,
    /// The slot's generation: together with the slot it identifies the task for ever.
    pub generation: u32,
    /// Its thread, 0 if the task is dead. If the task is [alive](TaskState::Alive), this is the ID that the caller's `/proc`
    /// shows; else it is the ID in the task's own PID namespace.
    pub thread: u32,
    /// Its process, in the same way.
    pub process: u32,
    /// Its PID namespace.
    pub pid_namespace: u64,
    /// Its thread's ID in its own PID namespace, by which locks name it; 0 if the task is dead.
    pub own_thread: u32,
    /// The name that it joined under, or its thread's.
    pub name: String,
    /// Whether the task is alive.
    pub state: TaskState,
    /// The time at which it became a task, in nanoseconds since boot (suspended time included).
    pub attached_at: u64,
    /// Its own recorded priority, from 1, the highest, to 255, without donated priority.
    pub priority: u32,
    /// The effective recorded priority.
    pub effective_priority: u32,
    /// What it waits for, according to the table. Waiters for a mutex are known only to the kernel.
    pub waits_for: Option<TaskWait>,
    /// The locks that it holds and waits for, if its locks are checked.
    pub checked: Option<TaskView>,
}

/// Whether a task is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskState {
    /// The table says so, and the thread exists and is no younger than the task.
    Alive,
    /// The table says that it is alive, and no such thread is visible here: it runs in another PID namespace, it is
    /// hidden from the caller, or the table was damaged.
    Unconfirmed,
    /// It died, and was not swept yet: the next task that waits, attaches or calls [`sweep`](super::Region::sweep)
    /// does that.
    Unswept,
}

/// A named object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectReport {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its address in every task.
    pub address: u64,
    /// The fingerprint of its type.
    pub fingerprint: u64,
}

/// Inspects the file of a named region, wherever it lies. The report has no list of the processes that have it open.
///
/// # Errors
/// [`AttachError::NotFound`] if there is no file. All other errors are in the report.
pub fn inspect_path(path: &Path) -> Result<RegionReport, AttachError> {
    let place = Place::at(path).map_err(attach_error)?;
    Ok(report(&place, region_name(path), Some(path.to_owned())))
}

fn region_name(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let name = file.strip_prefix(super::create::PREFIX);
    name.unwrap_or(&file).to_owned()
}

pub(super) fn attach_error(error: Errno) -> AttachError {
    match error {
        Errno::NOENT | Errno::SRCH => AttachError::NotFound,
        Errno::ACCESS | Errno::PERM => AttachError::Permission,
        Errno::NODEV => AttachError::NotARegion,
        error => system("open")(error),
    }
}

/// Opens the file, for reading.
pub(super) fn open(place: &Place) -> Result<OwnedFd, AttachError> {
    place.open().map_err(open_error)
}

/// The error of a path in `/proc` that leads to an open file: if it does not exist, `/proc` does not.
pub(super) fn open_error(error: Errno) -> AttachError {
    match error {
        Errno::NOENT => AttachError::UnknownPidNamespace,
        error => attach_error(error),
    }
}

fn report(place: &Place, name: String, path: Option<PathBuf>) -> RegionReport {
    let file = open(place);
    let snapshot = file.and_then(|file| Snapshot::new(file, place));
    let name = match &snapshot {
        // The kernel truncates the link of a memory file, and some different names look alike in it.
        Ok(snapshot) if path.is_none() => snapshot.identity.label(),
        _ => name,
    };
    RegionReport {
        name,
        path,
        file: (place.device, place.inode),
        memory_bytes: place.memory,
        openings: Vec::new(),
        contents: snapshot.and_then(|snapshot| Arc::new(snapshot).contents()),
    }
}

/// A file that begins like a region of this build.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) file: OwnedFd,
    memory: u64,
    pub(super) identity: Identity,
    pub(super) layout: Layout,
}

impl Snapshot {
    pub(super) fn new(file: OwnedFd, place: &Place) -> Result<Self, AttachError> {
        let identity = identity(&file)?;
        let layout = identity.check(place.bytes, memory::page_bytes())?;
        Ok(Self {
            file,
            memory: place.memory,
            identity,
            layout,
        })
    }

    pub(super) fn contents(self: Arc<Self>) -> Result<Contents, AttachError> {
        let header = self.read::<Header>(0)?;
        let identity = &self.identity;
        let is_ours = memory::pid_namespace() == Ok(identity.pid_namespace);
        let fill = |offset, buffer: &mut [u8]| self.fill(self.layout.heap_tables + offset, buffer);
        let heap = self.layout.heap_layout.usage(self.memory, fill)?;
        let read = || self.read::<Header>(0);
        let living_thread = |owner| self.living_thread(owner);
        let objects = self.objects()?;
        let mut by_address: Vec<usize> = (0..objects.len()).collect();
        by_address.sort_by_key(|index| objects[*index].address);
        Ok(Contents {
            base: identity.base,
            max_bytes: identity.max_bytes,
            // Relaxed, here and below: copies in our own memory.
            committed_bytes: header.committed.load(Ordering::Relaxed).min(self.memory),
            fingerprint: identity.fingerprint,
            pid_namespace: identity.pid_namespace,
            pid_namespace_is_ours: is_ours,
            any_pid_namespace: identity.flags & FLAG_ANY_PID_NAMESPACE != 0,
            creator: identity.creator,
            max_tasks: identity.max_tasks,
            max_names: identity.max_names,
            deaths: header.died.load(Ordering::Relaxed),
            tasks: self.tasks(header.slots_used.load(Ordering::Relaxed))?,
            by_address,
            objects,
            heap,
            locks: [
                LockReport::of_task("grow", |it| &it.grow_lock, read, living_thread)?,
                LockReport::of_task("sweep", |it| &it.sweep_lock, read, living_thread)?,
                LockReport::of_task("names", |it| &it.names_lock, read, living_thread)?,
            ],
            snapshot: Arc::clone(&self),
        })
    }

    fn tasks(&self, used: u32) -> Result<Vec<TaskReport>, AttachError> {
        let used = used.min(self.identity.max_tasks.into()) as u16;
        let visible = Threads::visible();
        (0..used)
            .filter_map(|index| self.confirmed_task(index, &visible).transpose())
            .collect()
    }

    fn confirmed_task(
        &self,
        index: u16,
        visible: &Threads,
    ) -> Result<Option<TaskReport>, AttachError> {
        let mut task = self.task(index)?;
        // A task may come or go between reading the table and checking the thread.
        for _ in 0..4 {
            let is_unconfirmed = |found: &&mut TaskReport| found.state == TaskState::Unconfirmed;
            let Some(found) = task.as_mut().filter(is_unconfirmed) else {
                break;
            };
            let ids = visible.find(found.pid_namespace, found.process, found.thread);
            let started = ids.and_then(|(process, thread)| sys::thread_started(process, thread));
            // A thread that is younger than the task only has the same ID.
            if started.is_some_and(|started| started <= found.attached_at) {
                (found.process, found.thread) = ids.unwrap_or_default();
                found.state = TaskState::Alive;
                break;
            }
            let again = self.task(index)?;
            if again == task {
                break;
            }
            task = again;
        }
        Ok(task)
    }

    /// The thread of a task, if it is alive, from the table alone.
    fn living_thread(&self, owner: Owner) -> Result<Option<u32>, AttachError> {
        let is_it = |task: &TaskReport| {
            task.generation == owner.generation() && task.state != TaskState::Unswept
        };
        let task = self.task(owner.slot())?.filter(is_it);
        Ok(task.map(|task| task.thread))
    }

    /// The task in a slot, from the table alone; `None` if the slot is free.
    fn task(&self, index: u16) -> Result<Option<TaskReport>, AttachError> {
        if u32::from(index) >= self.layout.heap_layout.slots {
            return Ok(None);
        }
        let slot = self.read::<Slot>(self.layout.slots + usize::from(index) * size_of::<Slot>())?;
        let (thread, state) = match life_of(slot.life.word.load(Ordering::Relaxed)) {
            Life::Free => return Ok(None),
            Life::Alive(thread) => (thread, TaskState::Unconfirmed),
            Life::Dead => (0, TaskState::Unswept),
        };
        Ok(Some(TaskReport {
            slot: index,
            generation: slot.generation.load(Ordering::Relaxed),
            thread,
            process: slot.process.load(Ordering::Relaxed),
            pid_namespace: slot.namespace().into(),
            own_thread: thread,
            name: slot.name(),
            state,
            attached_at: slot.attached_at.load(Ordering::Relaxed),
            priority: slot.wait.standing.base.load(Ordering::Relaxed),
            effective_priority: slot.wait.standing.effective.load(Ordering::Relaxed) & !BUSY,
            waits_for: wait::of(&slot),
            // A record of another thread was left by an earlier task.
            checked: Some(slot.check.view()).filter(|view| thread != 0 && view.thread == thread),
        }))
    }

    fn objects(&self) -> Result<Vec<ObjectReport>, AttachError> {
        let entries = 0..self.identity.max_names as usize;
        entries
            .filter_map(|index| self.entry(index).transpose())
            .collect()
    }

    /// The object of this name. A task may change the entry while it is read: so it must be the same twice.
    pub(super) fn object(&self, name: &str) -> Result<Option<ObjectReport>, AttachError> {
        let reach = self.read::<Header>(0)?.names_reach.load(Ordering::Relaxed);
        for index in names::places(name, self.identity.max_names as usize, reach) {
            while let Some(found) = self.entry(index)?
                && found.name == name
            {
                if self.entry(index)?.as_ref() == Some(&found) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn entry(&self, index: usize) -> Result<Option<ObjectReport>, AttachError> {
        let entry = self.read::<Entry>(self.layout.names + index * size_of::<Entry>())?;
        let is_ready = entry.state.load(Ordering::Relaxed) == READY;
        Ok(is_ready.then(|| ObjectReport {
            name: entry.name(),
            bytes: entry.bytes.load(Ordering::Relaxed),
            address: entry.object.load(Ordering::Relaxed) as u64,
            fingerprint: entry.fingerprint.load(Ordering::Relaxed),
        }))
    }

    /// A copy of the value at an offset. Its destructor does not run: dropping a copy of a held lock would report it
    /// as held.
    pub(super) fn read<T: AnyBytes>(&self, offset: usize) -> Result<ManuallyDrop<T>, AttachError> {
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: the value's own bytes, all of which are initialised.
        let bytes =
            unsafe { slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        self.fill(offset, bytes)?;
        // SAFETY: `T: AnyBytes`: every byte string is a value.
        Ok(ManuallyDrop::new(unsafe { value.assume_init() }))
    }

    fn fill(&self, offset: usize, buffer: &mut [u8]) -> Result<(), AttachError> {
        let offset = offset as u64;
        let count = memory::read_at(&self.file, buffer, offset).map_err(system("pread"))?;
        if count < buffer.len() {
            // The tables were complete when the file was opened.
            return Err(AttachError::Truncated {
                bytes: offset + count as u64,
                needed: offset + buffer.len() as u64,
            });
        }
        Ok(())
    }
}

impl Contents {
    /// A copy of the value at an address in every task. `None` if the address is outside, or its memory is gone.
    #[doc(hidden)]
    pub fn read<T: AnyBytes>(&self, address: u64) -> Option<ManuallyDrop<T>> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let end = offset.checked_add(size_of::<T>())?;
        (end <= self.snapshot.layout.total).then_some(())?;
        self.snapshot.read(offset).ok()
    }

    /// The task of this slot and generation.
    #[must_use]
    pub fn task(&self, slot: u16, generation: u32) -> Option<&TaskReport> {
        let place = self.tasks.binary_search_by_key(&slot, |task| task.slot);
        let task = &self.tasks[place.ok()?];
        (task.generation == generation).then_some(task)
    }
}

/// The identity that a file claims.
pub(super) fn identity(file: &OwnedFd) -> Result<Identity, AttachError> {
    let mut bytes = [0; size_of::<Identity>()];
    let count = memory::read_at(file, &mut bytes, 0).map_err(system("pread"))?;
    let identity = Identity::parse(bytes);
    if identity.magic != header::MAGIC {
        return Err(AttachError::NotARegion);
    }
    if count < bytes.len() {
        return Err(AttachError::Truncated {
            bytes: count as u64,
            needed: bytes.len() as u64,
        });
    }
    Ok(identity)
}

/// A type for which every string of bytes is a value.
///
/// # Safety
/// It consists of integers, atomic or not, and padding, and no method that is used on a copy follows pointers in it.
#[doc(hidden)]
pub unsafe trait AnyBytes {}

// SAFETY: numbers, counters and the nodes of locks, whose links are not followed here.
unsafe impl AnyBytes for Header {}
// SAFETY: numbers, counters and the nodes of locks, whose links are not followed here.
unsafe impl AnyBytes for Slot {}
// SAFETY: numbers; the length of the name is bounded by the reader.
unsafe impl AnyBytes for Entry {}
