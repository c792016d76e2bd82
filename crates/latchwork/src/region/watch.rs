//! What co-processes need to know of a region: other tasks' lives, and what must stay open.
#![allow(unsafe_code)]

use super::heap::Owner;
use super::names::READY;
use super::task_table::Life;
use super::{Inner, REGISTRY, Region, Shareable, Task};
use crate::atomic::{AtomicU32, Ordering};
use core::ptr;
use rustix::fd::{AsRawFd, RawFd};

impl Inner {
    /// The life-word of a task and what it holds now; `None` once the task is gone.
    pub(crate) fn life_word(&self, task: Owner) -> Option<(&AtomicU32, u32)> {
        let word = self.slots().get(usize::from(task.slot()))?.life_word();
        // Before the look at the generation: a change after this load is seen by who waits with it.
        // Acquire: pairs with the Release that ends a life.
        let value = word.load(Ordering::Acquire);
        self.is_alive(task).then_some((word, value))
    }

    /// Whether the calling process has other tasks in this region.
    pub(crate) fn has_fellows(&self, task: Task<'_>) -> bool {
        // Relaxed: a task's process never changes; a fellow that attaches meanwhile is the user's.
        let process = task.slot.process.load(Ordering::Relaxed);
        let used = self.header().slots_used.load(Ordering::Acquire) as usize;
        let mut others = self.slots()[..used]
            .iter()
            .filter(|slot| !ptr::eq(*slot, task.slot));
        others.any(|slot| {
            slot.process.load(Ordering::Relaxed) == process && matches!(slot.life(), Life::Alive(_))
        })
    }
}

impl Region {
    /// Whether `value` is a whole named object, which nobody frees while the region is in use.
    pub(crate) fn is_object<T: Shareable>(&self, value: &T) -> bool {
        let address = ptr::from_ref(value).addr();
        // Acquire: pairs with the Release of `ready`. Without the directory's lock: an entry that
        // changes is not that of an object that the caller has a reference to.
        self.inner().entries().iter().any(|entry| {
            entry.state.load(Ordering::Acquire) == READY
                && entry.object.load(Ordering::Relaxed) == address
                && entry.fingerprint.load(Ordering::Relaxed) == T::FINGERPRINT
                && entry.bytes.load(Ordering::Relaxed) == size_of::<T>() as u64
        })
    }
}

/// The files of all regions that this process has mapped.
///
/// # Safety
/// Nobody drops a region meanwhile.
pub(crate) unsafe fn files() -> impl Iterator<Item = RawFd> {
    REGISTRY.iter().filter_map(|place| {
        // Acquire: pairs with the Release of `register`.
        let inner = ptr::NonNull::new(place.load(Ordering::Acquire))?;
        // SAFETY: registered, and by the contract not dropped meanwhile.
        Some(unsafe { inner.as_ref() }.file.as_raw_fd())
    })
}
