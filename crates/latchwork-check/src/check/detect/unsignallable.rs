//! Waits for an event that no other task can signal.
//!
//! An object without an owner may be signalled by any task that can reach it, and usually the checker cannot know all
//! of them. It can in one case: a process of one thread and without children waits at a semaphore or a queue of an
//! anonymous region that it has created itself, and in which there is no other task. A signal handler must not use what
//! the interrupted code is using, and other processes have the region's file only if it was sent to them, before any of
//! them became a task.

use crate::hook::{Kind, Lock};
use crate::region;
use crate::sys::process;

/// Whether a wait without a deadline is such a wait.
pub(crate) fn is_unsignallable(object: Lock) -> bool {
    matches!(object.kind, Kind::Semaphore | Kind::Queue)
        && region::has_only_own_task(object.address())
        && process::is_single_threaded_and_childless()
}
