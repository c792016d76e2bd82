//! Synchronisation for tasks that share as much as they need.
#![doc = ""]

pub(crate) mod atomic;
#[cfg(not(loom))]
pub mod barrier;
pub mod completion;
pub mod condvar;
#[cfg(loom)]
pub mod model;
pub mod mutex;
#[cfg(not(loom))]
pub mod once;
#[cfg(not(loom))]
pub mod spin;
pub(crate) mod sleep;
pub mod sharing;
pub(crate) mod sys;
#[cfg_attr(loom, path = "task_loom.rs")]
pub(crate) mod task;
pub mod time;

#[cfg(not(loom))]
pub mod probe;
#[cfg(not(loom))]
pub mod coproc;
#[cfg(not(loom))]
pub mod queue;
#[cfg(loom)]
mod queue {
    pub(crate) mod sleepers;
}
#[cfg(not(loom))]
pub mod region;
#[cfg(loom)]
pub use model::region;

pub use task::TaskError;
pub(crate) use sys::fatal;
