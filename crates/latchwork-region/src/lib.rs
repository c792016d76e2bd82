//! Latchwork's regions: shared memory that is mapped at one address in every task, with a heap, named objects, and
//! containers with real pointers, all of which survive the death of any task at any instruction.
//!
//! A program uses [`latchwork`](https://crates.io/crates/latchwork), which re-exports [`region`]; the derives write
//! that crate's paths.
//!
//! ```
//! use latchwork::mutex::Mutex;
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(16 << 20).create_anonymous()?;
//! let hits = region.object("hits", || Mutex::robust(0u64))?;
//! *hits.lock()? += 1;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *May use:* `latchwork-sync` (locks, a task's record) and `latchwork-sys`. Queues, semaphores, events, coprocs and
//! the checker stand above: what they need of a region is public and hidden here, and may change in any version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "of hidden modules, for readers of the source"
)]

#[cfg(loom)]
#[doc(hidden)]
pub mod model;
#[cfg(not(loom))]
pub mod region;
#[cfg(loom)]
#[doc(hidden)]
#[allow(dead_code, unsafe_code, reason = "models use a part")]
pub mod region {
    pub mod events;
    pub mod wait_record;
    pub use wait_record::Parked;
}

#[allow(unused_imports, reason = "each file names them by `crate::`")]
use latchwork_sync::{
    backoff, completion, condvar, edit, hook, mutex, relocatable, rwlock, sharing, sleep, task,
    time, torn_safe,
};
#[allow(unused_imports, reason = "each file names them by `crate::`")]
use latchwork_sys::{atomic, fatal, sys};
#[cfg(not(loom))]
#[allow(unused_imports, reason = "each file names them by `crate::`")]
use {
    latchwork_sync::{barrier, once, spin},
    latchwork_sys::text,
};
