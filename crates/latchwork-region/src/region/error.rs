//! The errors of regions and containers, by operation.

use super::heap::AllocError;
use crate::task::{NotATask, TaskError};
use core::fmt;
use rustix::io::Errno;

/// Why a region could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A capacity is out of its range.
    #[error("{what} is {given}, but must be from {min} to {max}")]
    Capacity {
        /// The name of the option.
        what: &'static str,
        /// The given value.
        given: u64,
        /// The smallest value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// The name cannot be a region's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A region of this name exists.
    #[error("a region of this name exists")]
    Exists,
    /// Something else is mapped at the address.
    #[error("the address {0:#x} is taken")]
    AddressTaken(usize),
    /// No free address was found in the window for regions.
    #[error("no free address range of {0} bytes was found")]
    NoAddress(usize),
    /// This process has the maximum of 4096 regions mapped.
    #[error("this process has 4096 regions mapped, as many as it can have")]
    TooManyRegions,
    /// `/proc` is not there, or does not say to which PID namespace this process belongs.
    #[error("the PID namespace of this process is not known: /proc/self/ns/pid cannot be read")]
    UnknownPidNamespace,
    /// The system has no memory for the tables.
    #[error("the system has no memory for a region ({0})")]
    OutOfMemory(Errno),
    /// A system call failed.
    #[error("{call} failed: {error}")]
    System {
        /// The call.
        call: &'static str,
        /// The error that the kernel returned.
        error: Errno,
    },
}

/// What a [checked attach](super::RegionOptions::checked) found wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object {object:?} is not sound, {offset:#x} bytes from the region's base: {what}")]
#[non_exhaustive]
pub struct Unsound {
    /// The object's name.
    pub object: String,
    /// Where in the region, in bytes from its base.
    pub offset: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// Why a region could not be attached, or a thread could not become a task of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The name cannot be a region's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no such region.
    #[error("there is no such region")]
    NotFound,
    /// The file's permissions forbid it, or another user owns it: see
    /// [`RegionOptions::trust_any_owner`](super::RegionOptions::trust_any_owner).
    #[error("the region belongs to another user, or its mode forbids access")]
    Permission,
    /// The file is not a region.
    #[error("the file is not a latchwork region")]
    NotARegion,
    /// The file was made by a build with another layout.
    #[error(
        "the region has the layout {found:016x}, this build has {expected:016x}: all programs that share a region need the same version of latchwork"
    )]
    OtherBuild {
        /// The region's fingerprint.
        found: u64,
        /// This build's.
        expected: u64,
    },
    /// The file is shorter than its tables.
    #[error("the region's file has {bytes} bytes, its tables need {needed}")]
    Truncated {
        /// Size of the file.
        bytes: u64,
        /// Size that the header claims.
        needed: u64,
    },
    /// The contents of the file are inconsistent.
    #[error("the region's file is damaged: {0}")]
    Damaged(&'static str),
    /// A [checked attach](super::RegionOptions::checked) found an object that is not sound.
    #[error(transparent)]
    Unsound(#[from] Unsound),
    /// A [checked attach](super::RegionOptions::checked) found an object whose type was not
    /// [declared](super::RegionOptions::holds).
    #[error("a checked attach does not know the type of the object {object:?}")]
    UnknownType {
        /// The object's name.
        object: String,
    },
    /// A process has the region, so that its contents change: a [checked attach](super::RegionOptions::checked) cannot
    /// validate them.
    #[error("a process has the region, whose contents therefore cannot be validated")]
    InUse,
    /// Another process attaches the region, and so may validate its file, or has locked the file exclusively: for 10 s by
    /// now. The call can be made again.
    #[error("another process has been attaching the region, or has had its file locked, for 10 s")]
    Validating,
    /// Something else is mapped where the region must be.
    #[error("the region must be at {base:#x}, where this process has something else mapped")]
    AddressTaken {
        /// The region's base address.
        base: usize,
    },
    /// The region belongs to another PID namespace, in which thread IDs mean other threads, and was not made for tasks of
    /// [any namespace](super::RegionOptions::any_pid_namespace).
    #[error(
        "the region belongs to PID namespace {region}, this process runs in {here}: thread IDs, by which robust locks name their owner, would be confused (a region made with any_pid_namespace has no such locks)"
    )]
    OtherPidNamespace {
        /// The region's namespace.
        region: u64,
        /// This process's.
        here: u64,
    },
    /// `/proc` is not there, or does not say to which PID namespace this process belongs.
    #[error("the PID namespace of this process is not known: /proc/self/ns/pid cannot be read")]
    UnknownPidNamespace,
    /// This process has the maximum of 4096 regions mapped.
    #[error("this process has 4096 regions mapped, as many as it can have")]
    TooManyRegions,
    /// The thread is a task of the maximum number of regions: 128, or, from 16 on, as many as its robust list has
    /// room for beside the locks that it holds. It can leave one by [`Region::detach`](super::Region::detach).
    #[error(
        "the calling thread is a task of too many regions at a time (128, fewer with many robust locks)"
    )]
    TooManyAttachments,
    /// All task slots of the region are in use.
    #[error("all {tasks} task slots of the region are taken")]
    TaskTableFull {
        /// Slots in the table.
        tasks: usize,
    },
    /// The thread runs its last destructors, those of `pthread_key_create`, after the one in which it left its
    /// regions. It would end like a killed task, and what it allocated would be freed. (Destructors of thread-locals
    /// run earlier.)
    #[error("the calling thread is ending")]
    ThreadEnding,
    /// The thread cannot own robust locks.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A system call failed.
    #[error("{call} failed: {error}")]
    System {
        /// The call.
        call: &'static str,
        /// The error that the kernel returned.
        error: Errno,
    },
}

impl From<NotATask> for AttachError {
    fn from(error: NotATask) -> Self {
        match error {
            NotATask::TaskTableFull { tasks } => Self::TaskTableFull { tasks },
            NotATask::TooManyAttachments => Self::TooManyAttachments,
            NotATask::ThreadEnding => Self::ThreadEnding,
            NotATask::Validating => Self::Validating,
            NotATask::Task(error) => Self::Task(error),
            NotATask::OtherPidNamespace { region, here } => {
                Self::OtherPidNamespace { region, here }
            }
            NotATask::UnknownPidNamespace => Self::UnknownPidNamespace,
            _ => Self::NotFound,
        }
    }
}

pub(super) fn system(call: &'static str) -> impl Fn(Errno) -> AttachError {
    move |error| AttachError::System { call, error }
}

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {max} bytes, without '/', NUL or a leading '.'")]
pub struct NameError {
    /// The maximum length in bytes.
    pub max: usize,
}

/// Why an object was not made or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The thread cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The region or the system has no room.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The name cannot be an object's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// All entries of the region's directory are in use.
    #[error("all {names} names of the region are taken")]
    DirectoryFull {
        /// Entries in the directory.
        names: usize,
    },
    /// There is no object of this name.
    #[error("the region has no object of this name")]
    NotFound,
    /// The object has another type, or the same type with another layout. A type that two programs include by source
    /// is two types, unless it has a [name](derive@super::Shareable).
    #[error("the object of this name is of another type, or laid out by another build")]
    OtherType,
    /// The directory names an address at which no object can be.
    #[error("the region's directory is damaged: the name leads to no object")]
    Damaged,
    /// A part of the type names threads by their IDs, and the region is for tasks of [any PID
    /// namespace](super::RegionOptions::any_pid_namespace).
    #[error(
        "the region is for tasks of any PID namespace, and a lock in this type names threads by their IDs (a region lock, Mutex<_, InRegion>, does not)"
    )]
    NamesThreads,
    /// The directory's lock is unusable.
    #[error("the region's directory cannot be locked: {0}")]
    Locked(&'static str),
}

/// Why a container could not allocate memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The thread cannot become a task of the container's region.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The region or the system has no room.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// A part of the type names threads by their IDs, and the region is for tasks of [any PID
    /// namespace](super::RegionOptions::any_pid_namespace).
    #[error(
        "the region is for tasks of any PID namespace, and a lock in this type names threads by their IDs (a region lock, Mutex<_, InRegion>, does not)"
    )]
    NamesThreads,
    /// More elements than a container can count (2³² − 2).
    #[error("a container has at most 2^32 - 2 elements")]
    TooLong,
    /// The container is outside its region, which this process has not attached, or not any more; or it belongs to
    /// no region, since a kill interrupted its assignment.
    #[error("the container's region is not mapped in this process")]
    NotMapped,
}

/// The value for which a container had no room, and the reason.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct PushError<T> {
    /// The value.
    pub value: T,
    /// The reason.
    #[source]
    pub error: StorageError,
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PushError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<T> From<PushError<T>> for StorageError {
    /// Drops the value.
    fn from(error: PushError<T>) -> Self {
        error.error
    }
}
