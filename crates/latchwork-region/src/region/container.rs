//! What all containers have in common: the heap of their region, their words, and what keeps the region mapped.
//!
//! A container contains its region's ID (see [`region_id`](super::region_id)) and no handle, which would mean nothing
//! to another process. So each operation that needs the heap finds the calling thread's attachment by the ID; that is
//! one comparison for a thread that uses one region.
//!
//! **Blocks and links.** Until a block is linked, it is private to the task that allocated it, and freed if the task
//! dies. If the word that links it lies in the region, the heap's intent record makes linking and sharing one step.
//! If the word lies elsewhere (in a container that is still on a task's stack), no task could read it after the
//! task's death: then the block is shared first, and a kill before the container has reached the region leaks it.
//! This is unavoidable: a container moves into the region by a plain copy, of which the heap is not informed, so its
//! blocks must be safe to find at any moment.
//!
//! **Outside.** By such a plain copy a container can also get onto a stack, or into another region than its own, and
//! its region may be unmapped first. So each method first takes a [guard](Anchor::guard) of the mapping, which costs
//! nothing if the container lies in its region. A method that returns a reference into the container's block
//! [keeps the region mapped](Anchor::keep_mapped) until the block is freed. If the region is not mapped, both panic.

mod anchor;
mod borrowed;
mod editor;
mod heap;

pub(super) use super::word::{address, commit, drop_part, pointer, read};
pub(super) use anchor::Anchor;
pub(super) use editor::{editor, forward};
pub(super) use heap::{add, settle, unlink_and_free, with_heap};
