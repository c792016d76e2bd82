//! The locks that protect a region's own tables.

use super::{Snapshot, TaskReport, TaskState};
use crate::atomic::Ordering;
use crate::mutex::{InRegion, Robust};
use crate::region::AttachError;
use crate::region::header::Header;
use crate::region::heap::Owner;
use crate::region::task_table::{Life, life_of};

/// One of the locks that protect a region's own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockReport {
    /// What it protects: `grow`, `sweep` or `names`.
    pub name: &'static str,
    /// Its owner, if any.
    pub state: LockState,
}

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockState {
    /// No owner.
    Free,
    /// A thread holds it.
    Held {
        /// The thread's ID.
        thread: u32,
    },
    /// A task died while holding it; the next owner repairs the protected data.
    OwnerDied,
}

impl LockReport {
    pub(super) fn new(name: &'static str, lock: &Robust) -> Self {
        // Relaxed: a copy in our own memory.
        let state = match life_of(lock.node().word.load(Ordering::Relaxed)) {
            Life::Free => LockState::Free,
            Life::Alive(thread) => LockState::Held { thread },
            Life::Dead => LockState::OwnerDied,
        };
        Self { name, state }
    }
}

impl Snapshot {
    /// The state of a lock of the header whose word names a task.
    pub(super) fn region_lock(
        &self,
        name: &'static str,
        lock: impl Fn(&Header) -> &InRegion,
    ) -> Result<LockReport, AttachError> {
        let mut header = self.read::<Header>(0)?;
        // The owner may leave after the lock was read. A lock that changes hands as often as it is read is free at times.
        let mut state = LockState::Free;
        for _ in 0..4 {
            let Some(owner) = Owner::from_raw(lock(&header).owner()) else {
                if lock(&header).is_free_and_torn() {
                    state = LockState::OwnerDied;
                }
                break;
            };
            let is_slot = owner.slot() < self.identity.max_tasks;
            let found = is_slot.then(|| self.task(owner.slot())).transpose()?;
            let is_alive = |task: &TaskReport| {
                task.generation == owner.generation() && task.state != TaskState::Unswept
            };
            if let Some(task) = found.flatten().filter(is_alive) {
                let thread = task.thread;
                state = LockState::Held { thread };
                break;
            }
            header = self.read::<Header>(0)?;
            // The same owner, which no longer lived in between.
            if lock(&header).owner() == owner.raw() {
                state = LockState::OwnerDied;
                break;
            }
        }
        Ok(LockReport { name, state })
    }
}
