//! What can go wrong with a region, by operation.

use super::Region;
use super::heap::AllocError;
use crate::task::TaskError;
use rustix::io::Errno;

/// Without it nobody in a region could sleep.
pub(super) const WAITV: &str = "futex_waitv (Linux 5.16)";

/// Why a region could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The kernel lacks something without which nothing works.
    #[error("this kernel lacks {0}")]
    Kernel(&'static str),
    /// A capacity is out of its range.
    #[error("{what} is {given}, but must be from {min} to {max}")]
    Capacity {
        /// The option.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// A name that cannot be a region's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A region of this name exists.
    #[error("a region of this name exists")]
    Exists,
    /// Something is mapped at the address.
    #[error("the address {0:#x} is taken")]
    AddressTaken(usize),
    /// No free address was found in the window for regions.
    #[error("no free address range of {0} bytes was found")]
    NoAddress(usize),
    /// This process has as many regions mapped as it can have at a time: 4096.
    #[error("this process has 4096 regions mapped, as many as it can have")]
    TooManyRegions,
    /// The system has no memory for the tables.
    #[error("the system has no memory for a region ({0})")]
    OutOfMemory(Errno),
    /// A system call failed.
    #[error("{call} failed: {error}")]
    System {
        /// What was tried.
        call: &'static str,
        /// The kernel's answer.
        error: Errno,
    },
}

/// Why a region could not be attached, or a thread not become a task of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The kernel lacks something without which nothing works.
    #[error("this kernel lacks {0}")]
    Kernel(&'static str),
    /// A name that cannot be a region's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no such region.
    #[error("there is no such region")]
    NotFound,
    /// The file's permissions forbid it, or it is another user's: see
    /// [`RegionOptions::trust_any_owner`](super::RegionOptions::trust_any_owner).
    #[error("the region belongs to another user, or its mode forbids access")]
    Permission,
    /// The file is something else.
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
        /// What the header promises.
        needed: u64,
    },
    /// The header contradicts itself.
    #[error("the region's file is damaged: {0}")]
    Damaged(&'static str),
    /// Something else is mapped where the region must be.
    #[error("the region must be at {base:#x}, where this process has something else mapped")]
    AddressTaken {
        /// The region's base address.
        base: usize,
    },
    /// Thread IDs mean something else here.
    #[error(
        "the region belongs to PID namespace {region}, this process runs in {here}: thread IDs, by which robust locks name their owner, would be confused"
    )]
    OtherPidNamespace {
        /// The region's namespace.
        region: u64,
        /// This process's.
        here: u64,
    },
    /// This process has as many regions mapped as it can have at a time: 4096.
    #[error("this process has 4096 regions mapped, as many as it can have")]
    TooManyRegions,
    /// The thread is a task of as many regions as it can be at a time: 128, or from 16 on as many as its robust
    /// list has room for beside the locks that it holds. It can leave one by [`Region::detach`].
    #[error(
        "the calling thread is a task of too many regions at a time (128, fewer with many robust locks)"
    )]
    TooManyAttachments,
    /// The region has as many tasks as it was made for.
    #[error("all {tasks} task slots of the region are taken")]
    TaskTableFull {
        /// Slots in the table.
        tasks: usize,
    },
    /// The thread runs its last destructors, those of `pthread_key_create`, after that in which it left its regions: it
    /// would end like a killed one, and what it allocated would be freed. (Those of thread-locals come before.)
    #[error("the calling thread is ending")]
    ThreadEnding,
    /// The thread cannot own robust locks.
    #[error(transparent)]
    Task(TaskError),
    /// A system call failed.
    #[error("{call} failed: {error}")]
    System {
        /// What was tried.
        call: &'static str,
        /// The kernel's answer.
        error: Errno,
    },
}

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {max} bytes, without '/', NUL or a leading '.'")]
pub struct NameError {
    /// The most bytes.
    pub max: usize,
}

/// Why an object was not made or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The thread cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// There is no room.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// A name that cannot be an object's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The region has as many names as it was made for.
    #[error("all {names} names of the region are taken")]
    DirectoryFull {
        /// Entries in the directory.
        names: usize,
    },
    /// There is no object of this name.
    #[error("the region has no object of this name")]
    NotFound,
    /// The object is of another type, or the same type of another layout. A type that two programs include by source is
    /// two types, unless it has a [name](derive@super::Shareable).
    #[error("the object of this name is of another type, or laid out by another build")]
    OtherType,
    /// The directory names a place where no object can be.
    #[error("the region's directory is damaged: the name leads to no object")]
    Damaged,
    /// The directory's lock is unusable.
    #[error("the region's directory cannot be locked: {0}")]
    Locked(&'static str),
}

/// Why a thread could not leave a region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// It holds locks or semaphores that live there, or has messages in flight.
    #[error(
        "the thread holds {locks} robust locks and semaphores of the region, and has {messages} messages in flight"
    )]
    Holding {
        /// How many robust locks, and semaphores that it owns.
        locks: usize,
        /// How many messages that it received and neither finished nor gave back.
        messages: usize,
        /// The handle, given back.
        region: Region,
    },
    /// The thread's own record cannot be made.
    #[error(transparent)]
    Task(TaskError),
}
