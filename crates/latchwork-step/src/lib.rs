//! Single-stepping: a traced task that is run to any instruction of an operation.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`Task`] | a traced task that is stopped: its registers and its code |
//! | [`Recording`], [`Place`] | which instructions an operation executes, and each execution as a place |
//! | [`step_through`], [`run_to`], [`step_to`] | a walk through the operation, or to a place in it |
//! | [`Mark`] | where an operation of any program says that it begins and ends |
//! | [`Pinned`] | tracer and traced on one processor |
//!
//! How a task's stops are awaited is up to the caller ([`Stepped`]): the tests of the library know the one child that
//! they have forked, and `latchwork crashtest` has a program of any number of processes and threads.
//!
//! A kill inside a system call has the effect of a kill before or after it, unless the call sleeps. On aarch64 the
//! instructions from a load-exclusive to its store-exclusive are one point (`sequence.rs`). A call into the vDSO belongs to
//! the instruction that makes it (`vdso.rs`).

mod mark;
mod pinned;
mod place;
mod sequence;
mod task;
mod vdso;
mod walk;

pub use mark::{MAGIC, Mark};
pub use pinned::Pinned;
pub use place::{Place, Recording};
pub use task::{Call, Resume, Task};
pub use walk::{ENDLESS, Stepped, run_to, step_through, step_to};
