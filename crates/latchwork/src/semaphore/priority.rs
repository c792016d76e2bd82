//! Effective priorities of tasks: ceilings, and priority inheritance.
//!
//! A task's *effective* priority is the best of
//! 1. its own (base) priority,
//! 2. the ceilings of the semaphores with a ceiling that it owns,
//! 3. the effective priorities of the tasks that wait for inheriting semaphores that it owns.
//!
//! Rule 3 is priority inheritance. It is transitive: if A waits for B, and B waits for C, then C gets A's priority
//! through B.
//!
//! # The algorithm
//!
//! No priority is raised or lowered by steps, and no list of donations is kept. Each time, a task's priority is
//! recomputed from the rules above and the shared records: which task waits for which semaphore, and which task owns
//! it. A task that changes an input (it begins or ends a wait, obtains, releases, or sets a priority) first makes the
//! change, and then calls [`refresh`] for the task whose priority depends on it:
//!
//! ```text
//! refresh(task):
//!     repeat
//!         lock the task's standing; set BUSY in `effective`
//!         priority := best of the three rules, computed from the records
//!         inform the kernel, if the task is mirrored
//!         effective := priority (clears BUSY); unlock
//!         if the task does not wait: return
//!         lock the semaphore that it waits for; move the task to its new place in the queue; unlock
//!         if that semaphore does not inherit, or neither priority nor place has changed: return
//!         task := the owner of that semaphore         (the next link of the chain)
//! ```
//!
//! An example. L, with priority 200, owns the inheriting semaphore S. H, with priority 10, obtains S: H enters the
//! queue of S, sets L's flag `inherits`, reads that L's effective priority, 200, is worse than its own, and calls
//! `refresh(L)`. That reads all records, finds H, and stores 10. L releases S to H, reads that its effective priority,
//! 10, is not its own, and calls `refresh(L)`, which finds no waiter and stores 200. If H's wait ends by its deadline
//! instead, H leaves the queue and calls `refresh(L)`. If L itself waits for an inheriting semaphore of M, each of
//! these refreshes of L goes on to M.
//!
//! # Fields
//!
//! The input and the result are in the task's slot, in its [`Standing`]:
//!
//! | field | meaning | changed by |
//! | --- | --- | --- |
//! | `base` | the task's own priority | [`set_base`], under the lock |
//! | `ceilings` | the list of the owned semaphores that have a ceiling | the task itself |
//! | `inherits` | 0: no task waits for an inheriting semaphore that the task owns; 1: one may | set to 1 by a waiter and by a hand-over; cleared under the lock |
//! | `effective` | the effective priority; with [`BUSY`]: a refresh is under way, or was cut short | [`refresh`], under the lock |
//! | `lock` | a region lock | the task that refreshes |
//!
//! # Why the last result is right
//!
//! Each change is made before its refresh, and the lock serialises the refreshes of one task: of two refreshes, the
//! second one sees both changes. A refresh computes its result from the records alone, so a task that is killed in a
//! refresh leaves nothing but a lock that the next task takes over.
//!
//! # When no refresh is needed
//!
//! A waiter whose priority is not better than the owner's changes nothing. Nor does a release by a task whose effective
//! priority is its own. Both check this by one read of `effective`, without the lock. The two sides are ordered so:
//!
//! | the task that changes an input | a refresh by another task |
//! | --- | --- |
//! | stores its change | sets `BUSY` |
//! | full barrier | full barrier |
//! | reads `effective` | reads the inputs |
//!
//! So the task sees `BUSY`, or a later result, or the refresh sees the change. If the task sees `BUSY`, it calls
//! `refresh` itself.
//!
//! # The flag `inherits`
//!
//! To find the waiters of its inheriting semaphores, a task's refresh must read the records of all tasks. A task without
//! such waiters should not pay for that at each of its ceilings. The flag avoids it:
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
//! read of all records.
//!
//! # Death of a task
//!
//! A task killed between clearing and setting the flag leaves the standing's lock with a dead owner, and the next owner
//! of that lock sets the flag. A task killed between a hand-over and setting the flag leaves the object's lock with a
//! dead owner, and the recovery of the object sets it.
//!
//! A task that dies before its refresh, or during it, may leave another task's priority unchanged: for example, a
//! waiter's death leaves the owner's priority too high. The death wakes all waiters; each refreshes its own priority,
//! and then those along its chain. A task that does not wait gets the right priority when it releases an inheriting
//! semaphore or one with a ceiling, or from another refresh. A task that begins to wait checks whether a change of its
//! own priority was left unfinished: then `BUSY` is set.
//!
//! *Reuse of a slot.* Other tasks write a task's record under one of two locks, that of the semaphore it waits for and
//! that of its standing, and only if they saw the task alive while they held the lock. The next task in the slot waits
//! for the owners of both before it uses the record (`region/wait_record.rs`); so no write that was meant for its
//! predecessor reaches it.
//!
//! # Locks and bounds
//!
//! No lock is held while another is taken, and there is no lock that all tasks share. A refresh follows a chain of
//! owners link by link, and it is enough that each link is right after the last change to it. It follows at most as many
//! links as there are slots.
//!
//! # Numbers
//!
//! Priorities are RTEMS's: 1, the highest, to 255. The kernel runs a mirrored task at `SCHED_FIFO` 100 − *p* for 1 to
//! 98, at `SCHED_FIFO` 1 for 99 to 254, and as an ordinary task for 255. Without the privilege, or for tasks that are
//! not mirrored, only the recorded priorities decide which task is served first, and the kernel does not know them. A
//! task begins with the priority that its thread has in the kernel.

mod compute;

use super::object::{core_at, owner_of, slot_of};
use super::task_table::take_lock;
use super::{Access, Caller, Core, Kind, Locked, TaskTable};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{fence_after_update, unless_fault};
use crate::mutex::Acquired;
use crate::region::wait_record::{BUSY, STATE, Standing, WAITING, WaitRecord};
use compute::{ceiling_in_force, compute};
use core::ops::Deref;

/// A task's standing, locked. Until this is dropped the slot gets no other task, even if the task dies: its successor
/// waits for the owner of this lock (`region/wait_record.rs`).
struct LockedStanding<'a>(&'a Standing);

impl<'a> LockedStanding<'a> {
    /// `None` if there is no such task, or the lock cannot be taken.
    #[inline]
    fn new<T: TaskTable>(tasks: &'a T, task: u64) -> Option<Self> {
        let standing = &tasks.record(slot_of(task))?.standing;
        let acquired = take_lock(&standing.lock).ok()?;
        let held = Self(standing);
        if acquired == Acquired::OwnerDied {
            // The dead owner may have cleared the flag without setting it again.
            crate::atomic::unless_disabled!(
                StandingInheritsAgain,
                standing.inherits.store(1, Relaxed),
                ()
            );
            // SAFETY: taken above.
            unsafe { standing.lock.mark_raw_consistent() };
        }
        living(tasks, task).map(|_| held)
    }
}

impl Deref for LockedStanding<'_> {
    type Target = Standing;

    #[inline]
    fn deref(&self) -> &Standing {
        self.0
    }
}

impl Drop for LockedStanding<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has locked it, and only this value unlocks it.
        unsafe { self.0.lock.unlock_raw() };
    }
}

/// The record of a living task.
#[inline]
pub(crate) fn living<T: TaskTable>(tasks: &T, task: u64) -> Option<&WaitRecord> {
    let record = tasks.record(slot_of(task))?;
    (record.task.load(Acquire) == task && tasks.is_alive(task)).then_some(record)
}

/// Whether the owner should run at the calling task's priority: it inherits, and its own is worse.
#[inline]
pub(super) fn outranks_owner<T: TaskTable>(access: &Access<'_, T>, owner: u64) -> bool {
    access.core.form().kind() == Kind::Inherit
        && access.tasks.record(slot_of(owner)).is_some_and(|record| {
            access.caller.priority() < record.standing.effective.load(Relaxed) & !BUSY
        })
}

/// The calling task waits for `core`: raises the owner to its priority, if the owner inherits.
pub(crate) fn donate<T: TaskTable>(tasks: &T, core: &Core, caller: Caller<'_>) {
    if core.form().kind() != Kind::Inherit {
        return;
    }
    // The barrier is that of `enqueue`; the lock's release comes after it.
    fence_after_update();
    let owner = owner_of(core.word.load(SeqCst));
    // If another task has become the owner since, the hand-over saw this task in the queue.
    if let Some(record) = tasks.record(slot_of(owner)) {
        set_inherits(&record.standing);
        // The task's own priority is read after the flag was set: a task that changed it before may have found the
        // owner without waiters.
        fence_after_update();
        refresh_if_worse(tasks, owner, record, caller.priority());
    }
}

/// Sets `inherits`: a task may wait for an inheriting semaphore of this standing's task.
pub(crate) fn set_inherits(standing: &Standing) {
    // Relaxed: ordered by the barrier after the caller's publication. Usually the flag is set already.
    if standing.inherits.load(Relaxed) == 0 {
        // AcqRel: pairs with the reads in `inherited`.
        standing.inherits.swap(1, AcqRel);
    }
}

/// A task was handed an inheriting semaphore that others wait for, the first of them at priority `next`: refreshes it
/// if its own is worse, since its own may have been lowered after it was chosen as the best waiter.
pub(super) fn refresh_heir<T: TaskTable>(tasks: &T, heir: u64, next: u32) {
    if let Some(record) = tasks.record(slot_of(heir)) {
        fence_after_update();
        unless_fault!(
            SemaphoreHeirUnseen,
            refresh_if_worse(tasks, heir, record, next),
            ()
        );
    }
}

/// Refreshes a task if its effective priority is worse than `priority`. After a full barrier of the caller.
fn refresh_if_worse<T: TaskTable>(tasks: &T, task: u64, record: &WaitRecord, priority: u32) {
    let seen = record.standing.effective.load(SeqCst);
    // A number with BUSY is worse than any priority.
    if priority < unless_fault!(SemaphoreLooksPastBusy, seen, seen & !BUSY) {
        refresh(tasks, task, false);
    }
}

/// A wait for `core` has ended: refreshes the owner, if it inherits.
pub(crate) fn refresh_owner<T: TaskTable>(tasks: &T, core: &Core) {
    if core.form().kind() == Kind::Inherit {
        refresh_present_owner(tasks, core);
    }
}

fn refresh_present_owner<T: TaskTable>(tasks: &T, core: &Core) {
    let owner = owner_of(core.word.load(SeqCst));
    if owner != 0 {
        refresh(tasks, owner, false);
    }
}

/// The calling task owns `core`, which has a ceiling: enters it into the task's list, and refreshes the task.
pub(crate) fn push_ceiling<T: TaskTable>(tasks: &T, core: &Core, caller: Caller<'_>) {
    let standing = &caller.record.standing;
    // Relaxed: only the task itself changes the list.
    core.next_held
        .store(standing.ceilings.load(Relaxed), Relaxed);
    // AcqRel: pairs with the Acquire in `compute`. It is an exchange, since the fence must follow one.
    standing.ceilings.swap(core.address(), AcqRel);
    fence_after_update();
    if ceiling_in_force(core) < standing.effective.load(SeqCst) {
        refresh(tasks, caller.task, false);
    }
}

/// The calling task is about to release `core`, which has a ceiling: removes it from the task's list. It must leave the
/// list before another task links it; but the task must keep the ceiling until it has released (`waits_at`).
pub(crate) fn remove_ceiling(core: &Core, caller: Caller<'_>) {
    // Relaxed: published by the list, which is read before it.
    #[cfg(not(loom))]
    caller
        .record
        .standing
        .waits_at
        .store(ceiling_in_force(core).max(1), Relaxed);
    let next = core.next_held.load(Relaxed);
    let mut link = &caller.record.standing.ceilings;
    // Usually it is the first.
    while link.load(Relaxed) != core.address() {
        let address = link.load(Relaxed);
        if address == 0 {
            return;
        }
        // SAFETY: the list contains cores that this task owns; a core is never moved or freed.
        link = unsafe { &core_at(address).next_held };
    }
    link.store(next, Release);
}

/// The calling task has released `core`: gives up the priority that it had by it.
#[inline]
pub(crate) fn lower_priority<T: TaskTable>(tasks: &T, core: &Core, caller: Caller<'_>) {
    let kind = core.form().kind();
    if kind != Kind::Inherit && !kind.has_ceiling() {
        return;
    }
    let standing = &caller.record.standing;
    // SeqCst: ordered before the read of `effective`.
    #[cfg(not(loom))]
    if kind.has_ceiling() {
        standing.waits_at.store(0, SeqCst);
    }
    fence_after_update();
    if standing.effective.load(SeqCst) != standing.base.load(Relaxed) {
        refresh(tasks, caller.task, false);
    }
}

/// The ceiling of `core` has changed: refreshes the owner.
pub(crate) fn ceiling_changed<T: TaskTable>(tasks: &T, core: &Core) {
    fence_after_update();
    refresh_present_owner(tasks, core);
}

/// Sets a task's own priority; returns the one before.
pub(crate) fn set_base<T: TaskTable>(tasks: &T, task: u64, priority: u32) -> Option<u32> {
    let standing = LockedStanding::new(tasks, task)?;
    // First: if the calling task is killed before the refresh, `BUSY` says that it is still due.
    let effective = standing.effective.load(Relaxed);
    standing.effective.store(effective | BUSY, Relaxed);
    let before = standing.base.swap(priority, SeqCst);
    drop(standing);
    refresh(tasks, task, true);
    Some(before)
}

/// Mirrors a task's priority in the kernel from now on, or no longer; `None` if there is no such task.
#[cfg(not(loom))]
pub(crate) fn set_mirrored<T: TaskTable>(tasks: &T, task: u64, on: bool) -> Option<()> {
    let standing = LockedStanding::new(tasks, task)?;
    // Relaxed, here and below: under the lock. The kernel's value may have been changed by others since.
    standing.kernel_priority.store(0, Relaxed);
    standing.mirrored.store(on.into(), Relaxed);
    drop(standing);
    refresh(tasks, task, false);
    Some(())
}

/// Recomputes a task's priority, and that of each task along the chain that it changes. `always_follow`: goes on to the
/// first owner even if nothing changed.
pub(crate) fn refresh<T: TaskTable>(tasks: &T, mut task: u64, always_follow: bool) {
    // A longer chain leads round a cycle, whose members get the error.
    for _ in 0..=tasks.used() {
        let Some(record) = living(tasks, task) else {
            return;
        };
        let Some(changed) = recompute(tasks, task, record) else {
            return;
        };
        // The priority is stored before the check whether the task waits; `enqueue` does both in the opposite order.
        unless_fault!(SemaphoreMovesUnordered, fence_after_update(), ());
        // Acquire: pairs with `enqueue`.
        let object = record.object.load(Acquire);
        if object == 0 || record.word.load(Acquire) & STATE != WAITING {
            return;
        }
        // SAFETY: the task lived and waited for it, so this library stored the address; a core stays a core for ever.
        let core = unsafe { core_at(object) };
        let moved = requeue(tasks, core, task, record);
        if core.form().kind() != Kind::Inherit || !(changed || moved || always_follow) {
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
fn recompute<T: TaskTable>(tasks: &T, task: u64, record: &WaitRecord) -> Option<bool> {
    let standing = LockedStanding::new(tasks, task)?;
    let before = standing.effective.load(Relaxed) & !BUSY;
    standing.effective.swap(before | BUSY, SeqCst);
    fence_after_update();
    let now = compute(tasks, task, record);
    // First: if this task is killed before the store, the next refresh finds the change again.
    if standing.mirrored.load(Relaxed) != 0 {
        update_kernel(tasks, task, record, [before, now]);
    }
    // Release: a task that sees it sees its inputs.
    standing.effective.store(now, Release);
    if now != before {
        tasks.priority_changed(slot_of(task), now);
    }
    Some(now != before)
}

/// Sets a task's priority in the kernel, unless the kernel has it. Under the lock of the task's standing.
#[cfg(not(loom))]
fn update_kernel<T: TaskTable>(tasks: &T, task: u64, record: &WaitRecord, [_, now]: [u32; 2]) {
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
        if tasks.mirror(task, due) {
            standing.kernel_priority.store(due, Relaxed);
        }
    }
}

#[cfg(loom)]
fn update_kernel<T: TaskTable>(tasks: &T, task: u64, _: &WaitRecord, [before, now]: [u32; 2]) {
    if now != before {
        tasks.mirror(task, now);
    }
}

/// Moves a waiting task to the position of its priority; returns whether that is another one.
fn requeue<T: TaskTable>(tasks: &T, core: &Core, task: u64, record: &WaitRecord) -> bool {
    // Relaxed: read again under the lock.
    if !core.form().is_by_priority() {
        return false;
    }
    // If the lock cannot be taken, the task stays at its position.
    Locked::new(tasks, core).is_ok_and(|locked| requeue_locked(&locked, task, record))
}

fn requeue_locked<T: TaskTable>(locked: &Locked<'_, T>, task: u64, record: &WaitRecord) -> bool {
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
