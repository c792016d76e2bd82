//! The locks that protect a region's own tables.

use crate::mutex::InRegion;
use crate::region::AttachError;
use crate::region::header::Header;
use crate::region::heap::Owner;
use core::ops::Deref;

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
    /// The state of a lock of the header whose word names a task. `read` reads the header, and `living_thread` returns the
    /// thread of a task, if that is alive.
    pub(super) fn of_task<H: Deref<Target = Header>>(
        name: &'static str,
        lock: impl Fn(&Header) -> &InRegion,
        read: impl Fn() -> Result<H, AttachError>,
        living_thread: impl Fn(Owner) -> Result<Option<u32>, AttachError>,
    ) -> Result<Self, AttachError> {
        let mut header = read()?;
        // The owner may leave after the lock was read. A lock that changes hands as often as it is read is free at times.
        let mut state = LockState::Free;
        for _ in 0..4 {
            let Some(owner) = Owner::from_raw(lock(&header).owner()) else {
                if lock(&header).is_free_and_torn() {
                    state = LockState::OwnerDied;
                }
                break;
            };
            if let Some(thread) = living_thread(owner)? {
                state = LockState::Held { thread };
                break;
            }
            header = read()?;
            // The same owner, which no longer lived in between.
            if lock(&header).owner() == owner.raw() {
                state = LockState::OwnerDied;
                break;
            }
        }
        Ok(Self { name, state })
    }
}
