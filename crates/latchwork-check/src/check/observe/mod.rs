//! The events: what each report of a lock changes in the records, and which rules it may break.
//!
//! Each function here takes the calling thread's own state, which `observer.rs` has entered; the fast path alone enters
//! it itself.
//!
//! | event | file |
//! | --- | --- |
//! | a known lock is acquired or released, and nothing about it is new | `fast_path.rs` |
//! | a lock is wanted, waited for, acquired | `acquire.rs` |
//! | a lock is released | `release.rs` |
//! | a task waits for a condition, a count, a queue | `sleep.rs` |
//! | a lock is initialised, named, destroyed, freed | `lifetime.rs` |
//! | a foreign lock was reinitialised without a call | `reinitialised.rs` |
//! | a call was refused; memory that is used as a lock is none | `misuse.rs`, `no_lock.rs` |
//! | a call for a foreign object fails, or is made in the wrong state | `foreign_objects.rs` |
//! | a thread ends with locks held | `thread_end.rs`, `ended_threads.rs` |

pub(crate) mod acquire;
pub(crate) mod ended_threads;
pub(crate) mod fast_path;
pub(crate) mod foreign_objects;
pub(crate) mod lifetime;
pub(crate) mod lookup;
pub(crate) mod misuse;
pub(crate) mod no_lock;
pub(crate) mod reinitialised;
pub(crate) mod release;
pub(crate) mod sleep;
pub(crate) mod thread_end;
