//! The entries of the table: one semaphore, or the head of one queue, and its name.

use crate::atomic::AtomicU32;
use crate::queue::Head;
use crate::semaphore::object::Core;

/// A table entry for a semaphore; in use while there is one.
#[repr(C, align(64))]
pub(super) struct SemaphoreEntry {
    pub(super) core: Core,
    pub(super) name: AtomicU32,
}

impl SemaphoreEntry {
    pub(super) fn new() -> Self {
        Self {
            core: Core::new(),
            name: AtomicU32::new(0),
        }
    }
}

/// A table entry for a queue.
#[repr(C)]
pub(super) struct QueueEntry {
    pub(super) head: Head,
    pub(super) name: AtomicU32,
}

impl QueueEntry {
    pub(super) fn new() -> Self {
        Self {
            head: Head::new(),
            name: AtomicU32::new(0),
        }
    }
}
