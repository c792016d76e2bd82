//! The lowest layer of Latchwork's crates: system calls, atomics, time, and the registry of the models.
//!
//! Internal: a program uses [`latchwork`](https://crates.io/crates/latchwork). Only [`time`] is part of that crate's
//! interface; the rest is public for the crates above and may change in any version. A hidden function that could break
//! memory is `unsafe`; a safe one may still be of no use without the crates above.
//!
//! | module | what it is | what it may use |
//! | --- | --- | --- |
//! | `sys` | the only place that makes system calls: each module is one seam to the kernel or to libc, thin, without policy | `atomic`, `time`, `text` |
//! | `atomic` | the only place that names atomics: core's, or loom's | `model`, under loom |
//! | [`time`] | `Deadline`, absolute on CLOCK_MONOTONIC | `sys::clock` |
//! | `text` | text cut to whole characters | nothing |
//! | `model` | under loom: the scene of a model, its faults, tasks that die between two steps | `sys`, `atomic` |
#![cfg_attr(loom, allow(dead_code, reason = "models use a part"))]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "of hidden modules, for readers of the source"
)]
#![allow(missing_docs, reason = "internal, but for `time`")]

#[doc(hidden)]
pub mod atomic;
#[cfg(loom)]
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod sys;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod text;
pub mod time;

#[doc(hidden)]
pub use sys::fatal;
