//! Semaphores of a region, with RTEMS's semantics: counting, simple binary, and binary with an owner.
//!
//! Source: the semaphore manager of RTEMS's classic API. Between threads and between processes alike; a
//! region of one process serves plain threads.
//!
//! | semaphore | owner | nests | priorities | made by |
//! | --- | --- | --- | --- | --- |
//! | counting | none: any task may release | – | of who waits, if asked for | [`CountingSemaphore::create`] |
//! | simple binary | none | – | the same | [`SimpleBinarySemaphore::create`] |
//! | binary | who obtained it | yes | the same | [`BinarySemaphore::create`] |
//! | with a ceiling | the same | yes | the owner has the ceiling at least | [`BinaryOptions::ceiling`] |
//! | inheriting | the same | yes | the owner has that of the best who waits, through any chain of owners | [`BinaryOptions::inherit`] |
//! | MrsP | the same | no | who owns it and who waits has the ceiling of its processor, and waiters lend theirs | [`MrspSemaphore::create`] |
//!
//! All of them: first come, first served, or the highest priority first ([`Discipline`]); what is released
//! is handed to the first who waits, so nobody who comes later can be faster, and a wait is bounded by those
//! who stand before; a deadline, a flush and a deletion end waits. (MrsP semaphores: in order of arrival, and no
//! flush.)
//!
//! *Before the queue* a task looks at the semaphore, and gets it if it becomes free and nobody waits: for some tens of
//! microseconds, at most for a millisecond or its deadline; about a microsecond if it has a priority other than the lowest,
//! or the owner is to have its own. Where somebody waits already, it cannot get it so. (MrsP semaphores: not at all.)
//! What is said of order, of circles and of inheritance is said of tasks in the queue: of two of the lowest priority
//! the later may queue first. *Rejected:* to queue at once because somebody waits already: where many tasks share few
//! processors, most then queue most of the time, and each hand-over costs a switch of tasks.
//!
//! ```
//! use latchwork::region::RegionOptions;
//! use latchwork::semaphore::{BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline};
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let slots = CountingSemaphore::create(&region, "slots", 3, Discipline::Fifo)?;
//! slots.obtain()?;
//! slots.release()?;
//!
//! let bus = BinarySemaphore::create(&region, "bus", &BinaryOptions::new().inherit())?;
//! let held = bus.obtain()?;
//! assert!(!held.owner_died());
//! drop(held);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When tasks die
//!
//! | who | then |
//! | --- | --- |
//! | an owner | the next one gets the semaphore, and [is told](Held::owner_died) |
//! | who waits | is skipped, and its priority inherited no more |
//! | anybody, in mid-operation | the operation has taken effect or not (a flush: some are sent away or all); the next one puts the rest right |
//! | who had obtained a unit of a count | the unit is gone: nobody knows who has it |
//!
//! # Where things are
//!
//! | file | what |
//! | --- | --- |
//! | `object.rs` | the object: its word, and what lies under its lock |
//! | `wait_queue.rs` | the queue, and how it is linked anew |
//! | `wait.rs` | how a wait begins and ends, and why no wake-up is lost |
//! | `counting.rs` | what has a count |
//! | `owned.rs` | what has an owner; what a kill between any two steps leaves |
//! | `chain.rs` | circles of waits |
//! | `priority.rs` | the priority that counts: ceilings, inheritance |
//! | `mrsp.rs` `mrsp/` | ceilings of processors, and waiters that lend theirs |
//! | `ground.rs` | what the above needs of a region |
//! | `handle.rs` `count_handles.rs` `binary.rs` `task.rs` | the interface |
//! | `watched.rs` | what the checker is told, on paths that are slow anyway |
//! | `inspect.rs` | what is seen from outside |
//!
//! *Orderings:* what a task did before a release is seen by whoever obtains what was released. *Progress:*
//! an operation that need not wait is one compare-and-swap, else it takes the object's own robust lock;
//! there is no other lock but a small one for each task whose priority is worked out. *Signal handlers* must not
//! use a semaphore that the code they interrupt may be using. *Fork:* the child is a task of its own, and owns
//! nothing; a [`Held`] that it has inherited does nothing there.
//! *Threads* that end while they own a semaphore count as dead.
//!
//! *Checked by:* `tests/loom_semaphore.rs` (the word and the queue, one to three tasks, deadlines, circles;
//! negative twins), `tests/semaphore`, `tests/classic`, and
//! `tests/kill_semaphore`.
#![allow(unsafe_code)]

#[cfg(not(loom))]
mod binary;
pub(crate) mod chain;
#[cfg(not(loom))]
mod count_handles;
pub(crate) mod counting;
mod error;
pub(crate) mod ground;
#[cfg(not(loom))]
pub(crate) mod handle;
#[cfg(not(loom))]
pub mod inspect;
#[cfg(not(loom))]
pub(crate) mod mrsp;
pub(crate) mod object;
pub(crate) mod owned;
pub(crate) mod priority;
#[cfg(not(loom))]
mod task;
pub(crate) mod wait;
pub(crate) mod wait_queue;
#[cfg(not(loom))]
mod watched;

#[cfg(not(loom))]
pub use binary::{BinaryOptions, BinarySemaphore, Held};
#[cfg(not(loom))]
pub use count_handles::{CountingSemaphore, SimpleBinarySemaphore};
#[cfg(not(loom))]
pub use error::{ObtainError, ReleaseError, SemaphoreError, UseError};
pub(crate) use error::{Refusal, ReleaseRefusal};
#[cfg(not(loom))]
pub use mrsp::{Helping, MrspHeld, MrspSemaphore};
pub use object::Discipline;
#[cfg(not(loom))]
pub use task::{NoSuchTask, Priority};

use crate::atomic::AtomicU32;
use crate::sys::futex::{self, Sharing};
use object::Core;

/// A wake-up to be carried out, for one task, which may be gone by then.
#[must_use]
pub(crate) struct Wake(*const AtomicU32);

impl Wake {
    /// Nobody is to be woken.
    pub(crate) const NONE: Self = Self(core::ptr::null());

    fn of(word: &AtomicU32) -> Self {
        Self(word)
    }

    pub(crate) fn carry_out(self) {
        if !self.0.is_null() {
            futex::wake(self.0, 1, Sharing::Shared);
        }
    }
}

/// The semaphore that lies at an address that a record or another semaphore names.
///
/// # Safety
/// There is one. It is never moved or freed while the region is mapped, so it may be deleted by now, but is
/// still one.
unsafe fn core_at<'a>(address: u64) -> &'a Core {
    // SAFETY: by the caller's contract.
    unsafe { &*core::ptr::with_exposed_provenance(address as usize) }
}
