//! Synchronisation for Linux tasks that share as much as they need: threads, and processes that share a chosen memory
//! region at one address.
//!
//! | to | use |
//! | --- | --- |
//! | protect data | [`mutex::Mutex`], with [`WaitWake`](mutex::WaitWake), [`Throughput`](mutex::Throughput), [`Inherit`](mutex::Inherit), [`Protect`](mutex::Protect), [`Robust`](mutex::Robust), [`InRegion`](mutex::InRegion) or [`Spin`](spin::Spin); in a region, by recorded priorities, [`semaphore::PriorityMutex`] |
//! | protect data that is mostly read | [`rwlock::RwLock`], [`rwlock::RobustRwLock`], [`rwlock::RegionRwLock`] |
//! | wait for a change | [`condvar::Condvar`], [`completion::Completion`], [`barrier::Barrier`], [`once::Once`], [`once::RegionOnce`] |
//! | share memory | [`region::Region`], with a heap, named objects, and containers with real pointers |
//! | count, hand over and exclude by RTEMS's rules | [`semaphore::CountingSemaphore`], [`SimpleBinarySemaphore`](semaphore::SimpleBinarySemaphore), [`BinarySemaphore`](semaphore::BinarySemaphore), [`MrspSemaphore`](semaphore::MrspSemaphore), [`classic::Classic`] |
//! | pass messages | [`queue::Queue`]; between exactly two tasks, [`queue::spsc::Spsc`] |
//! | report to a task that something has happened | [`event::Events`] |
//! | port code that calls RTEMS | [`classic`] |
//! | start processes like threads | [`coproc::Coprocs`] |
//! | detect misuse, deadlocks and lock-order inversions | [`check::Checked`] |
//! | learn what the system offers | [`probe::Features`] |
//!
//! Any task may be killed at any instruction. A lock that it held reports the death to the next owner. A heap operation
//! that it had begun is finished or undone. A message that it was sending is invisible, one that it was receiving is
//! delivered again, and memory that only it knew of is freed.
//!
//! ```
//! use latchwork::mutex::{LockError, Mutex, Robust};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(16 << 20).create_anonymous()?;
//! let hits = region.object("hits", || Mutex::robust(0u64))?;
//! // In this process or in any other that has the region:
//! match hits.lock() {
//!     Ok(mut hits) => *hits += 1,
//!     Err(LockError::OwnerDied(died)) => *died.make_consistent() += 1,
//!     Err(error) => panic!("{error}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `check` | all mutexes and reader/writer locks of the program are [checked](check), as if each was [`Checked`](check::Checked) |
//! | `foreign` | nothing for programs: the parts from which the C interface and the interposer are built |
//!
//! # What holds everywhere
//!
//! - Deadlines are absolute on CLOCK_MONOTONIC ([`time::Deadline`]); the `…_for` methods compute one.
//! - Misuse that would corrupt memory or hang silently aborts the process with one line on standard error.
//! - No lock operation allocates or unwinds.
//! - Linux ≥ 5.10, glibc ≥ 2.34, 64 bits. x86-64 is tested; on aarch64 a part of the tests has run, in an emulator.
#![cfg_attr(loom, allow(dead_code, reason = "models use a part"))]

#[cfg(not(loom))]
pub mod classic;
#[cfg(not(loom))]
pub mod coproc;
#[cfg(not(loom))]
pub mod event;
#[cfg(loom)]
pub mod model;
#[cfg(not(loom))]
pub mod probe;
#[cfg(not(loom))]
pub mod queue;
#[cfg(loom)]
mod queue {
    pub(crate) mod lane;
    mod line;
    pub(crate) mod places;
    pub(crate) mod ring;
    pub(crate) mod sleepers;
}
pub mod semaphore;

/// What the C interface is made of.
#[cfg(all(feature = "foreign", not(loom)))]
#[doc(hidden)]
pub mod foreign {
    pub use crate::region::foreign::*;
    pub use latchwork_sync::foreign::*;
}

#[cfg(not(loom))]
#[doc(inline)]
pub use latchwork_check::check;
#[doc(inline)]
pub use latchwork_region::region;
pub use latchwork_sync::TaskError;
#[cfg(not(loom))]
#[doc(inline)]
pub use latchwork_sync::{barrier, once, spin};
#[doc(inline)]
pub use latchwork_sync::{completion, condvar, mutex, rwlock, sharing, time};
#[cfg(loom)]
#[doc(hidden)]
pub use latchwork_sys::negative_twin;
/// For the benchmark: what the calling thread's lock calls have done.
#[cfg(not(loom))]
#[doc(hidden)]
pub use latchwork_sys::sys::slow_paths::SlowPaths;

#[allow(unused_imports, reason = "each file names them by `crate::`")]
use latchwork_sync::{backoff, hook, sleep, task, torn_safe};
#[cfg(not(loom))]
use latchwork_sys::text;
#[allow(unused_imports, reason = "each file names them by `crate::`")]
use latchwork_sys::{atomic, fatal, sys};

/// The guide's examples compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;

/// The example of the guide for containers compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/containers.md")]
struct Containers;

/// The examples of the guide to least privilege compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/least-privilege.md")]
struct LeastPrivilege;

/// The example of the guide to the locks compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/which-lock.md")]
struct WhichLock;

/// The mark in the guide to `latchwork crashtest` compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/crashtest.md")]
struct Crashtest;

/// The examples of the guide to migration compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/migration.md")]
struct Migration;
