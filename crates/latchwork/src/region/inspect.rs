//! Looking at regions from outside: what `latchwork ps` shows.
//!
//! A snapshot is read from the region's file with `pread` and never mapped, no lock is taken, and
//! nothing is written. The file may be hostile, cut short or changing meanwhile: every number from
//! it is checked, or bounded by what this build allows and by the memory that the file really has.
//! What is no region of this build is reported as that, with the error that an attach would give.
//!
//! A snapshot of tasks that run is not of one instant: each slot, each name and each lock is seen as
//! it was at some time during the reading. Names and labels are the writers' own and may contain
//! anything, escape sequences included.
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

mod find;
mod place;
mod wait;

pub use super::heap::HeapUse;
pub use find::{Survey, survey};
pub use place::Place as RegionPlace;
pub use wait::TaskWait;

use super::header::{Header, Identity, Layout};
use super::names::{Entry, READY};
use super::task_table::{Life, Slot, life_of};
use super::wait_record::BUSY;
use super::{AttachError, header};
use crate::atomic::Ordering;
use crate::hook::TaskView;
use crate::mutex::{OWNER_DIED, Robust, TID_MASK};
use crate::sys::inspect::{self as sys, Place};
use crate::sys::memory;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::slice;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where named regions live.
pub(crate) const DIRECTORY: &str = super::create::DIRECTORY;

/// A region, or what poses as one, as seen from outside.
#[derive(Debug)]
#[non_exhaustive]
pub struct RegionReport {
    /// The region's name, or the label of an anonymous one.
    pub name: String,
    /// The file of a named region. `None` for an anonymous one, and for a named one whose name was
    /// removed while it is in use.
    pub path: Option<PathBuf>,
    /// Device and inode of the file: two reports never have the same.
    pub file: (u64, u64),
    /// Bytes of memory behind the file.
    pub memory_bytes: u64,
    /// Who has it open, as far as the caller may see that. Processes that share one descriptor table,
    /// and those of PID namespaces that are not visible here, are missing.
    pub openings: Vec<Opening>,
    /// What is in it, or why that cannot be read: the error that an attach would give.
    pub contents: Result<Contents, AttachError>,
}

/// A process that has a region's file open for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opening {
    /// The process.
    pub process: u32,
    /// Its descriptor.
    pub descriptor: u32,
}

/// What is in a region.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Contents {
    /// Its address in every task.
    pub base: u64,
    /// The most bytes that its heap can grow to.
    pub max_bytes: u64,
    /// Bytes of the file that its tasks have committed, tables included.
    pub committed_bytes: u64,
    /// The layout, which is this build's: others are reported as [`AttachError::OtherBuild`].
    pub fingerprint: u64,
    /// The PID namespace that its thread IDs belong to.
    pub pid_namespace: u64,
    /// Whether that is the caller's, so that the IDs mean something here.
    pub pid_namespace_is_ours: bool,
    /// The process that made the region, in its PID namespace.
    pub creator: u32,
    /// The slots of its task table.
    pub max_tasks: u16,
    /// The most objects that it can have.
    pub max_names: u32,
    /// Deaths of tasks that were found so far.
    pub deaths: u32,
    /// The tasks, living and dead, in the order of their slots.
    pub tasks: Vec<TaskReport>,
    /// The named objects.
    pub objects: Vec<ObjectReport>,
    /// The use of the heap.
    pub heap: HeapUse,
    /// The region's own locks.
    pub locks: [LockReport; 3],
    /// For what is asked for later, and is then of a later moment.
    snapshot: Arc<Snapshot>,
}

/// A task of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskReport {
    /// Its slot in the task table.
    pub slot: u16,
    /// The slot's generation: with the slot, the task's identity for ever.
    pub generation: u32,
    /// Its thread, 0 if the task is dead.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The name that it joined under, or its thread's.
    pub name: String,
    /// Whether it lives.
    pub state: TaskState,
    /// When it became a task, in nanoseconds since boot (suspended time included).
    pub attached_at: u64,
    /// The priority that is recorded for it, from 1, the highest, to 255; its own, without what it was lent.
    pub priority: u32,
    /// The recorded priority that counts.
    pub effective_priority: u32,
    /// What it waits for, as far as the table says; who waits for a mutex is known to the kernel alone.
    pub waits_for: Option<TaskWait>,
    /// What it holds and wants, if its locks are checked.
    pub checked: Option<TaskView>,
}

/// Whether a task lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskState {
    /// The table says so, and the thread exists and is no younger than the task.
    Alive,
    /// The table says so, and no such thread is visible here: it runs in another PID namespace, it is
    /// hidden from the caller, or somebody damaged the table.
    Unconfirmed,
    /// It died, and nobody has settled yet what it left: the next task that waits, attaches or calls
    /// [`sweep`](super::Region::sweep) will.
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

/// One of the locks that protect a region's own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockReport {
    /// What it protects: `grow`, `sweep` or `names`.
    pub name: &'static str,
    /// Who holds it.
    pub state: LockState,
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockState {
    /// Nobody.
    Free,
    /// This thread.
    Held {
        /// Its ID.
        thread: u32,
    },
    /// A task that died with it; the next one repairs what it protects.
    OwnerDied,
}

impl LockReport {
    fn new(name: &'static str, lock: &Robust) -> Self {
        // Relaxed: a copy in memory of our own.
        let word = lock.node().word.load(Ordering::Relaxed);
        let state = match word & TID_MASK {
            0 if word & OWNER_DIED != 0 => LockState::OwnerDied,
            0 => LockState::Free,
            thread => LockState::Held { thread },
        };
        Self { name, state }
    }
}

/// Looks at the file of a named region, wherever it lies. Who has it open is not looked for.
///
/// # Errors
/// [`AttachError::NotFound`] if nothing lies there. All else is in the report.
pub fn inspect_path(path: &Path) -> Result<RegionReport, AttachError> {
    let place = Place::at(path).map_err(attach_error)?;
    Ok(report(&place, region_name(path), Some(path.to_owned())))
}

fn region_name(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    file.strip_prefix(super::create::PREFIX)
        .unwrap_or(&file)
        .to_owned()
}

fn attach_error(error: Errno) -> AttachError {
    match error {
        Errno::NOENT | Errno::SRCH => AttachError::NotFound,
        Errno::ACCESS | Errno::PERM => AttachError::Permission,
        Errno::NODEV => AttachError::NotARegion,
        error => AttachError::System {
            call: "open",
            error,
        },
    }
}

fn report(place: &Place, name: String, path: Option<PathBuf>) -> RegionReport {
    let snapshot = place
        .open()
        .map_err(attach_error)
        .and_then(|file| Snapshot::new(file, place));
    let name = match &snapshot {
        // The link of a memory file is cut off and cannot tell some names apart from others.
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
struct Snapshot {
    file: OwnedFd,
    memory: u64,
    identity: Identity,
    layout: Layout,
}

impl Snapshot {
    fn new(file: OwnedFd, place: &Place) -> Result<Self, AttachError> {
        let identity = identity(&file)?;
        let layout = identity.check(place.bytes, memory::page_bytes())?;
        Ok(Self {
            file,
            memory: place.memory,
            identity,
            layout,
        })
    }

    fn contents(self: Arc<Self>) -> Result<Contents, AttachError> {
        let header = self.read::<Header>(0)?;
        let here = memory::pid_namespace().map_err(|error| AttachError::System {
            call: "stat(/proc/self/ns/pid)",
            error,
        })?;
        let identity = &self.identity;
        let is_ours = identity.pid_namespace == here;
        let heap = self
            .layout
            .heap_layout
            .usage(self.memory, |offset, buffer| {
                self.fill(self.layout.heap_tables + offset, buffer)
            })?;
        Ok(Contents {
            base: identity.base,
            max_bytes: identity.max_bytes,
            // Relaxed, here and below: copies in memory of our own.
            committed_bytes: header.committed.load(Ordering::Relaxed).min(self.memory),
            fingerprint: identity.fingerprint,
            pid_namespace: identity.pid_namespace,
            pid_namespace_is_ours: is_ours,
            creator: identity.creator,
            max_tasks: identity.max_tasks,
            max_names: identity.max_names,
            deaths: header.died.load(Ordering::Relaxed),
            tasks: self.tasks(header.slots_used.load(Ordering::Relaxed), is_ours)?,
            objects: self.objects()?,
            heap,
            locks: [
                LockReport::new("grow", &header.grow_lock),
                LockReport::new("sweep", &header.sweep_lock),
                LockReport::new("names", &header.names_lock),
            ],
            snapshot: Arc::clone(&self),
        })
    }

    fn tasks(&self, used: u32, threads_are_ours: bool) -> Result<Vec<TaskReport>, AttachError> {
        let used = u16::try_from(used)
            .unwrap_or(u16::MAX)
            .min(self.identity.max_tasks);
        (0..used)
            .filter_map(|index| self.judged_task(index, threads_are_ours).transpose())
            .collect()
    }

    fn judged_task(
        &self,
        index: u16,
        threads_are_ours: bool,
    ) -> Result<Option<TaskReport>, AttachError> {
        let mut task = self.task(index)?;
        // A task may come or go between the looks at the table and at the thread.
        for _ in 0..4 {
            match &mut task {
                Some(found) if threads_are_ours && found.state == TaskState::Unconfirmed => {
                    if found.thread_exists() {
                        found.state = TaskState::Alive;
                        break;
                    }
                }
                _ => break,
            }
            let again = self.task(index)?;
            if again == task {
                break;
            }
            task = again;
        }
        Ok(task)
    }

    /// The task in a slot, as the table alone tells; `None` if the slot is free.
    fn task(&self, index: u16) -> Result<Option<TaskReport>, AttachError> {
        let slot = self.read::<Slot>(self.layout.slots + usize::from(index) * size_of::<Slot>())?;
        let (thread, state) = match life_of(slot.life_word().load(Ordering::Relaxed)) {
            Life::Free => return Ok(None),
            Life::Alive(thread) => (thread, TaskState::Unconfirmed),
            Life::Dead => (0, TaskState::Unswept),
        };
        Ok(Some(TaskReport {
            slot: index,
            generation: slot.generation.load(Ordering::Relaxed),
            thread,
            process: slot.process.load(Ordering::Relaxed),
            name: slot.name(),
            state,
            attached_at: slot.attached_at.load(Ordering::Relaxed),
            priority: slot.wait.standing.base.load(Ordering::Relaxed),
            effective_priority: slot.wait.standing.effective.load(Ordering::Relaxed) & !BUSY,
            waits_for: wait::of(&slot),
            // One that is not this thread's was left by another task.
            checked: Some(slot.check.view()).filter(|view| thread != 0 && view.thread == thread),
        }))
    }

    fn objects(&self) -> Result<Vec<ObjectReport>, AttachError> {
        let mut objects = Vec::new();
        for index in 0..self.identity.max_names as usize {
            let entry = self.read::<Entry>(self.layout.names + index * size_of::<Entry>())?;
            if entry.state.load(Ordering::Relaxed) == READY {
                objects.push(ObjectReport {
                    name: entry.name(),
                    bytes: entry.bytes.load(Ordering::Relaxed),
                    address: entry.object.load(Ordering::Relaxed) as u64,
                    fingerprint: entry.fingerprint.load(Ordering::Relaxed),
                });
            }
        }
        Ok(objects)
    }

    /// A copy of what lies at an offset. Its destructor does not run: a lock that is held, by whomever,
    /// must not be missed when the copy goes.
    fn read<T: AnyBytes>(&self, offset: usize) -> Result<ManuallyDrop<T>, AttachError> {
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: the value's own bytes, all of which are initialised.
        let bytes =
            unsafe { slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        self.fill(offset, bytes)?;
        // SAFETY: by the trait's contract.
        Ok(ManuallyDrop::new(unsafe { value.assume_init() }))
    }

    fn fill(&self, offset: usize, buffer: &mut [u8]) -> Result<(), AttachError> {
        let offset = offset as u64;
        let count =
            memory::read_at(&self.file, buffer, offset).map_err(|error| AttachError::System {
                call: "pread",
                error,
            })?;
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
    /// A copy of what lies at an address in every task. `None` if that is outside, or not there any more.
    pub(crate) fn read<T: AnyBytes>(&self, address: u64) -> Option<ManuallyDrop<T>> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let end = offset.checked_add(size_of::<T>())?;
        (end <= self.snapshot.layout.total).then_some(())?;
        self.snapshot.read(offset).ok()
    }

    /// The task of this slot and generation.
    #[must_use]
    pub fn task(&self, slot: u16, generation: u32) -> Option<&TaskReport> {
        self.tasks
            .iter()
            .find(|task| (task.slot, task.generation) == (slot, generation))
    }
}

impl TaskReport {
    /// Whether the thread exists that the table names. One that is younger than the task only has the
    /// same ID.
    fn thread_exists(&self) -> bool {
        sys::thread_started(self.process, self.thread)
            .is_some_and(|started| started <= self.attached_at)
    }
}

/// What a file says that it is.
pub(super) fn identity(file: &OwnedFd) -> Result<Identity, AttachError> {
    let mut bytes = [0; size_of::<Identity>()];
    let count = memory::read_at(file, &mut bytes, 0).map_err(|error| AttachError::System {
        call: "pread",
        error,
    })?;
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
/// It consists of integers, atomic or not, and padding, and no method that is used on a copy follows
/// what it holds.
pub(crate) unsafe trait AnyBytes {}

// SAFETY: numbers, counters and the nodes of locks, whose links nobody follows here.
unsafe impl AnyBytes for Header {}
// SAFETY: as above.
unsafe impl AnyBytes for Slot {}
// SAFETY: numbers; the length of the name is bounded by the reader.
unsafe impl AnyBytes for Entry {}
