//! Effective priorities of tasks: ceilings, and priority inheritance.
//!
//! A task's *effective* priority is the best of three: its own priority, the ceilings of the semaphores that it owns,
//! and the effective priorities of the tasks that wait for inheriting semaphores that it owns. The task's slot keeps
//! it, in its [`Standing`]:
//!
//! | field | meaning | changed by |
//! | --- | --- | --- |
//! | `base` | the task's own priority | [`set_base`], under the lock |
//! | `ceilings` | the list of the owned semaphores that have a ceiling | the task itself |
//! | `inherits` | 0: no task waits for an inheriting semaphore that the task owns; 1: one may | set to 1 by a waiter and by a hand-over; cleared under the lock |
//! | `effective` | the effective priority; with [`BUSY`]: a refresh is under way, or was cut short | [`refresh`], under the lock |
//! | `lock` | a small robust lock | the task that refreshes |
//!
//! A task that changes an input of a priority makes the change, and then calls [`refresh`], which
//! 1. takes the lock, and sets `BUSY`;
//! 2. recomputes the priority from the records alone, stores it, and informs the kernel if the task is mirrored;
//! 3. moves the task within the queue that it waits in, if its position has changed;
//! 4. goes on to the owner of the inheriting semaphore that the task waits for, if the priority or the position has
//!    changed.
//!
//! *The last result is right.* Each change is made before its refresh, and the lock serialises the refreshes of one
//! task: of two, the second sees both changes. No priority is updated step by step, so a task that is killed in a
//! refresh leaves nothing but a lock that the next task takes over.
//!
//! *When no refresh is needed.* A waiter whose priority is not better than the owner's changes nothing; nor does a
//! release by a task whose effective priority is its own. Both check this by one read of `effective`, without the lock.
//! Such a task stores its change, passes a full barrier, and reads `effective`; a refresh sets `BUSY`, passes a full
//! barrier, and reads its inputs. So the task sees `BUSY` (and refreshes), or the refresh sees the change.
//!
//! *The flag `inherits`.* To find the waiters of its inheriting semaphores, a task's refresh must read the records of
//! all tasks. A task without such waiters should not pay for that at each of its ceilings. The flag avoids it:
//! - A waiter publishes its record (`WAITING`), passes a full barrier, and sets the owner's flag.
//! - A hand-over of a semaphore with waiters stores the new owner in the semaphore's word, and sets the new owner's
//!   flag.
//! - A refresh that finds the flag set clears it, passes a full barrier, reads all records, and sets the flag again if
//!   it finds a waiter.
//!
//! So such a refresh finds the waiter, or the waiter sets the flag after the refresh has cleared it. A refresh that
//! reads the flag before it is set misses the waiter. Therefore the waiter (or the task that handed over) passes
//! another full barrier after it has set the flag, and reads `effective` as above: it sees `BUSY`, or the result of
//! that refresh, and refreshes again if the waiter's priority is better. A flag that is set without a waiter costs one
//! read of all records. A task killed between clearing and setting the flag leaves the standing's lock with a dead
//! owner, and the next owner sets the flag. A task killed between a hand-over and setting the flag leaves the object's
//! lock with a dead owner, and the recovery of the object sets it.
//!
//! *A task that dies before its refresh,* or during it, may leave another task's priority unchanged: for example, a
//! waiter's death leaves the owner's priority too high. The death wakes all waiters; each refreshes its own priority,
//! and then those along its chain. A task that does not wait gets the right priority when it releases an inheriting
//! semaphore or one with a ceiling, or from another refresh. A task that begins to wait checks whether a change of its
//! own priority was left unfinished: then `BUSY` is set.
//!
//! *Reuse of a slot.* Other tasks write a task's record under one of two locks, that of the semaphore it waits for and
//! that of its standing, and only if they saw the task alive while they held the lock. The next task in the slot passes
//! through both locks before it uses the record ([`WaitRecord::wait_for_writers`]); so no write that was meant for its
//! predecessor reaches it.
//!
//! *Locking.* No lock is held while another is taken, and there is no lock that all tasks share. A refresh follows a
//! chain of owners link by link, and it is enough that each link is right after the last change to it.
//!
//! *Mapping.* Priorities are RTEMS's: 1, the highest, to 255. The kernel runs a mirrored task at `SCHED_FIFO` 100 − *p*
//! for 1 to 98, at `SCHED_FIFO` 1 for 99 to 254, and as an ordinary task for 255. Without the privilege, or for tasks
//! that are not mirrored, only the recorded priorities decide which task is served first, and the kernel does not know
//! them. A task begins with the priority that its thread has in the kernel.

use super::ground::Ground;
use super::object::{Core, Kind, owner_of, slot_of};
use super::wait::Me;
use super::wait_queue::Locked;
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{fence_after_update, unless_fault};
use crate::mutex::{Acquired, RawError};
use crate::region::wait_record::{BUSY, STATE, Standing, WAITING, WaitRecord};
use core::ops::Deref;

/// Longer than any list of ceilings; a list that changes while it is read may seem endless.
const FAR: usize = 1 << 16;

/// Whether the owner should run at the calling task's priority: it inherits, and its own is worse.
#[inline]
pub(crate) fn is_owed<G: Ground>(ground: &G, core: &Core, me: Me<'_>, owner: u64) -> bool {
    core.form().kind() == Kind::Inherit
        && ground
            .record(slot_of(owner))
            .is_some_and(|record| me.priority() < record.standing.effective.load(Relaxed) & !BUSY)
}

/// The calling task waits for `core`: raises the owner to its priority, if the owner inherits.
pub(crate) fn donate<G: Ground>(ground: &G, core: &Core, me: Me<'_>) {
    if core.form().kind() != Kind::Inherit {
        return;
    }
    // The barrier is that of `enter`; the lock's release comes after it.
    fence_after_update();
    let owner = owner_of(core.word.load(SeqCst));
    // If another task has become the owner since, the hand-over saw this task in the queue.
    if let Some(record) = ground.record(slot_of(owner)) {
        has_waiters(&record.standing);
        // The task's own priority is read after the flag was set: a task that changed it before may have found the
        // owner without waiters.
        fence_after_update();
        give(ground, owner, record, me.priority());
    }
}

/// Sets `inherits`: a task may wait for an inheriting semaphore of this standing's task.
pub(crate) fn has_waiters(standing: &Standing) {
    // Relaxed: ordered by the barrier after the caller's publication. Usually the flag is set already.
    if standing.inherits.load(Relaxed) == 0 {
        // AcqRel: pairs with the reads in `inherited`.
        standing.inherits.swap(1, AcqRel);
    }
}

/// A task was handed an inheriting semaphore that others wait for, the first of them at priority `next`: refreshes it
/// if its own is worse, since its own may have been lowered after it was chosen as the best waiter.
pub(super) fn endow<G: Ground>(ground: &G, heir: u64, next: u32) {
    if let Some(record) = ground.record(slot_of(heir)) {
        fence_after_update();
        unless_fault!(SemaphoreHeirUnseen, give(ground, heir, record, next), ());
    }
}

/// Refreshes a task if its effective priority is worse than `priority`. After a full barrier of the caller.
fn give<G: Ground>(ground: &G, task: u64, record: &WaitRecord, priority: u32) {
    let seen = record.standing.effective.load(SeqCst);
    // A number with BUSY is worse than any priority.
    if priority < unless_fault!(SemaphoreLooksPastBusy, seen, seen & !BUSY) {
        refresh(ground, task, false);
    }
}

/// A wait for `core` has ended: refreshes the owner, if it inherits.
pub(crate) fn pass_on<G: Ground>(ground: &G, core: &Core) {
    if core.form().kind() == Kind::Inherit {
        let owner = owner_of(core.word.load(SeqCst));
        if owner != 0 {
            refresh(ground, owner, false);
        }
    }
}

/// The calling task owns `core`, which has a ceiling: enters it into the task's list, and refreshes the task.
pub(crate) fn has_ceiling<G: Ground>(ground: &G, core: &Core, me: Me<'_>) {
    let standing = &me.record.standing;
    // Relaxed: only the task itself changes the list.
    core.next_held
        .store(standing.ceilings.load(Relaxed), Relaxed);
    // AcqRel: pairs with the Acquire in `work_out`. It is an exchange, since the fence must follow one.
    standing.ceilings.swap(core.address(), AcqRel);
    fence_after_update();
    if in_force(core) < standing.effective.load(SeqCst) {
        refresh(ground, me.task, false);
    }
}

/// The ceiling that the owner of `core` has at present.
fn in_force(core: &Core) -> u32 {
    if core.form().kind() == Kind::Mrsp {
        core.in_force.load(SeqCst)
    } else {
        core.ceiling.load(SeqCst)
    }
}

/// The calling task is about to release `core`, which has a ceiling: removes it from the task's list. It must leave the
/// list before another task links it; but the task must keep the ceiling until it has released (`waits_at`).
pub(crate) fn had_ceiling(core: &Core, me: Me<'_>) {
    // Relaxed: published by the list, which is read before it.
    #[cfg(not(loom))]
    me.record
        .standing
        .waits_at
        .store(in_force(core).max(1), Relaxed);
    let next = core.next_held.load(Relaxed);
    let mut link = &me.record.standing.ceilings;
    // Usually it is the first.
    while link.load(Relaxed) != core.address() {
        let address = link.load(Relaxed);
        if address == 0 {
            return;
        }
        // SAFETY: the list contains cores that this task owns; a core is never moved or freed.
        link = unsafe { &super::core_at(address).next_held };
    }
    link.store(next, Release);
}

/// The calling task has released `core`: gives up the priority that it had by it.
#[inline]
pub(crate) fn had_more<G: Ground>(ground: &G, core: &Core, me: Me<'_>) {
    let kind = core.form().kind();
    if kind != Kind::Inherit && !kind.has_ceiling() {
        return;
    }
    let standing = &me.record.standing;
    // SeqCst: ordered before the read of `effective`.
    #[cfg(not(loom))]
    if kind.has_ceiling() {
        standing.waits_at.store(0, SeqCst);
    }
    fence_after_update();
    if standing.effective.load(SeqCst) != standing.base.load(Relaxed) {
        refresh(ground, me.task, false);
    }
}

/// The ceiling of `core` has changed: refreshes the owner.
pub(crate) fn ceiling_changed<G: Ground>(ground: &G, core: &Core) {
    fence_after_update();
    let owner = owner_of(core.word.load(SeqCst));
    if owner != 0 {
        refresh(ground, owner, false);
    }
}

/// Sets a task's own priority; returns the one before.
pub(crate) fn set_base<G: Ground>(ground: &G, task: u64, priority: u32) -> Option<u32> {
    let standing = LockedStanding::new(ground, task)?;
    // First: if the calling task is killed before the refresh, `BUSY` says that it is still due.
    let effective = standing.effective.load(Relaxed);
    standing.effective.store(effective | BUSY, Relaxed);
    let before = standing.base.swap(priority, SeqCst);
    drop(standing);
    refresh(ground, task, true);
    Some(before)
}

/// Mirrors a task's priority in the kernel from now on, or no longer; `None` if there is no such task.
#[cfg(not(loom))]
pub(crate) fn set_mirrored<G: Ground>(ground: &G, task: u64, on: bool) -> Option<()> {
    let standing = LockedStanding::new(ground, task)?;
    // Relaxed, here and below: under the lock. The kernel's value may have been changed by others since.
    standing.kernel_priority.store(0, Relaxed);
    standing.mirrored.store(on.into(), Relaxed);
    drop(standing);
    refresh(ground, task, false);
    Some(())
}

/// A task's standing, locked. Until this is dropped the slot gets no other task, even if the task dies: its successor
/// [waits for](WaitRecord::wait_for_writers) this lock.
struct LockedStanding<'a>(&'a Standing);

impl<'a> LockedStanding<'a> {
    /// `None` if there is no such task.
    fn new<G: Ground>(ground: &'a G, task: u64) -> Option<Self> {
        let standing = &ground.record(slot_of(task))?.standing;
        let held = Self::take(standing)?;
        living(ground, task).map(|_| held)
    }

    fn take(standing: &'a Standing) -> Option<Self> {
        // SAFETY: a slot stays where it is, as long as the region is mapped.
        match unsafe { standing.lock.lock_raw(None) } {
            Ok(Acquired::Clean) => {}
            Ok(Acquired::OwnerDied) => {
                // The dead owner may have cleared the flag without setting it again.
                standing.inherits.store(1, Relaxed);
                standing.lock.mark_consistent();
            }
            Err(RawError::Unavailable(_)) => return None,
            Err(_) => crate::fatal(format_args!(
                "a semaphore was used by a signal handler that interrupted its use"
            )),
        }
        Some(Self(standing))
    }
}

impl Deref for LockedStanding<'_> {
    type Target = Standing;

    fn deref(&self) -> &Standing {
        self.0
    }
}

impl Drop for LockedStanding<'_> {
    fn drop(&mut self) {
        // SAFETY: `take` has locked it, and only this value unlocks it.
        unsafe { self.0.lock.unlock_raw() };
    }
}

/// The record of a living task.
pub(crate) fn living<G: Ground>(ground: &G, task: u64) -> Option<&WaitRecord> {
    let record = ground.record(slot_of(task))?;
    (record.task.load(Acquire) == task && ground.is_alive(task)).then_some(record)
}

/// Recomputes a task's priority, and that of each task along the chain that it changes. `anyhow`: goes on to the first
/// owner even if nothing changed.
pub(crate) fn refresh<G: Ground>(ground: &G, task: u64, anyhow: bool) {
    let mut task = task;
    // A longer chain leads round a cycle, whose members get the error.
    for _ in 0..=ground.used() {
        let Some(record) = living(ground, task) else {
            return;
        };
        let Some(changed) = bring_up_to_date(ground, task, record) else {
            return;
        };
        // The priority is stored before the check whether the task waits; `enter` does both in the opposite order.
        unless_fault!(SemaphoreMovesUnordered, fence_after_update(), ());
        // Acquire: pairs with `enter`.
        let object = record.object.load(Acquire);
        if object == 0 || record.word.load(Acquire) & STATE != WAITING {
            return;
        }
        // SAFETY: the task lived and waited for it, so this library stored the address; a core stays a core for ever.
        let core = unsafe { super::core_at(object) };
        let moved = put_in_place(ground, core, task, record);
        if core.form().kind() != Kind::Inherit || !(changed || moved || anyhow) {
            return;
        }
        task = owner_of(core.word.load(SeqCst));
        if task == 0 {
            return;
        }
    }
}

/// Recomputes and stores a task's priority; returns whether it changed, or `None` if there is no such task or its lock
/// cannot be taken.
fn bring_up_to_date<G: Ground>(ground: &G, task: u64, record: &WaitRecord) -> Option<bool> {
    let standing = LockedStanding::new(ground, task)?;
    let before = standing.effective.load(Relaxed) & !BUSY;
    standing.effective.swap(before | BUSY, SeqCst);
    fence_after_update();
    let now = work_out(ground, task, record);
    // First: if this task is killed before the store, the next refresh finds the change again.
    if standing.mirrored.load(Relaxed) != 0 {
        tell(ground, slot_of(task), record, [before, now]);
    }
    // Release: a task that sees it sees its inputs.
    standing.effective.store(now, Release);
    if now != before {
        ground.has_changed(slot_of(task), now);
    }
    Some(now != before)
}

/// Sets a task's priority in the kernel, unless the kernel has it. Under the lock of the task's standing.
#[cfg(not(loom))]
fn tell<G: Ground>(ground: &G, slot: u16, record: &WaitRecord, [_, now]: [u32; 2]) {
    let standing = &record.standing;
    let spins_at = standing.spins_at.load(Relaxed);
    // Acquire: pairs with the end of a wait. The task that ended the wait comes here after that.
    let due = if spins_at != 0 && record.word.load(Acquire) & STATE == WAITING {
        spins_at
    } else {
        now
    };
    if standing.kernel_priority.load(Relaxed) != due {
        // First: a task killed in between leaves the kernel's value unknown.
        standing.kernel_priority.store(0, Relaxed);
        if ground.mirror(slot, due) {
            standing.kernel_priority.store(due, Relaxed);
        }
    }
}

#[cfg(loom)]
fn tell<G: Ground>(ground: &G, slot: u16, _: &WaitRecord, [before, now]: [u32; 2]) {
    if now != before {
        ground.mirror(slot, now);
    }
}

/// The best of a task's own priority, ceilings, and inherited priorities.
fn work_out<G: Ground>(ground: &G, task: u64, record: &WaitRecord) -> u32 {
    let mut best = record.standing.base.load(SeqCst);
    let is_owned = |core: &Core| owner_of(core.word.load(SeqCst)) == task;
    // Read before and after the list: a ceiling moves from here to the list, or the other way round.
    let see_ceiling = |best: &mut u32| {
        #[cfg(not(loom))]
        if let waits_at @ 1.. = record.standing.waits_at.load(SeqCst) {
            *best = waits_at.min(*best);
        }
        let _ = best;
    };
    see_ceiling(&mut best);
    // A semaphore that it was handed, but has not linked yet, or has not noticed yet.
    let object = record.object.load(Acquire);
    if object != 0 {
        // SAFETY: as in `refresh`: this library stored the address, and a core stays a core for ever.
        let core = unsafe { super::core_at(object) };
        if core.form().kind() == Kind::Ceiling && is_owned(core) {
            best = best.min(core.ceiling.load(SeqCst));
        }
    }
    let mut address = record.standing.ceilings.load(Acquire);
    for _ in 0..FAR {
        if address == 0 {
            break;
        }
        // SAFETY: the address is from the task's list of cores; a core stays a core for ever.
        let core = unsafe { super::core_at(address) };
        address = core.next_held.load(Acquire);
        // A core enters the list after it is owned, and leaves it before it is given up. So the list has changed since,
        // this link may lead anywhere, and the walk begins again.
        if is_owned(core) {
            best = best.min(in_force(core));
        } else {
            address = record.standing.ceilings.load(Acquire);
        }
    }
    see_ceiling(&mut best);
    inherited(ground, task, &record.standing).map_or(best, |inherited| inherited.min(best))
}

/// The best priority of the tasks that wait for inheriting semaphores of this task. Under the lock of its standing.
fn inherited<G: Ground>(ground: &G, task: u64, standing: &Standing) -> Option<u32> {
    // SeqCst, here and below: see the head.
    if standing.inherits.load(SeqCst) == 0 {
        return None;
    }
    let forget = || {
        standing.inherits.swap(0, SeqCst);
        fence_after_update();
    };
    let forgets_first = unless_fault!(SemaphoreForgetsLate, true, false);
    if forgets_first {
        forget();
    }
    let mut best = None;
    for slot in 0..ground.used() {
        let Some(waiter) = ground.record(slot) else {
            break;
        };
        // The task itself, if just made the owner, may still have `WAITING` in its record: it does not inherit from
        // itself.
        if slot == slot_of(task) || waiter.word.load(SeqCst) & STATE != WAITING {
            continue;
        }
        let object = waiter.object.load(Acquire);
        if object == 0 || !ground.is_alive(waiter.task.load(Acquire)) {
            continue;
        }
        // SAFETY: as in `refresh`: this library stored the address, and a core stays a core for ever.
        let core = unsafe { super::core_at(object) };
        if core.form().kind() == Kind::Inherit && owner_of(core.word.load(SeqCst)) == task {
            let inherited = waiter.standing.effective.load(SeqCst) & !BUSY;
            best = Some(best.map_or(inherited, |best: u32| best.min(inherited)));
        }
    }
    if !forgets_first {
        forget();
    }
    if best.is_some() {
        // Relaxed: the next refresh reads it under the lock.
        standing.inherits.store(1, Relaxed);
    }
    best
}

/// Moves a waiting task to the position of its priority; returns whether that is another one.
fn put_in_place<G: Ground>(ground: &G, core: &Core, task: u64, record: &WaitRecord) -> bool {
    // Relaxed: read again under the lock.
    if !core.form().is_by_priority() {
        return false;
    }
    // If the lock cannot be taken, the task stays at its position.
    Locked::new(ground, core).is_ok_and(|locked| put_in_place_under(&locked, task, record))
}

fn put_in_place_under<G: Ground>(locked: &Locked<'_, G>, task: u64, record: &WaitRecord) -> bool {
    let slot = slot_of(task);
    let is_here = locked.waiter(slot).is_some() && record.task.load(Relaxed) == task;
    let priority = record.standing.effective.load(Acquire) & !BUSY;
    if !is_here || record.priority.load(Relaxed) == priority {
        return false;
    }
    locked.remove(slot);
    record.priority.store(priority, Relaxed);
    record.ticket.store(locked.ticket(), Relaxed);
    locked.insert(slot);
    true
}
