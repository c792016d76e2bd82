//! What the other crates of the library ask about an address, a thread or a region: which region, object, task or
//! priority it has; which tasks live, wait or have messages; which files must stay open.
#![allow(unsafe_code)]

use super::heap::Owner;
use super::inbox::{Inbox, LOCK as QUEUE_LOCK};
use super::names::READY;
use super::task_table::{Life, Slot};
use super::wait_record::{BUSY, LOCK as OBJECT_LOCK};
use super::{Inner, Region, Shareable, Task, registry};
use crate::atomic::{AtomicU32, Ordering};
use crate::hook::TaskRecord;
use crate::mutex::InRegion;
use crate::sys::futex::{self, Sharing};
use crate::sys::futex_bits::NO_THREAD;
use crate::sys::thread;
use crate::task::{Attachment, Me};
use crate::time::Deadline;
use core::time::Duration;
use core::{fmt, ptr};
use rustix::fd::{AsRawFd, RawFd};

/// How often a thread that becomes a task checks whether another one still has a lock.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// How long it waits for one owner before it asks whether the owner's thread exists.
const PATIENCE: Duration = Duration::from_secs(1);

/// The checker's record in the slot of a task.
#[inline]
pub fn check_record(attachment: &Attachment) -> &TaskRecord {
    &Slot::of(attachment).check
}

/// The checker's records of all living tasks of the region that an attachment of the calling thread belongs to; with each
/// the PID namespace of its task, if it is another one than the calling thread's. The record's IDs are those of that
/// namespace.
pub fn check_records(
    attachment: &Attachment,
) -> impl Iterator<Item = (&'static TaskRecord, Option<u32>)> + use<> {
    // SAFETY: an attachment's context is its region, which it keeps mapped; the caller does not end its own
    // attachment while it uses the iterator.
    let inner: &'static Inner = unsafe { attachment.context.cast().as_ref() };
    let is_here = |slot: &Slot| Me::get().is_ok_and(|me| inner.is_here(slot, me));
    let all = inner.living_slots();
    all.map(move |slot| {
        let elsewhere = (!is_here(slot)).then(|| slot.namespace());
        (&slot.check, elsewhere)
    })
}

/// Makes the calling thread a task of the region that contains an address, if there is such a region and the thread
/// is not yet a task of it.
#[inline]
pub fn join_at(address: usize) {
    let is_in = |attachment: Attachment| (attachment.base..attachment.end).contains(&address);
    if registry::may_contain(address)
        && !Me::current_or_none().attachments().any(is_in)
        && let Some(region) = Inner::containing(address)
    {
        // If no slot is free, other processes cannot see the thread; its own process can.
        let _ = region.task();
    }
}

/// The effective recorded priority of a thread of any process of this PID namespace, as a task of the regions that this
/// process has mapped: the best one, 1 being the highest. `None` if the thread is a task of none of them.
pub fn recorded_priority(thread: u32) -> Option<u32> {
    let priorities = registry::all().filter_map(|region| {
        let mut slots = region.used_slots().iter();
        let is_it = |slot: &&Slot| {
            slot.life() == Life::Alive(thread) && Me::get().is_ok_and(|me| region.is_here(slot, me))
        };
        let slot = slots.find(is_it)?;
        Some(effective_priority_in(slot))
    });
    priorities.min()
}

/// The same for the calling thread, without searching the slots of others.
pub fn own_recorded_priority() -> Option<u32> {
    let attachments = Me::current_or_none().attachments();
    let priority = |attachment| effective_priority_in(Slot::of(&attachment));
    attachments.map(priority).min()
}

fn effective_priority_in(slot: &Slot) -> u32 {
    // Relaxed: the value may change at once in any case.
    slot.wait.standing.effective.load(Ordering::Relaxed) & !BUSY
}

/// Whether an address lies in a region of this process.
pub fn contains(address: usize) -> bool {
    registry::may_contain(address) && Inner::containing(address).is_some()
}

/// Whether an address lies in a region for tasks of any PID namespace.
pub fn spans_pid_namespaces(address: usize) -> bool {
    registry::may_contain(address)
        && Inner::containing(address).is_some_and(|region| region.spans_pid_namespaces())
}

/// Whether an address lies in an anonymous region that this process has made and whose only living task belongs to
/// this process.
pub fn has_only_own_task(address: usize) -> bool {
    let Some(region) = Inner::containing(address) else {
        return false;
    };
    let process = thread::process_id();
    // Relaxed: a task's process never changes.
    let is_own = |slot: &Slot| {
        slot.process.load(Ordering::Relaxed) == process
            && Me::get().is_ok_and(|me| region.is_here(slot, me))
    };
    let mut alive = region.living_slots();
    // A process of another PID namespace may have the creator's ID.
    let namespace = Me::get().map_or(0, |me| u64::from(me.namespace()));
    region.path.is_none()
        && region.identity.creator == process
        && region.identity.pid_namespace == namespace
        && alive.next().is_some_and(is_own)
        && alive.next().is_none()
}

/// Writes the name of the object that contains an address in a region of this process.
pub fn write_object_name(address: usize, to: &mut impl fmt::Write) {
    let Some(region) = Inner::containing(address) else {
        return;
    };
    let object = region.entries().iter().find(|entry| {
        // Acquire: pairs with the Release that makes an entry ready.
        entry.state.load(Ordering::Acquire) == READY && {
            let start = entry.object.load(Ordering::Relaxed);
            (start..start + entry.bytes.load(Ordering::Relaxed) as usize).contains(&address)
        }
    });
    if let Some(object) = object {
        let start = object.object.load(Ordering::Relaxed);
        let _ = to.write_str(&object.name());
        if start != address {
            let _ = write!(to, "+{:#x}", address - start);
        }
    }
}

impl Inner {
    /// The life-word of a task and its current value; `None` once the task is gone.
    pub fn life_word(&self, task: Owner) -> Option<(&AtomicU32, u32)> {
        let word = &self.slots().get(usize::from(task.slot()))?.life.word;
        // Before the check of the generation: a later change of the word wakes a task that waits with this value.
        // Acquire: pairs with the Release that ends a life.
        let value = word.load(Ordering::Acquire);
        self.is_alive(task).then_some((word, value))
    }

    /// Whether a process of this PID namespace has a running task in this region that joined no later than at this time
    /// since boot.
    pub fn has_tasks_of(&self, process: u32, joined_by: u64) -> bool {
        let Ok(me) = Me::get() else { return true };
        // Relaxed: the life-word's Acquire orders the time; the process may still be that of the slot's last task.
        self.used_slots().iter().any(|slot| {
            matches!(slot.life(), Life::Alive(thread) if thread != NO_THREAD)
                && slot.process.load(Ordering::Relaxed) == process
                && slot.attached_at.load(Ordering::Relaxed) <= joined_by
                && self.is_here(slot, me)
        })
    }

    /// Whether the calling process may have other tasks in this region.
    pub fn process_has_other_tasks(&self, task: Task<'_>) -> bool {
        // The fast path: the usual coproc has none. Relaxed, here and below: a task's process never changes; the user
        // is responsible for a thread that attaches meanwhile.
        if task.slot.shares_process.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.living_slots()
            .any(|slot| !ptr::eq(slot, task.slot) && slot.is_of_process_of(task.slot))
    }

    /// Waits until no task can still write to the slot of a dead task on its behalf: to its wait record, and to its inbox.
    /// For the slot's next task. The argument is in `wait_record.rs`.
    pub(super) fn wait_for_writers(&self, slot: &Slot) {
        // Relaxed, here and below: read after the life-word of a dead task. An address is 0 if that task left in an orderly
        // way.
        let object = slot.wait.object.load(Ordering::Relaxed) as usize;
        let queue = slot.inbox.queue.load(Ordering::Relaxed);
        for lock in [(object, OBJECT_LOCK), (queue, QUEUE_LOCK)] {
            self.outlast_owner_at(lock);
        }
        self.outlast_owner(&slot.wait.standing.lock);
        self.outlast_owner(&slot.wait.lending.lock);
    }

    /// [`Self::outlast_owner`] of the lock at an offset in the object at an address, if there is one.
    fn outlast_owner_at(&self, (object, offset): (usize, usize)) {
        if self.addresses().contains(&object) {
            let lock = self.base().as_ptr().with_addr(object + offset);
            // SAFETY: a task of this region waited for the object, so it is a semaphore or a queue of the region, which is
            // mapped; both are never moved or freed.
            self.outlast_owner(unsafe { &*lock.cast::<InRegion>() });
        }
    }

    /// Waits until the task that owns a lock at this moment has released it, or is dead. Each later owner sees what the
    /// calling thread did before. For a thread that is no task yet, and cannot acquire the lock.
    fn outlast_owner(&self, lock: &InRegion) {
        let owner = lock.owner_from_now_on();
        let Some(task) = Owner::from_raw(owner) else {
            return;
        };
        let own = AtomicU32::new(0);
        let mut patience = Deadline::after(PATIENCE);
        while self.is_alive(task) && lock.owner() == owner {
            // A critical section is short, unless its owner does not run.
            // On a word of its own: this thread is no waiter for the lock, and would take the wake-up of one.
            futex::wait_for(&own, 0, Sharing::Private, POLL_INTERVAL);
            if patience.has_passed() {
                patience = Deadline::after(PATIENCE);
                if self.has_vanished(task) {
                    return;
                }
            }
        }
    }

    /// The living tasks that wait at a queue, whether or not they were given a message.
    pub fn waiters(&self, queue: usize) -> impl Iterator<Item = (Owner, &Inbox)> {
        self.used_slots()
            .iter()
            // Relaxed, here and below: the lock of the queue's receivers orders it.
            .filter(move |slot| slot.inbox.queue.load(Ordering::Relaxed) == queue)
            .filter_map(move |slot| {
                // Acquire: a reader that sees the identity of a new task sees that the task waits nowhere.
                let owner = Owner::from_raw(slot.wait.task.load(Ordering::Acquire))?;
                let waits = slot.inbox.queue.load(Ordering::Relaxed) == queue;
                (waits && self.is_alive(owner)).then_some((owner, &slot.inbox))
            })
    }
}

/// Whether the calling thread, which is `me`, has messages of any region in flight.
pub fn has_messages(me: Me) -> bool {
    let mut attachments = me.attachments();
    attachments.any(|attachment| Slot::of(&attachment).messages() != 0)
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
