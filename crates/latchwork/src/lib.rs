//! Synchronisation for tasks that share as much as they need.
#![doc = ""]

pub(crate) mod atomic;
pub mod mutex;
pub mod sharing;
pub(crate) mod sys;
#[cfg(not(loom))]
pub(crate) mod task;
pub mod time;

#[cfg(not(loom))]
pub mod region;

#[cfg(not(loom))]
pub use task::TaskError;
pub(crate) use sys::fatal;
