//! Latchwork's checker: it observes locks, and reports deadlocks, lock orders that can lead to one, misuse, and
//! priority inversions.
//!
//! A program uses [`latchwork`](https://crates.io/crates/latchwork), which re-exports [`check`]: one lock is checked by
//! its type ([`check::Checked`]), all locks of a program by that crate's feature `check`, a program that is not
//! recompiled by `latchwork run --check`.
//!
//! *May use:* `latchwork-region` (tasks' records in their slots), `latchwork-sync` (the trait `Observer`, by which
//! locks report) and `latchwork-sys`. It knows no queue, semaphore or coproc: they report as locks do.
#![cfg_attr(loom, allow(dead_code, reason = "models use a part"))]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "of hidden modules, for readers of the source"
)]

#[cfg(not(loom))]
pub mod check;
#[cfg(loom)]
#[doc(hidden)]
pub mod model;

#[cfg(not(loom))]
#[allow(unused_imports, reason = "each file names them by `crate::`")]
use {latchwork_region::region, latchwork_sync::spin, latchwork_sys::text};
#[allow(unused_imports, reason = "each file names them by `crate::`")]
use {
    latchwork_sync::{backoff, condvar, hook, mutex, rwlock, sharing, sleep, task, time},
    latchwork_sys::{atomic, fatal, sys},
};
