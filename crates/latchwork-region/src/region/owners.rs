//! What locks ask about their owners whose words name tasks of a region.
#![allow(unsafe_code)]

use super::Inner;
use super::heap::Owner;
use super::sweep::Swept;
use super::task_table::Slot;
use crate::atomic::Ordering;
use crate::task::{Me, NotATask, Regions};
use core::ptr::NonNull;

/// The answers.
pub(super) static REGIONS: Regions = Regions {
    join,
    is_gone,
    has_vanished,
    thread_of,
};

fn join(address: usize) -> Result<(), NotATask> {
    let inner = Inner::containing(address).ok_or(NotATask::NoRegion)?;
    inner
        .attach_thread(Me::get()?, &mut Swept::default())
        .map(|_| ())
}

/// # Safety
/// `context` is that of an attachment of the calling thread.
unsafe fn is_gone(context: NonNull<()>, identity: u64) -> bool {
    // SAFETY: an attachment's context is its region, which it keeps mapped.
    let inner: &Inner = unsafe { context.cast().as_ref() };
    !Owner::from_raw(identity).is_some_and(|owner| inner.is_alive(owner))
}

/// # Safety
/// As for [`is_gone`].
unsafe fn has_vanished(context: NonNull<()>, identity: u64, lock: usize) -> bool {
    // SAFETY: an attachment's context is its region, which it keeps mapped.
    let inner: &Inner = unsafe { context.cast().as_ref() };
    let owner = Owner::from_raw(identity);
    owner.is_some_and(|owner| inner.settle_if_vanished(owner, lock))
}

/// A thread of another process is not named: its number means nothing here.
///
/// # Safety
/// As for [`is_gone`].
unsafe fn thread_of(context: NonNull<()>, identity: u64) -> Option<u32> {
    // SAFETY: an attachment's context is its region, which it keeps mapped.
    let inner: &Inner = unsafe { context.cast().as_ref() };
    let slot = Owner::from_raw(identity)?.slot();
    let mine = inner.attached_task(Me::get().ok()?)?.slot;
    // Relaxed: a hint. Two processes of different PID namespaces may have the same number.
    let process_of = |slot: &Slot| slot.process.load(Ordering::Relaxed);
    let is_here = process_of(inner.slots().get(usize::from(slot))?) == process_of(mine);
    inner.thread_in(slot).filter(|_| is_here)
}
