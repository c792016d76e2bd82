//! Lending processors: where the kernel lets the owner of MrsP semaphores run.
//!
//! A task that owns MrsP semaphores may run on its *home*, and on the homes of all who wait for them, also
//! through others (who waits for a task that itself waits for this one waits for this one). That follows from
//! the records, and is worked out from them alone, under the *lend lock* in the owner's slot; so there is no
//! mask that two change step by step. Whoever changes what it rests on (who begins to wait, who gives up, the
//! owner that releases) has it worked out afterwards: of two, the second sees both changes.
//!
//! | `lent` | `told` | the kernel's mask |
//! | --- | --- | --- |
//! | 0 | anything | is not ours |
//! | 1 `LOOKING` | anything | is not ours; somebody looks who waits, or was killed there |
//! | 2 `LENT` | a mask | a part of it with the home in it, if nobody else has changed it |
//!
//! `told` is the home before `LENT` is; it grows before a call, and becomes what was told after it. So it covers the
//! kernel's mask at each instruction, and a kill leaves nothing but a lock that the next one takes over, and `lent`.
//!
//! *The owner needs no lock if nobody lent.* A helper sets `lent`, passes a full barrier, and reads who owns what;
//! an owner gives up the semaphore, passes a full barrier, and reads `lent`. So the helper finds that it
//! helps nobody, or the owner finds `lent`, takes the lock behind the helper, and goes home. Until then its home is what
//! it is, so the helper reads it when it has found that it helps.
//!
//! *Not another's thread* (a thread's number is used again after its end). The owner's life-word is looked at
//! before the call, and after it. Before: it lives, and the number is its own. If it is dead after the call, the
//! number may have been another thread's already, and nobody knows that one's mask any more: it is left with the one
//! that the owner had, without what this call lent. Linux has no name for a thread that would exclude it.
//! Besides, a mask that is not within what was told, or is without the home, is not touched: it is not ours, or somebody
//! has bound the thread elsewhere, and then it stays there, be it on a processor that was lent.
//!
//! *A dead helper* is no living task, and lends nothing when the mask is worked out next, at the latest when
//! the owner releases. *A dead owner* has no mask.
#![allow(unsafe_code)]

use super::super::core_at;
use super::super::ground::Ground;
use super::super::object::{Core, Kind, owner_of, slot_of};
use super::super::priority::{self, living};
use super::super::wait::Me;
use crate::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::atomic::fence_after_update;
use crate::mutex::RawError;
use crate::region::Inner;
use crate::region::wait_record::{BUSY, LOWEST, Lending, STATE, WAITING, WaitRecord};
use crate::sys::scheduling::{self, CpuMask, MAX_CPUS};
use crate::sys::thread::processor;
use std::sync::Arc;

/// The lowest priority of a waiter that the kernel tells from the next higher one's.
pub(super) const LOWEST_TO_SPIN: u32 = 98;

/// Of [`Lending::lent`], see the head.
const LOOKING: u32 = 1;
const LENT: u32 = 2;

/// Notes where the calling task, which is about to obtain, is at home; the processor whose ceiling it gets.
pub(super) fn arrive(me: Me<'_>) -> u32 {
    let Lending { home, sections, .. } = &me.record.lending;
    // Within a section the task may be elsewhere, by what it was lent.
    // Relaxed, here and below: the task's own, and published by its taking or entering.
    if sections.load(Relaxed) == 0 {
        let found = if me.record.standing.mirrored.load(Relaxed) != 0 {
            scheduling::affinity_of(0).ok().and_then(|mask| only(&mask))
        } else {
            None
        };
        home.store(found.map_or(0, |processor| processor + 1), Relaxed);
    }
    home.load(Relaxed).checked_sub(1).unwrap_or_else(processor)
}

/// The only processor in a mask.
fn only(mask: &CpuMask) -> Option<u32> {
    let count: u32 = mask.iter().map(|word| word.count_ones()).sum();
    let index = mask.iter().position(|word| *word != 0)?;
    (count == 1).then(|| index as u32 * 64 + mask[index].trailing_zeros())
}

/// The priority at which the calling task is to spin while `owner` has what it waits for; `None`: it is to sleep.
pub(super) fn level(ground: &Arc<Inner>, me: Me<'_>, owner: u64) -> Option<u32> {
    let record = living(ground, owner)?;
    let is_able = |record: &WaitRecord| record.standing.mirrored.load(Relaxed) != 0;
    if !is_able(me.record) || !is_able(record) || me.record.lending.home.load(Relaxed) == 0 {
        return None;
    }
    // Below both: its own ceiling, and the owner.
    let above = me.priority().max(effective(record));
    (above < LOWEST_TO_SPIN).then_some(above + 1)
}

/// The calling task waits for `core`, of which `owner` is the owner: lets it have the processor, if there is a level to
/// spin at; whether it does, and the caller is to spin.
pub(super) fn help(
    ground: &Arc<Inner>,
    core: &Core,
    me: Me<'_>,
    owner: u64,
    level: Option<u32>,
) -> bool {
    let standing = &me.record.standing;
    // At the ceiling; only a fall from there has the kernel look for who could run here.
    standing.spins_at.store(0, Relaxed);
    priority::refresh(ground, me.task, false);
    // An heir may still be where it spun, and its predecessor dead.
    priority::refresh(ground, owner, false);
    let Some(level) = level else {
        return false;
    };
    bring_up_to_date(ground, core);
    standing.spins_at.store(level, Relaxed);
    priority::refresh(ground, me.task, false);
    // What the kernel refused it was not told.
    standing.told.load(Relaxed) == level
}

fn effective(record: &WaitRecord) -> u32 {
    (record.standing.effective.load(Relaxed) & !BUSY).min(LOWEST)
}

/// The calling task has released a semaphore: takes it home, if it was lent a processor by that.
pub(super) fn depart(ground: &Arc<Inner>, me: Me<'_>) {
    let lending = &me.record.lending;
    lending
        .sections
        .store(lending.sections.load(Relaxed).saturating_sub(1), Relaxed);
    // Behind the surrender: see the head.
    fence_after_update();
    if lending.lent.load(SeqCst) != 0 {
        work_out(ground, me.task);
    }
}

/// Who waits for `core` is another one: lets its owner, and whoever that waits for, run where it may.
pub(super) fn bring_up_to_date(ground: &Arc<Inner>, core: &Core) {
    let mut core = core;
    // A way that is longer leads round in a circle.
    for _ in 0..=ground.used() {
        // SeqCst: behind the entering.
        let owner = owner_of(core.word.load(SeqCst));
        if owner == 0 {
            return;
        }
        work_out(ground, owner);
        match living(ground, owner).and_then(awaited) {
            Some(next) => core = next,
            None => return,
        }
    }
}

/// The MrsP semaphore that a living task waits for.
fn awaited(record: &WaitRecord) -> Option<&Core> {
    // SeqCst: behind `lent`, see the head.
    if record.word.load(SeqCst) & STATE != WAITING {
        return None;
    }
    let object = record.object.load(Acquire);
    // SAFETY: the task waits for it: the address was stored by this library, and what is there once is a core
    // for ever.
    let core: &Core = (object != 0).then(|| unsafe { core_at(object) })?;
    (core.form().kind() == Kind::Mrsp).then_some(core)
}

/// Whether who waits as `record` says waits for `task`, through whomever.
fn leads_to(ground: &Arc<Inner>, record: &WaitRecord, task: u64) -> bool {
    let mut core = awaited(record);
    for _ in 0..=ground.used() {
        let Some(owner) = core.map(|core| owner_of(core.word.load(SeqCst))) else {
            return false;
        };
        if owner == task {
            return true;
        }
        core = living(ground, owner).and_then(awaited);
    }
    false
}

/// Lets a task run at its home, and on the homes of all who wait for it.
fn work_out(ground: &Arc<Inner>, task: u64) {
    let Some(record) = living(ground, task) else {
        return;
    };
    let lending = &record.lending;
    // Acquire: who was found to own anything has noted its home before.
    if lending.home.load(Acquire) == 0 {
        return;
    }
    // SAFETY: a slot stays where it is.
    match unsafe { lending.lock.lock_raw(None) } {
        Ok(_) => lending.lock.mark_consistent(),
        Err(RawError::Unavailable(_)) => return,
        Err(_) => crate::fatal(format_args!(
            "a semaphore was used by a signal handler that interrupted its use"
        )),
    }
    // Again, under the lock: from here on the slot has no other task before it is released.
    if living(ground, task).is_some() {
        work_out_under_lock(ground, task, lending);
    }
    // SAFETY: locked above.
    unsafe { lending.lock.unlock_raw() };
}

fn work_out_under_lock(ground: &Arc<Inner>, task: u64, lending: &Lending) {
    // Relaxed: under the lock, here and below.
    let was_lent = lending.lent.load(Relaxed) == LENT;
    if !was_lent {
        lending.lent.swap(LOOKING, SeqCst);
        fence_after_update();
    }
    let mut others = CpuMask::default();
    for slot in 0..ground.used() {
        let Some(waiter) = ground.record(slot) else {
            break;
        };
        let helper = waiter.task.load(Acquire);
        if helper != task && ground.is_alive(helper) && leads_to(ground, waiter, task) {
            // Behind the look at its wait, before which the waiter noted it.
            include(&mut others, waiter.lending.home.load(Relaxed));
        }
    }
    // Not before: see the head.
    let home = lending.home.load(Relaxed);
    if home == 0 {
        // In its next section already, and not bound.
        lending.lent.store(0, Relaxed);
        return;
    }
    let mut own = CpuMask::default();
    include(&mut own, home);
    let mut mask = own;
    mask.iter_mut().zip(others).for_each(|(all, of)| *all |= of);
    if mask != own && !was_lent {
        put(lending, &own);
        lending.lent.store(LENT, Relaxed);
    }
    if mask != own || was_lent {
        tell(ground, task, lending, home, &mask);
    }
    if mask == own {
        // An owner that reads it later finds the mask its own.
        lending.lent.store(0, Relaxed);
    }
}

/// Tells the kernel where a task may run. Under its lend lock.
fn tell(ground: &Arc<Inner>, task: u64, lending: &Lending, home: u32, mask: &CpuMask) {
    let told = get(lending);
    let Some(thread) = ground.thread_in(slot_of(task)) else {
        return;
    };
    let Ok(before) = scheduling::affinity_of(thread) else {
        return;
    };
    let is_ours = before.iter().zip(told).all(|(is, told)| is & !told == 0) && has(&before, home);
    if before == *mask || !is_ours || !ground.is_alive(task) {
        return;
    }
    let mut both = *mask;
    both.iter_mut()
        .zip(told)
        .for_each(|(new, told)| *new |= told);
    put(lending, &both);
    // What it refuses stays as it was.
    let done = scheduling::set_affinity_of(thread, mask).is_ok();
    if done && !ground.is_alive(task) {
        // The number may be another thread's by now.
        let _ = scheduling::set_affinity_of(thread, &before);
    }
    if done {
        put(lending, mask);
    }
}

/// `home`: of a [`Lending`].
fn include(mask: &mut CpuMask, home: u32) {
    if let Some(processor @ 0..MAX_CPUS) = (home as usize).checked_sub(1) {
        mask[processor / 64] |= 1 << (processor % 64);
    }
}

fn has(mask: &CpuMask, home: u32) -> bool {
    let mut both = *mask;
    include(&mut both, home);
    both == *mask
}

fn get(lending: &Lending) -> CpuMask {
    core::array::from_fn(|word| lending.told[word].load(Relaxed))
}

fn put(lending: &Lending, mask: &CpuMask) {
    // Relaxed: under the lock.
    for (place, word) in lending.told.iter().zip(mask) {
        place.store(*word, Relaxed);
    }
}
