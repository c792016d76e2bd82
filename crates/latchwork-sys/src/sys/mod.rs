//! The only module that makes system calls.
//!
//! Each submodule wraps one interface of the kernel or of libc, without policy. Under loom only models of
//! the futex and of the robust list exist, and a module that makes models run faster.

mod abort;
#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
pub mod cancellation;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod confine;
#[cfg(not(loom))]
pub mod descriptors;
#[cfg(not(loom))]
pub mod each_thread;
#[cfg(not(loom))]
mod errno;
#[cfg(not(loom))]
pub mod event_fd;
pub mod futex_bits;
#[cfg(not(loom))]
mod futex_linux;
#[cfg(loom)]
mod futex_loom;
#[cfg_attr(not(loom), path = "futex_pi_linux.rs")]
#[cfg_attr(loom, path = "futex_pi_loom.rs")]
mod futex_pi_calls;
#[cfg(not(loom))]
pub mod held_locks;
#[cfg(not(loom))]
pub mod helper;
#[cfg(not(loom))]
pub mod id_place;
#[cfg(not(loom))]
pub mod inspect;
#[cfg(not(loom))]
pub mod introspect;
#[cfg(not(loom))]
pub mod lasting_thread;
#[cfg(not(loom))]
pub mod limits;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod namespaces;
#[cfg(not(loom))]
pub mod own_record;
#[cfg(not(loom))]
pub mod own_stack;
#[cfg(not(loom))]
pub mod probe;
#[cfg(not(loom))]
pub mod proc_file;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
pub mod process_identity;
#[cfg(not(loom))]
pub mod process_mark;
#[cfg_attr(loom, path = "robust_list_loom.rs")]
pub mod robust_list;
pub mod robust_state;
#[cfg(not(loom))]
pub mod running;
#[cfg(not(loom))]
pub mod scheduling;
#[cfg(not(loom))]
pub mod signals;
#[cfg(not(loom))]
pub mod slow_paths;
/// Models count nothing.
#[cfg(loom)]
pub mod slow_paths {
    pub fn acquisition() {}
    pub fn one_acquisition<R>(call: impl FnOnce() -> R) -> R {
        call()
    }
}
#[cfg(not(loom))]
pub mod sockets;
#[cfg(loom)]
mod stacks_loom;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod thread_end;
#[cfg(not(loom))]
pub mod wiped;

pub use abort::{fatal, warn};

/// Waiting on and waking by a 32-bit word.
pub mod futex {
    #[cfg(not(loom))]
    pub use super::futex_linux::*;
    #[cfg(loom)]
    pub use super::futex_loom::*;

    /// Why a wait ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Wait {
        /// Woken, or the word did not hold the expected value. In both cases the caller checks its condition again.
        Again,
        /// The deadline has passed.
        TimedOut,
        /// A signal handler ran.
        Interrupted,
    }

    /// The tasks that may wait on a word. (Public for the sealed trait behind `sharing`; not reachable.)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Sharing {
        /// Threads of this process only.
        Private,
        /// Every process that maps the word.
        Shared,
    }
}

/// Owning a 32-bit word, with inheritance of priority.
pub mod futex_pi {
    pub use super::futex_pi_calls::*;

    /// How a call ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Pi {
        /// Success: the word is owned, or released.
        Done,
        /// Nothing was changed; the state may have changed since.
        Again,
        /// The deadline has passed.
        TimedOut,
        /// The wait would complete a wait-for cycle.
        Deadlock,
        /// The word names no living task.
        OwnerGone,
        /// The calling task does not own the word, or the word names a task that no other may wait for.
        NotOwner,
        /// The word does not agree with the kernel's state. This happens for a moment after an owner's death.
        Inconsistent,
        /// The kernel has no memory.
        NoMemory,
        /// The kernel, or a sandbox, refuses the call.
        Unsupported,
    }
}
