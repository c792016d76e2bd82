//! Synchronisation for tasks that share as much as they need.
#![doc = ""]

pub(crate) mod atomic;
#[cfg(not(loom))]
pub mod barrier;
#[cfg(not(loom))]
pub mod completion;
pub mod condvar;
pub mod mutex;
#[cfg(not(loom))]
pub mod once;
#[cfg(not(loom))]
pub mod spin;
pub(crate) mod sleep;
pub mod sharing;
pub(crate) mod sys;
#[cfg(not(loom))]
pub(crate) mod task;
pub mod time;

#[cfg(not(loom))]
pub mod queue;
#[cfg(not(loom))]
pub mod region;

#[cfg(not(loom))]
pub use task::TaskError;
pub(crate) use sys::fatal;
