//! Lending CPUs: where the kernel lets the owner of MrsP semaphores run.
//!
//! A task that owns MrsP semaphores may run on its *home* CPU, and on the homes of all tasks that wait for them,
//! directly or through others (a task that waits for a waiter of this owner waits for this owner). The set of CPUs
//! follows from the records, and is recomputed from them alone, under the *lend lock* in the owner's slot; so no mask
//! is updated step by step. A task that changes an input (a waiter that begins or gives up, an owner that releases)
//! recomputes the set afterwards: of two, the second sees both changes.
//!
//! | `lent` | `told` | the kernel's mask |
//! | --- | --- | --- |
//! | 0 | anything | not set by this library |
//! | 1 `CHECKING` | anything | not set by this library; a task checks which tasks wait, or was killed while it did |
//! | 2 `LENT` | a mask | a part of `told` that contains the home, unless others have changed it |
//!
//! `told` is the home before `LENT` is stored; it grows before a system call, and becomes the new mask after it. So it
//! covers the kernel's mask at each instruction, and a kill leaves nothing but a lock that the next task takes over,
//! and `lent`.
//!
//! *The owner needs no lock if no task lent.* A helper sets `lent`, passes a full barrier, and reads which task owns
//! what; an owner gives up the semaphore, passes a full barrier, and reads `lent`. So the helper sees that it helps no
//! owner, or the owner sees `lent`, takes the lock after the helper, and returns to its home. Until then its home does
//! not change; so the helper reads it after it has seen that it helps.
//!
//! *Not another thread's mask* (a thread ID is reused after the thread's end). The owner's life-word is read before the
//! system call, and after it. Before: the owner lives, and the thread ID is its own. If it is dead after the call, the
//! ID may have been another thread's already, whose mask is unknown; that thread is left with the mask that the owner
//! had, without what this call lent. Linux has no name for a thread that would exclude this. Besides, a mask that is
//! not within `told`, or that lacks the home, is not changed: it is not ours, or a user has bound the thread elsewhere.
//! Then the thread stays there, even on a CPU that was lent.
//!
//! *A dead helper* is no living task, so it lends nothing when the mask is next recomputed, at the latest when the
//! owner releases. *A dead owner* has no mask.

use crate::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::atomic::fence_after_update;
use crate::mutex::Acquired;
use crate::region::Inner;
use crate::region::wait_record::{BUSY, LOWEST, Lending, STATE, WAITING, WaitRecord};
use crate::semaphore::object::{core_at, owner_of, slot_of};
use crate::semaphore::priority::{self, living};
use crate::semaphore::task_table::take_lock;
use crate::semaphore::{Access, Caller, Core, Kind, TaskTable};
use crate::sys::scheduling::{self, CpuMask, MAX_CPUS};
use crate::sys::thread::processor;
use std::sync::Arc;

/// The lowest priority of a waiter that the kernel distinguishes from the next higher one.
pub(super) const LOWEST_TO_SPIN: u32 = 98;

/// Values of [`Lending::lent`], see the head.
const CHECKING: u32 = 1;
const LENT: u32 = 2;

/// Notes the home of the calling task, which is about to obtain; returns the CPU whose ceiling it gets.
pub(super) fn note_home(caller: Caller<'_>) -> u32 {
    let Lending { home, sections, .. } = &caller.record.lending;
    // In a critical section the task may run elsewhere, on a lent CPU. Relaxed, here and below: the task's own field,
    // published when it takes the semaphore or enters the queue.
    if sections.load(Relaxed) == 0 {
        let is_mirrored = caller.record.standing.mirrored.load(Relaxed) != 0;
        let mask = is_mirrored
            .then(|| scheduling::affinity_of(0).ok())
            .flatten();
        let found = mask.and_then(|mask| only_cpu(&mask));
        home.store(found.map_or(0, |processor| processor + 1), Relaxed);
    }
    home.load(Relaxed).checked_sub(1).unwrap_or_else(processor)
}

/// The only CPU in a mask.
fn only_cpu(mask: &CpuMask) -> Option<u32> {
    let count: u32 = mask.iter().map(|word| word.count_ones()).sum();
    let index = mask.iter().position(|word| *word != 0)?;
    (count == 1).then(|| index as u32 * 64 + mask[index].trailing_zeros())
}

/// The priority at which the calling task should spin while `owner` has what it waits for; `None`: it should sleep.
pub(super) fn spin_level(tasks: &Arc<Inner>, caller: Caller<'_>, owner: u64) -> Option<u32> {
    let record = living(tasks, owner)?;
    let is_mirrored = |record: &WaitRecord| record.standing.mirrored.load(Relaxed) != 0;
    if !is_mirrored(caller.record)
        || !is_mirrored(record)
        || caller.record.lending.home.load(Relaxed) == 0
    {
        return None;
    }
    // Below both its own ceiling and the owner.
    let owners = (record.standing.effective.load(Relaxed) & !BUSY).min(LOWEST);
    let above = caller.priority().max(owners);
    (above < LOWEST_TO_SPIN).then_some(above + 1)
}

/// The calling task waits for `core`, which `owner` owns: lends the owner its CPU, if there is a level to spin at.
/// Returns whether the caller has lent it, and should spin.
pub(super) fn lend_cpu(access: &Access<'_, Arc<Inner>>, owner: u64, level: Option<u32>) -> bool {
    let (tasks, core, _, caller) = access.parts();
    let standing = &caller.record.standing;
    // Back to the ceiling: only a fall from there makes the kernel check which task could run here.
    standing.spins_at.store(0, Relaxed);
    priority::refresh(tasks, caller.task, false);
    // An heir may still have the priority at which it spun, if the task that released was killed.
    priority::refresh(tasks, owner, false);
    let Some(level) = level else {
        return false;
    };
    update_owners(tasks, core);
    standing.spins_at.store(level, Relaxed);
    priority::refresh(tasks, caller.task, false);
    // If the kernel refused the priority, `kernel_priority` differs.
    standing.kernel_priority.load(Relaxed) == level
}

/// The calling task has released a semaphore: returns it to its home, if it was lent a CPU for that.
pub(super) fn return_home(tasks: &Arc<Inner>, caller: Caller<'_>) {
    let lending = &caller.record.lending;
    lending
        .sections
        .store(lending.sections.load(Relaxed).saturating_sub(1), Relaxed);
    // After the release of the semaphore: see the head.
    fence_after_update();
    if lending.lent.load(SeqCst) != 0 {
        recompute_affinity(tasks, caller.task);
    }
}

/// The waiters of `core` have changed: updates where its owner may run, and the same for each owner along the chain.
pub(super) fn update_owners<'a>(tasks: &'a Arc<Inner>, mut core: &'a Core) {
    // A longer chain leads round a cycle.
    for _ in 0..=tasks.used() {
        // SeqCst: ordered after the entry into the queue.
        let owner = owner_of(core.word.load(SeqCst));
        if owner == 0 {
            return;
        }
        recompute_affinity(tasks, owner);
        match living(tasks, owner).and_then(awaited_semaphore) {
            Some(next) => core = next,
            None => return,
        }
    }
}

/// The MrsP semaphore that a living task waits for.
fn awaited_semaphore(record: &WaitRecord) -> Option<&Core> {
    // SeqCst: ordered after `lent`, see the head.
    if record.word.load(SeqCst) & STATE != WAITING {
        return None;
    }
    let object = record.object.load(Acquire);
    // SAFETY: the task waits for it, so this library stored the address; a core stays a core for ever.
    let core: &Core = (object != 0).then(|| unsafe { core_at(object) })?;
    (core.form().kind() == Kind::Mrsp).then_some(core)
}

/// Whether the task of `record` waits for `task`, directly or through others.
fn waits_for(tasks: &Arc<Inner>, record: &WaitRecord, task: u64) -> bool {
    let mut core = awaited_semaphore(record);
    for _ in 0..=tasks.used() {
        let Some(owner) = core.map(|core| owner_of(core.word.load(SeqCst))) else {
            return false;
        };
        if owner == task {
            return true;
        }
        core = living(tasks, owner).and_then(awaited_semaphore);
    }
    false
}

/// Lets a task run at its home, and on the homes of all tasks that wait for it.
fn recompute_affinity(tasks: &Arc<Inner>, task: u64) {
    let Some(record) = living(tasks, task) else {
        return;
    };
    let lending = &record.lending;
    // Acquire: a task that was seen to own a semaphore has noted its home before.
    if lending.home.load(Acquire) == 0 {
        return;
    }
    match take_lock(&lending.lock) {
        Ok(Acquired::Clean) => {}
        Ok(Acquired::OwnerDied) => {
            // The mask is recomputed from the records alone.
            crate::atomic::unless_disabled!(
                LenderTakesOver,
                // SAFETY: taken just now.
                unsafe { lending.lock.mark_raw_consistent() },
                ()
            );
        }
        Err(_) => return,
    }
    // Checked again under the lock: from here on the slot gets no other task before the lock is released.
    if living(tasks, task).is_some() {
        recompute_affinity_locked(tasks, task, lending);
    }
    // SAFETY: this function locked it above.
    unsafe { lending.lock.unlock_raw() };
}

fn recompute_affinity_locked(tasks: &Arc<Inner>, task: u64, lending: &Lending) {
    // Relaxed: under the lock, here and below.
    let was_lent = lending.lent.load(Relaxed) == LENT;
    if !was_lent {
        lending.lent.swap(CHECKING, SeqCst);
        fence_after_update();
    }
    let mut others = CpuMask::default();
    for slot in 0..tasks.used() {
        let Some(waiter) = tasks.record(slot) else {
            break;
        };
        let helper = waiter.task.load(Acquire);
        if helper != task && tasks.is_alive(helper) && waits_for(tasks, waiter, task) {
            // After the read of its wait, before which the waiter noted its home.
            include(&mut others, waiter.lending.home.load(Relaxed));
        }
    }
    // Not read earlier: see the head.
    let home = lending.home.load(Relaxed);
    if home == 0 {
        // The owner is in its next critical section already, and not bound.
        lending.lent.store(0, Relaxed);
        return;
    }
    let mut own = CpuMask::default();
    include(&mut own, home);
    let mut mask = own;
    mask.iter_mut().zip(others).for_each(|(all, of)| *all |= of);
    if mask != own && !was_lent {
        store_mask(lending, &own);
        lending.lent.store(LENT, Relaxed);
    }
    if mask != own || was_lent {
        update_kernel_mask(tasks, task, lending, home, &mask);
    }
    if mask == own {
        // An owner that reads this later has its own mask already.
        lending.lent.store(0, Relaxed);
    }
}

/// Sets a task's mask in the kernel. Under its lend lock.
fn update_kernel_mask(tasks: &Arc<Inner>, task: u64, lending: &Lending, home: u32, mask: &CpuMask) {
    let told: CpuMask = core::array::from_fn(|word| lending.told[word].load(Relaxed));
    let Some(thread) = tasks.thread_in(slot_of(task)) else {
        return;
    };
    let Ok(before) = scheduling::affinity_of(thread) else {
        return;
    };
    let is_ours =
        before.iter().zip(told).all(|(is, told)| is & !told == 0) && includes(&before, home);
    if before == *mask || !is_ours || !tasks.is_alive(task) {
        return;
    }
    let mut both = *mask;
    both.iter_mut()
        .zip(told)
        .for_each(|(new, told)| *new |= told);
    store_mask(lending, &both);
    // If the kernel refuses, nothing has changed.
    let done = scheduling::set_affinity_of(thread, mask).is_ok();
    if done && !tasks.is_alive(task) {
        // The thread ID may be another thread's by now.
        let _ = scheduling::set_affinity_of(thread, &before);
    }
    if done {
        store_mask(lending, mask);
    }
}

/// Adds a CPU to a mask; `home` is that of a [`Lending`].
fn include(mask: &mut CpuMask, home: u32) {
    if let Some(processor @ 0..MAX_CPUS) = (home as usize).checked_sub(1) {
        mask[processor / 64] |= 1 << (processor % 64);
    }
}

fn includes(mask: &CpuMask, home: u32) -> bool {
    let mut both = *mask;
    include(&mut both, home);
    both == *mask
}

fn store_mask(lending: &Lending, mask: &CpuMask) {
    // Relaxed: under the lock.
    for (place, word) in lending.told.iter().zip(mask) {
        place.store(*word, Relaxed);
    }
}
