//! Latchwork's locks, for a program that needs nothing else: mutexes, reader/writer locks, condition variables,
//! completions, barriers, for threads and for processes that share memory.
//!
//! [`latchwork`](https://crates.io/crates/latchwork) re-exports all of it under the same paths. A program that also uses
//! regions, queues or coprocs depends on that crate alone.
//!
//! | to | use |
//! | --- | --- |
//! | protect data | [`mutex::Mutex`], with [`WaitWake`](mutex::WaitWake), [`Throughput`](mutex::Throughput), [`Inherit`](mutex::Inherit), [`Protect`](mutex::Protect), [`Robust`](mutex::Robust), [`InRegion`](mutex::InRegion) or [`Spin`](spin::Spin) |
//! | protect data that is mostly read | [`rwlock::RwLock`], [`rwlock::RobustRwLock`], [`rwlock::RegionRwLock`] |
//! | wait for a change | [`condvar::Condvar`], [`completion::Completion`], [`barrier::Barrier`], [`once::Once`], [`once::RegionOnce`] |
//! | let threads or processes use a lock | [`sharing::Private`], [`sharing::Shared`] |
//! | bound a wait | [`time::Deadline`] |
//!
//! ```
//! use latchwork::mutex::Mutex;
//!
//! static HITS: Mutex<u64> = Mutex::new(0);
//! *HITS.lock() += 1;
//! assert_eq!(*HITS.lock(), 1);
//! ```
//!
//! *May use:* `latchwork-sys` (system calls, atomics, time). It knows no region and no checker: a region that has to be
//! swept after a death, and a checker to which locks report, register themselves (`sleep`, `task`, `hook`). Modules
//! that are hidden here are for the crates above, and may change in any version.
#![cfg_attr(loom, allow(dead_code, reason = "models use a part"))]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "of hidden modules, for readers of the source"
)]

mod adoption;
#[doc(hidden)]
pub mod backoff;
#[cfg(not(loom))]
pub mod barrier;
pub mod completion;
pub mod condvar;
#[doc(hidden)]
pub mod edit;
#[cfg(all(feature = "foreign", not(loom)))]
#[doc(hidden)]
pub mod foreign;
#[doc(hidden)]
pub mod hook;
#[cfg(loom)]
#[doc(hidden)]
pub mod model;
pub mod mutex;
#[cfg(not(loom))]
pub mod once;
#[doc(hidden)]
pub mod relocatable;
pub mod rwlock;
pub mod sharing;
#[doc(hidden)]
pub mod sleep;
#[cfg(not(loom))]
pub mod spin;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod task;
#[doc(hidden)]
pub mod torn_safe;

pub use edit::Edit;
#[doc(inline)]
pub use latchwork_sys::time;
pub use relocatable::Relocatable;
pub use task::TaskError;
pub use torn_safe::TornSafe;

#[cfg(loom)]
#[doc(hidden)]
pub use latchwork_sys::model::task;
#[allow(unused_imports, reason = "each file names them by `crate::`")]
use latchwork_sys::{atomic, fatal, sys};

/// The example of the crate's page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
