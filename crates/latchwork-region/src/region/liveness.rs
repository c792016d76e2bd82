//! Information that coprocs need about a region: whether other tasks are alive, and which files must stay open.
#![allow(unsafe_code)]

use super::heap::Owner;
use super::names::READY;
use super::task_table::{Life, Slot};
use super::{Inner, Region, Shareable, Task, registry};
use crate::atomic::{AtomicU32, Ordering};
use crate::task::Me;
use core::ptr;
use rustix::fd::{AsRawFd, RawFd};

impl Inner {
    /// The life-word of a task and its current value; `None` once the task is gone.
    pub fn life_word(&self, task: Owner) -> Option<(&AtomicU32, u32)> {
        let word = self.slots().get(usize::from(task.slot()))?.life_word();
        // Before the check of the generation: a later change of the word wakes a task that waits with this value.
        // Acquire: pairs with the Release that ends a life.
        let value = word.load(Ordering::Acquire);
        self.is_alive(task).then_some((word, value))
    }

    /// Whether the calling process may have other tasks in this region.
    pub fn process_has_other_tasks(&self, task: Task<'_>) -> bool {
        // The fast path: the usual coproc has none.
        if !task.slot.may_share_process() {
            return false;
        }
        // Relaxed: a task's process never changes; the user is responsible for a thread that attaches meanwhile.
        let process = task.slot.process.load(Ordering::Relaxed);
        let mut others = self
            .used_slots()
            .iter()
            .filter(|slot| !ptr::eq(*slot, task.slot));
        others.any(|slot| {
            slot.process.load(Ordering::Relaxed) == process && matches!(slot.life(), Life::Alive(_))
        })
    }
}

/// Whether the calling thread, which is `me`, has messages of any region in flight.
pub fn has_messages(me: Me) -> bool {
    me.attachments().any(|attachment| {
        // SAFETY: an attachment refers to a slot of its region, and keeps the region mapped.
        let slot: &Slot = unsafe { attachment.slot.cast().as_ref() };
        slot.messages() != 0
    })
}

impl Region {
    /// Whether `value` is a whole named object, which is not freed while the region is in use.
    #[doc(hidden)]
    pub fn is_object<T: Shareable>(&self, value: &T) -> bool {
        let address = ptr::from_ref(value).addr();
        // Acquire: pairs with the Release of `ready`. The directory's lock is not needed: an entry that changes
        // meanwhile cannot be that of an object to which the caller has a reference.
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
/// No region is dropped meanwhile.
pub unsafe fn files() -> impl Iterator<Item = RawFd> {
    registry::all().map(|region| region.file.as_raw_fd())
}
