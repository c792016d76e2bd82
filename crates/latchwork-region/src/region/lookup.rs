//! What the other crates of the library ask about an address or a thread: which region, object, task or priority it
//! has.
#![allow(unsafe_code)]

use super::names::READY;
use super::task_table::{Life, Slot};
use super::{Inner, registry, wait_record};
use crate::atomic::Ordering;
use crate::hook::TaskRecord;
use crate::task::Me;
use core::fmt;

/// The checker's record in the slot of a task.
#[inline]
pub fn check_record(attachment: &crate::task::Attachment) -> &TaskRecord {
    // SAFETY: an attachment refers to a slot of its region, and keeps the region mapped.
    unsafe { &attachment.slot.cast::<Slot>().as_ref().check }
}

/// The checker's records of all living tasks of the region that an attachment of the calling thread belongs to.
pub fn check_records(
    attachment: &crate::task::Attachment,
) -> impl Iterator<Item = &'static TaskRecord> + use<> {
    // SAFETY: an attachment's context is its region, which it keeps mapped; the caller does not end its own
    // attachment while it uses the iterator.
    let inner: &'static Inner = unsafe { attachment.context.cast().as_ref() };
    inner
        .used_slots()
        .iter()
        .filter(|slot| matches!(slot.life(), Life::Alive(_)))
        .map(|slot| &slot.check)
}

/// Makes the calling thread a task of the region that contains an address, if there is such a region and the thread
/// is not yet a task of it.
#[inline]
pub fn join_at(address: usize) {
    let is_in =
        |attachment: crate::task::Attachment| (attachment.base..attachment.end).contains(&address);
    if registry::may_contain(address)
        && !Me::current_or_none().attachments().any(is_in)
        && let Some(region) = Inner::containing(address)
    {
        // If no slot is free, other processes cannot see the thread; its own process can.
        let _ = region.task();
    }
}

/// The effective recorded priority of a thread of any process, as a task of the regions that this process has mapped:
/// the best one, 1 being the highest. `None` if the thread is a task of none of them.
pub fn recorded_priority(thread: u32) -> Option<u32> {
    let priorities = registry::all().filter_map(|region| {
        let slot = region
            .used_slots()
            .iter()
            .find(|slot| matches!(slot.life(), Life::Alive(tid) if tid == thread))?;
        Some(effective_priority_in(slot))
    });
    priorities.min()
}

/// The same for the calling thread, without searching the slots of others.
pub fn own_recorded_priority() -> Option<u32> {
    let attachments = Me::current_or_none().attachments();
    attachments
        // SAFETY: an attachment refers to a slot of its region, and keeps the region mapped.
        .map(|attachment| effective_priority_in(unsafe { attachment.slot.cast().as_ref() }))
        .min()
}

fn effective_priority_in(slot: &Slot) -> u32 {
    // Relaxed: the value may change at once in any case.
    slot.wait.standing.effective.load(Ordering::Relaxed) & !wait_record::BUSY
}

/// Whether an address lies in a region of this process.
pub fn contains(address: usize) -> bool {
    registry::may_contain(address) && Inner::containing(address).is_some()
}

/// Whether an address lies in an anonymous region that this process has made and whose only living task belongs to
/// this process.
pub fn has_only_own_task(address: usize) -> bool {
    let Some(region) = Inner::containing(address) else {
        return false;
    };
    let process = crate::sys::thread::process_id();
    let is_alive = |slot: &&Slot| matches!(slot.life(), Life::Alive(_));
    // Relaxed: a task's process never changes.
    let is_own = |slot: &Slot| slot.process.load(Ordering::Relaxed) == process;
    let mut alive = region.used_slots().iter().filter(is_alive);
    region.path.is_none()
        && region.identity.creator == process
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
