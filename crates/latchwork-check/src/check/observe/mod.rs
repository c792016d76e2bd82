//! The events: what each report of a lock changes in the records, and which rules it may break.
//!
//! Each function here takes the calling thread's own state, which `observer.rs` has entered; the fast path alone enters
//! it itself.

pub(crate) mod acquire;
pub(crate) mod ended_threads;
pub(crate) mod fast_path;
pub(crate) mod lifetime;
pub(crate) mod lookup;
pub(crate) mod misuse;
pub(crate) mod release;
pub(crate) mod sleep;
