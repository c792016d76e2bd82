//! Semaphores of a region, with RTEMS's semantics: counting, simple binary, and binary with an owner.
//!
//! Source: the semaphore manager of RTEMS's classic API. They work between threads and between processes alike; a
//! region of one process serves plain threads.
//!
//! | semaphore | owner | nests | priorities | created by |
//! | --- | --- | --- | --- | --- |
//! | counting | none: any task may release | – | waiters are served by priority, if asked for | [`CountingSemaphore::create`] |
//! | simple binary | none | – | the same | [`SimpleBinarySemaphore::create`] |
//! | binary | the task that obtained it | yes | the same | [`BinarySemaphore::create`] |
//! | with a ceiling | the same | yes | the owner has at least the ceiling | [`BinaryOptions::ceiling`] |
//! | inheriting | the same | yes | the owner has at least the priority of its best waiter, through any chain of owners | [`BinaryOptions::inherit`] |
//! | a mutex with data | the same | no | the owner inherits, or has a ceiling; waiters are served by priority | [`PriorityMutex::create`] |
//! | MrsP | the same | no | the owner and the waiters have the ceilings of their CPUs, and waiters lend the owner their CPUs | [`MrspSemaphore::create`] |
//!
//! All of them serve waiters first come, first served, or by priority ([`Discipline`]). A release hands the semaphore
//! to the first waiter, so no later task can be faster, and a wait is bounded by the waiters before it. The price is a
//! context switch for each hand-over while tasks wait, as with System V's semaphores; POSIX semaphores let any newcomer
//! take what was released, and promise no order. A deadline, a flush and a deletion end waits. (MrsP semaphores serve in
//! order of arrival, and have no flush.)
//!
//! *Before it queues,* a task polls the semaphore, and gets it if it becomes free while no task waits. It polls for
//! some tens of microseconds, and for at most a millisecond or until its deadline; for about a microsecond if its
//! priority is not the lowest, or if the owner should have its priority. While another task waits, polling cannot
//! succeed. (Tasks do not poll MrsP semaphores.) The statements about order, deadlock and inheritance hold for tasks in
//! the queue: of two tasks of the lowest priority, the later one may queue first. *Rejected:* queueing at once because
//! another task waits already: where many tasks share few CPUs, most tasks then queue most of the time, and each
//! hand-over costs a context switch.
//!
//! ```
//! use latchwork::region::RegionOptions;
//! use latchwork::semaphore::{
//!     BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, SimpleBinarySemaphore,
//! };
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let slots = CountingSemaphore::create(&region, "slots", 3, Discipline::Fifo)?;
//! slots.obtain()?;
//! slots.release()?;
//!
//! // Any task may release it, and a release of a released one is no error.
//! let ready = SimpleBinarySemaphore::create(&region, "ready", 0, Discipline::Priority)?;
//! ready.release()?;
//! ready.obtain()?;
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
//! | a task that dies | then |
//! | --- | --- |
//! | an owner | the next owner gets the semaphore, and [gets a report](Held::owner_died) |
//! | a waiter | is skipped, and its priority is no longer inherited |
//! | any task, in mid-operation | the operation has taken effect or not (a flush has ended some waits or all); the next task to take the lock repairs the rest, a waiter at once, or in a busy region some milliseconds later |
//! | a task that had obtained a unit of a count | the unit is lost: no record says which task has it |
//!
//! *Orderings:* what a task did before a release is visible to the task that obtains what was released. *Progress:* an
//! operation that need not wait is one compare-and-swap; otherwise it takes the object's own region lock. The only
//! other locks are those in the slot of each task whose priority or processors are recomputed. *Signal handlers* must
//! not use any semaphore if the interrupted code may be in a call on one, also on another one, or in a directive of
//! [`crate::classic`]: a task has one record of its waits, and the handler's call may reset it, after which the
//! interrupted wait aborts the process. *Fork:* the child is a task of its own, and owns nothing; dropping a [`Held`]
//! that it has inherited does nothing there. *Threads* that end while they own a semaphore count as dead; but
//! a [`PriorityMutex`], whose data they may have lent, stays their process's. (Dropping its guard in the child of a fork
//! aborts.)
//!
//! *Checked by:* `tests/loom_semaphore.rs` (the word and the queue, one to three tasks, deadlines, deadlocks; negative
//! twins), `tests/semaphore`, `tests/classic`, and `tests/kill_semaphore`.
#![allow(unsafe_code)]

#[cfg(not(loom))]
mod binary;
#[cfg(not(loom))]
pub(crate) mod content;
#[cfg(not(loom))]
mod count_handles;
pub(crate) mod counting;
mod deadlock;
mod error;
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
pub mod priority_mutex;
#[cfg(not(loom))]
mod report;
#[cfg(not(loom))]
mod task;
mod task_table;
mod wait;
mod wait_queue;

pub use error::ReleaseError;
pub use object::Discipline;
#[cfg(not(loom))]
pub use {
    binary::{BinaryOptions, BinarySemaphore, Held},
    count_handles::{CountingSemaphore, SimpleBinarySemaphore},
    error::{ObtainError, SemaphoreError, UseError},
    mrsp::{Helping, MrspHeld, MrspSemaphore},
    priority_mutex::{PriorityGuard, PriorityMutex, PriorityMutexOptions},
    task::{MirrorError, NoSuchTask, Priority, TaskPriority},
};

pub(crate) use error::Refusal;
pub(crate) use object::{Core, Form, Kind};
pub(crate) use owned::Obtained;
pub(crate) use task_table::{Access, Caller, TaskTable};
pub(crate) use wait::WaitLimit;
pub(crate) use wait_queue::{Locked, Wake};

#[cfg(loom)]
use crate::mutex::in_region::NotATask as AttachError;
#[cfg(not(loom))]
use crate::region::AttachError;
