//! The heap of a region: it survives a kill of any task at any instruction.
//!
//! **What it is.** An allocator in memory that many tasks (threads and processes) map at one address. A block is
//! *private* to the task that allocated it, and treated as [`OnDeath`] says when that task dies, until it is
//! *shared*: linked into a structure that outlives the task. The heap does not protect against hostile tasks, and is
//! not async-signal-safe: a signal handler must not call it (see [`TaskRef::new`]). Blocks are not zeroed.
//!
//! **Structure.** The data area is an array of 64 KiB *spans*. A table outside it has one state word for each span
//! (`state`: the table of states, and of the tasks that make each transition). A small span holds blocks of one size
//! class and belongs to one task; a large block is a run of spans. Three bitmaps give the state of a small span's
//! blocks:
//!
//! | alloc | shared | remote | the block is                                   | who sets and clears the bit |
//! | ----- | ------ | ------ | ---------------------------------------------- | -------------------- |
//! | 0     | 0      | 0      | free                                           | |
//! | 1     | 0      | 0      | allocated, private to the span's owner         | alloc: only the owner |
//! | 1     | 1      | 0      | allocated, shared                              | shared: any task sets, the owner clears |
//! | 1     | any    | 1      | freed by a task that is not the owner, or named by another task's intent | remote: other tasks set, the owner clears |
//! | 0     | any    | any    | free; the owner was killed while clearing the others | the recoverer clears them |
//!
//! **Invariants.**
//! 1. A span is claimed by one CAS from FREE, and only its owner (or the one recoverer of a dead owner) changes its
//!    state further.
//! 2. Only a span's owner (or its recoverer) writes `alloc`. So allocating and freeing are one plain store each, and
//!    that store is the commit: at every instruction a block is either allocated or free.
//! 3. A span with an allocated block is not released.
//! 4. All fields of a [`TaskHeap`] except the intent, of a descriptor except the bitmaps and the run, and of the
//!    header except `committed`, are caches or hints. Recovery derives everything from the table and the bitmaps. (A living
//!    owner trusts its own caches.)
//! 5. `Desc::cached` names a task only while the span is a small one of that task, which alone stores its identity there.
//!    Each path that takes a span out of its owner's cache stores 0 (`leave`) before the span changes hands. So the fast
//!    path of freeing needs no look at the table.
//! 6. A block that a live intent unlinks does not become free for reuse before the intent is cleared, whichever task
//!    frees it, so that "has it been freed?" has an answer at any time (`intent`).
//!
//! **Kills.** SIGKILL takes effect between two instructions and every earlier store remains, so only the compiler's
//! order matters: `step!` is placed between stores whose order recovery relies on. Between living tasks the usual
//! acquire and release orderings apply; each operation states them.
//!
//! **Cost.** Allocating a small block, and freeing one of the task's own: no lock, no atomic read-modify-write, no
//! division. Freeing another task's block: one read-modify-write on the bitmap, and at most one on the owner's hint.
//!
//! **Progress.** No operation waits for another task. A killed task can lose only hints: a span whose hint is lost is
//! found when its owner frees into it, when memory runs out, or when its owner dies.
//!
//! **Fork.** A child has no `TaskRef` until it has a slot of its own.
//!
//! **Checked by.** `tests`: every operation, and recovery, is killed at each point between two shared stores and then
//! recovered; random histories run against a model.

/// Marks a point between two shared stores whose order recovery does not rely on, so that the compiler may choose it.
/// In tests, a kill may occur here.
macro_rules! kill_point {
    () => {{
        #[cfg(test)]
        crate::region::heap::fault::point();
    }};
}

/// Keeps the compiler from moving a store across a point where recovery after a kill must find all earlier stores
/// done and no later one. In tests, a kill may occur here.
macro_rules! step {
    () => {{
        crate::atomic::compiler_fence(crate::atomic::Ordering::SeqCst);
        kill_point!();
    }};
}

mod blocks;
mod classes;
#[cfg(test)]
mod fault;
mod free;
mod free_spans;
mod handle;
mod intent;
mod large;
mod layout;
mod recover;
mod small;
mod state;
mod stats;
mod task;
#[cfg(test)]
mod tests;

use classes::{Bit, CLASSES, Class};
use handle::misuse;
use layout::Desc;
use state::{Kind, State};

pub use classes::FINGERPRINT;
pub use handle::{AllocError, Backing, GrowError, Heap, TaskHeaps};
pub use layout::{HeapLayout, SPAN_BYTES};
pub use recover::OnDeath;
pub use stats::{Corruption, HeapStats, HeapUse};
pub use task::{Owner, TaskHeap, TaskRef};
