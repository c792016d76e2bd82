//! The errors of coprocs, by operation.

use crate::region::{AttachError, ObjectError};
use rustix::io::Errno;

/// Why coprocs cannot be started at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server process could not be made.
    #[error("{call} failed: {error}")]
    System {
        /// The operation that failed, usually a system call.
        call: &'static str,
        /// The kernel's error.
        error: Errno,
    },
    /// All copies of this process that were made hung, because another thread keeps holding a lock of the allocator, of
    /// the loader, of standard error or of panics. Start the runtime before other threads.
    #[error(
        "{attempts} copies of this process hung on locks of other threads; start the runtime before other threads"
    )]
    Unproven {
        /// How many copies were made.
        attempts: u32,
    },
    /// The calling thread holds robust locks, or messages in flight: the copy would hold them, too.
    #[error("the calling thread holds locks or messages, which the copy would hold as well")]
    Holding,
    /// The runtime belongs to another process, from which this one was forked.
    #[error("the runtime belongs to another process")]
    OtherProcess,
    /// The server process ended before it was ready.
    #[error("the server process ended while it started")]
    Died,
    /// The region has no room for a record, or the caller cannot be a task of it.
    #[error(transparent)]
    Region(#[from] ObjectError),
}

/// Why there is no new coproc.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// An attribute could not be set; the coproc ran nothing. `process` and `region` stand for the
    /// clone itself and for joining the region.
    #[error("attribute {attribute}: {error}")]
    Attribute {
        /// The attribute, by the name of its builder function (`nice`: that of `scheduling`).
        attribute: &'static str,
        /// The kernel's error.
        error: Errno,
    },
    /// A snapshot was requested, and the calling thread holds robust locks, or messages in flight: the coproc would
    /// hold them, too. (The unsafe functions leave this check to their caller.)
    #[error("the calling thread holds locks or messages, which the copy would hold as well")]
    Holding,
    /// The argument is not a whole named object of the region.
    #[error("the argument is not a named object of the region")]
    Argument,
    /// The runtime belongs to another process: this one is the child of a fork, and needs its own.
    #[error("the runtime belongs to another process")]
    OtherProcess,
    /// The server process is gone and cannot be replaced.
    #[error("the server process is gone: {0}")]
    Server(#[from] StartError),
    /// The new process died before it ran anything.
    #[error("the process died before it ran anything")]
    Died,
    /// A snapshot hung for ten seconds before it ran anything, and was killed: when it was copied, another thread held
    /// a lock that its start takes.
    #[error("the copy of this process hung on a lock of another thread, and was killed")]
    Stuck,
    /// The region has no room for a record, or the caller cannot be a task of it.
    #[error(transparent)]
    Region(#[from] ObjectError),
}

impl From<AttachError> for SpawnError {
    fn from(error: AttachError) -> Self {
        Self::Region(error.into())
    }
}

/// Why the end of a coproc is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The deadline has passed.
    #[error("it had not ended by the deadline")]
    TimedOut,
    /// It was started detached.
    #[error("it is detached")]
    Detached,
    /// Another process has spawned it, from which this one was forked.
    #[error("another process has spawned it")]
    OtherProcess,
    /// It died, and its status is lost. Either a `waitpid` with `__WALL` elsewhere in this process reaped it, or, after it
    /// had become another program by `exec`, any `waitpid(-1)` did (or SIGCHLD is ignored, which discards the status of such
    /// a program).
    #[error("it died, and how is unknown: another waited for it")]
    Taken,
    /// The region cannot be used.
    #[error(transparent)]
    Region(#[from] AttachError),
    /// A system call failed.
    #[error("{call} failed: {error}")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// The kernel's error.
        error: Errno,
    },
}
