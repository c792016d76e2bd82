//! Waits for what nobody else can bring about.
//!
//! What has no owner may be brought about by anybody, and mostly nobody knows who that is. It is known where a process of
//! one thread and without children waits at a semaphore or a queue of an anonymous region that it has made itself, in
//! which there is no other task: a signal handler must not use what the interrupted code is using, and others have the
//! region's file only if it was sent to them, before any of them became a task.

use crate::hook::{Kind, Lock};
use crate::region;
use crate::sys::process;

/// Whether a wait without an end is one.
pub(super) fn is_for_nobody(object: Lock) -> bool {
    matches!(object.kind, Kind::Semaphore | Kind::Queue)
        && region::is_lone(object.address)
        && process::is_lone()
}
