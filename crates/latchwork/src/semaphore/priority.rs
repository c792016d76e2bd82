//! The priority that counts.
//!
//! A task's *effective* priority is the best of its own, of the ceilings of what it owns, and of the
//! effective priorities of those who wait for inheriting semaphores that it owns. It is kept in the task's
//! slot; whoever changes something it rests on has it worked out afterwards ([`refresh`]), from the records
//! alone, and if it is another one by then, the task is put elsewhere in the queue that it stands in, and the
//! owner of what it waits for is next.
//!
//! *The last word is right.* To work a priority out is to take the small robust lock in the task's slot, to
//! read what it rests on, and to store the result. Each change is made before its refresh: of two refreshes
//! the second sees both changes. So nothing is changed step by step, and one that is killed leaves nothing
//! but a lock that the next one takes over.
//!
//! *Who need not.* A waiter whose priority is not better than the owner's changes nothing; nor does a
//! release by a task that has no other priority than its own. Both see that by one look at the owner's effective
//! priority, without its lock. While a refresh is under way that has [`BUSY`] set: the one who looks and the
//! one who works out each first store, then pass a full barrier, then look; so the first sees `BUSY`, or
//! the second sees the change.
//!
//! *Whose waiters count?* Those of inheriting semaphores. To find them is to look at all records, which a task that
//! nobody waits for should not have to do at each of its ceilings. So its standing says whether there may be any
//! (`inherits`). Who begins to wait is to be seen waiting, passes a full barrier, and sets that; who hands over
//! what others wait for names the new owner, and sets that of this one. Who works the priority out clears it, passes
//! a full barrier, looks at the records, and sets it again if it finds anybody: so it finds them, or they set it
//! afterwards. After that both look at the effective priority, as above: who worked it out before has not missed
//! them. Set for nothing it costs a look round. A kill between clearing and setting leaves a dead owner's lock,
//! whose next holder sets it; one between a hand-over and setting leaves that to who puts the object right.
//!
//! *Who dies before its refresh,* or in the midst of it, may leave another task's priority what it was: a waiter that
//! died that of the owner too high, for example. All who wait are woken by the death, work out their own anew, and
//! from there along the chain; a task that does not wait gets it right as it releases anything, or another refresh
//! comes by. One that begins to wait looks whether a change of its own was left unfinished, which `BUSY` says.
//!
//! *Whose record is it?* A task's record is written by others under one of two locks, that of what it waits for and
//! that of its priority, and only if the task lived when that lock was held already. The next task in the slot goes
//! through both locks before it settles in ([`WaitRecord::outlast`]), so that nobody takes it for its predecessor.
//!
//! *No lock is held while another is taken*, and there is none that all share: a chain of owners is gone
//! along link by link, and it is enough that every link is right after the last change to it.
//!
//! *Mapping.* Priorities are RTEMS's: 1, the highest, to 255. Where a task is mirrored, the kernel runs it
//! at `SCHED_FIFO` 100 − *p* for 1 to 98, at 1 for 99 to 254, and as an ordinary task at 255. Without the
//! right to, or for tasks that are not mirrored, the recorded priorities alone decide who is served first,
//! and the kernel knows nothing of them. A task begins with the priority that the kernel gives it.

use super::ground::Ground;
use super::object::{Core, Kind, owner_of, slot_of};
use super::wait::Me;
use super::wait_queue::Locked;
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{fence_after_update, unless_fault};
use crate::mutex::{Acquired, RawError};
use crate::region::wait_record::{BUSY, STATE, Standing, WAITING, WaitRecord};
use core::ops::Deref;

/// Longer than any list of ceilings; one that is changed while it is read may seem endless.
const FAR: usize = 1 << 16;

/// Whether the owner is to run at the calling task's priority.
#[inline]
pub(crate) fn is_owed<G: Ground>(ground: &G, core: &Core, me: Me<'_>, owner: u64) -> bool {
    core.form().kind() == Kind::Inherit
        && ground
            .record(slot_of(owner))
            .is_some_and(|record| me.priority() < record.standing.effective.load(Relaxed) & !BUSY)
}

/// The calling task waits for `core`: lets the owner have its priority.
pub(crate) fn donate<G: Ground>(ground: &G, core: &Core, me: Me<'_>) {
    if core.form().kind() != Kind::Inherit {
        return;
    }
    // The barrier is that of `enter`; the lock's release comes behind it.
    fence_after_update();
    let owner = owner_of(core.word.load(SeqCst));
    // Should another be the owner by now, who made it so has seen this task in the queue.
    if let Some(record) = ground.record(slot_of(owner)) {
        has_waiters(&record.standing);
        // Its own priority behind that: who has changed it meanwhile may have found the owner without waiters.
        fence_after_update();
        give(ground, owner, record, me.priority());
    }
}

/// Somebody waits for what the task owns.
pub(crate) fn has_waiters(standing: &Standing) {
    // Relaxed: ordered by the barrier behind what the caller has made known. As it is, most of the time.
    if standing.inherits.load(Relaxed) == 0 {
        // AcqRel: pairs with the looks in `inherited`.
        standing.inherits.swap(1, AcqRel);
    }
}

/// A task was handed what it inherits by and others wait for, the first of them at this priority: its own may have
/// been made a lower one since it was found to be the best.
pub(super) fn endow<G: Ground>(ground: &G, heir: u64, next: u32) {
    if let Some(record) = ground.record(slot_of(heir)) {
        fence_after_update();
        unless_fault!(SemaphoreHeirUnseen, give(ground, heir, record, next), ());
    }
}

/// A task is to have this priority, if it has none that is better. Behind a full barrier.
fn give<G: Ground>(ground: &G, task: u64, record: &WaitRecord, priority: u32) {
    let seen = record.standing.effective.load(SeqCst);
    // A number with BUSY is worse than any priority.
    if priority < unless_fault!(SemaphoreLooksPastBusy, seen, seen & !BUSY) {
        refresh(ground, task, false);
    }
}

/// Somebody waits for `core` no more: the owner's priority may be another one.
pub(crate) fn pass_on<G: Ground>(ground: &G, core: &Core) {
    if core.form().kind() == Kind::Inherit {
        let owner = owner_of(core.word.load(SeqCst));
        if owner != 0 {
            refresh(ground, owner, false);
        }
    }
}

/// The calling task owns `core`, which has a ceiling.
pub(crate) fn has_ceiling<G: Ground>(ground: &G, core: &Core, me: Me<'_>) {
    let standing = &me.record.standing;
    // Relaxed: the list is changed by its task alone.
    core.next_held
        .store(standing.ceilings.load(Relaxed), Relaxed);
    // AcqRel: pairs with the Acquire in `work_out`. An exchange, for the fence to come after one.
    standing.ceilings.swap(core.address(), AcqRel);
    fence_after_update();
    if in_force(core) < standing.effective.load(SeqCst) {
        refresh(ground, me.task, false);
    }
}

/// The priority that the owner of what has a ceiling has at least.
fn in_force(core: &Core) -> u32 {
    if core.form().kind() == Kind::Mrsp {
        core.in_force.load(SeqCst)
    } else {
        core.ceiling.load(SeqCst)
    }
}

/// The calling task is about to give up `core`, which has a ceiling. From its list that must be gone before anybody
/// else links it, the ceiling from the task not before.
pub(crate) fn had_ceiling(core: &Core, me: Me<'_>) {
    // Relaxed: published by the list, which is looked at before.
    #[cfg(not(loom))]
    me.record
        .standing
        .waits_at
        .store(in_force(core).max(1), Relaxed);
    let next = core.next_held.load(Relaxed);
    let mut link = &me.record.standing.ceilings;
    // Mostly it is the first.
    while link.load(Relaxed) != core.address() {
        let address = link.load(Relaxed);
        if address == 0 {
            return;
        }
        // SAFETY: a core that this task owns.
        link = unsafe { &super::core_at(address).next_held };
    }
    link.store(next, Release);
}

/// The calling task has given up `core`: gives back what it had by it.
#[inline]
pub(crate) fn had_more<G: Ground>(ground: &G, core: &Core, me: Me<'_>) {
    let kind = core.form().kind();
    if kind != Kind::Inherit && !kind.has_ceiling() {
        return;
    }
    let standing = &me.record.standing;
    // SeqCst: before the look.
    #[cfg(not(loom))]
    if kind.has_ceiling() {
        standing.waits_at.store(0, SeqCst);
    }
    fence_after_update();
    if standing.effective.load(SeqCst) != standing.base.load(Relaxed) {
        refresh(ground, me.task, false);
    }
}

/// The ceiling of `core` has changed.
pub(crate) fn ceiling_changed<G: Ground>(ground: &G, core: &Core) {
    fence_after_update();
    let owner = owner_of(core.word.load(SeqCst));
    if owner != 0 {
        refresh(ground, owner, false);
    }
}

/// Gives a task another priority of its own; the one that it had.
pub(crate) fn set_base<G: Ground>(ground: &G, task: u64, priority: u32) -> Option<u32> {
    let standing = LockedStanding::new(ground, task)?;
    // First: should the calling task be killed before it has worked out the rest, this says that it is to be done.
    let effective = standing.effective.load(Relaxed);
    standing.effective.store(effective | BUSY, Relaxed);
    let before = standing.base.swap(priority, SeqCst);
    drop(standing);
    refresh(ground, task, true);
    Some(before)
}

/// Has the kernel told of a task's priority from now on, or no longer; `None` if there is no such task.
#[cfg(not(loom))]
pub(crate) fn set_mirrored<G: Ground>(ground: &G, task: u64, on: bool) -> Option<()> {
    let standing = LockedStanding::new(ground, task)?;
    // Relaxed, here and below: under the lock. What the kernel was told before may be undone by now.
    standing.told.store(0, Relaxed);
    standing.mirrored.store(on.into(), Relaxed);
    drop(standing);
    refresh(ground, task, false);
    Some(())
}

/// What a task's priority rests on, locked; until this is dropped the slot is nobody else's, even if the task dies:
/// its successor [outlasts](WaitRecord::outlast) this.
struct LockedStanding<'a>(&'a Standing);

impl<'a> LockedStanding<'a> {
    /// `None` if there is no such task.
    fn new<G: Ground>(ground: &'a G, task: u64) -> Option<Self> {
        let standing = &ground.record(slot_of(task))?.standing;
        let held = Self::take(standing)?;
        living(ground, task).map(|_| held)
    }

    fn take(standing: &'a Standing) -> Option<Self> {
        // SAFETY: a slot stays where it is.
        match unsafe { standing.lock.lock_raw(None) } {
            Ok(Acquired::Clean) => {}
            Ok(Acquired::OwnerDied) => {
                // The dead one may have cleared it, and not set it again.
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
        // SAFETY: locked by `take`.
        unsafe { self.0.lock.unlock_raw() };
    }
}

/// The record of a task that lives.
pub(crate) fn living<G: Ground>(ground: &G, task: u64) -> Option<&WaitRecord> {
    let record = ground.record(slot_of(task))?;
    (record.task.load(Acquire) == task && ground.is_alive(task)).then_some(record)
}

/// Works out a task's priority, and that of all whom it changes. `anyhow`: also if it is what it was.
pub(crate) fn refresh<G: Ground>(ground: &G, task: u64, anyhow: bool) {
    let mut task = task;
    // A chain that is longer goes round in a circle, of which somebody is told.
    for _ in 0..=ground.used() {
        let Some(record) = living(ground, task) else {
            return;
        };
        let Some(changed) = bring_up_to_date(ground, task, record) else {
            return;
        };
        // The priority before the look at what the task waits for; `enter` has it the other way round.
        unless_fault!(SemaphoreMovesUnordered, fence_after_update(), ());
        // Acquire: pairs with `enter`.
        let object = record.object.load(Acquire);
        if object == 0 || record.word.load(Acquire) & STATE != WAITING {
            return;
        }
        // SAFETY: the task lived, and waited for it: the address was stored by this library, and what is
        // there once is a core for ever.
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

/// Whether the priority is another one than before; `None` if there is no such task, or it cannot be worked out.
fn bring_up_to_date<G: Ground>(ground: &G, task: u64, record: &WaitRecord) -> Option<bool> {
    let standing = LockedStanding::new(ground, task)?;
    let before = standing.effective.load(Relaxed) & !BUSY;
    standing.effective.swap(before | BUSY, SeqCst);
    fence_after_update();
    let now = work_out(ground, task, record);
    // First: should this task be killed before the store, the next one finds the change anew.
    if standing.mirrored.load(Relaxed) != 0 {
        tell(ground, slot_of(task), record, [before, now]);
    }
    // Release: who sees it sees what it rests on.
    standing.effective.store(now, Release);
    if now != before {
        ground.has_changed(slot_of(task), now);
    }
    Some(now != before)
}

/// Tells the kernel of a task's priority, unless it knows. Under the lock of the task's priority.
#[cfg(not(loom))]
fn tell<G: Ground>(ground: &G, slot: u16, record: &WaitRecord, [_, now]: [u32; 2]) {
    let standing = &record.standing;
    let spins_at = standing.spins_at.load(Relaxed);
    // Acquire: pairs with the end of a wait. Who ended it comes here after that.
    let due = if spins_at != 0 && record.word.load(Acquire) & STATE == WAITING {
        spins_at
    } else {
        now
    };
    if standing.told.load(Relaxed) != due {
        // First: who is killed in between leaves it open what the kernel knows.
        standing.told.store(0, Relaxed);
        if ground.mirror(slot, due) {
            standing.told.store(due, Relaxed);
        }
    }
}

#[cfg(loom)]
fn tell<G: Ground>(ground: &G, slot: u16, _: &WaitRecord, [before, now]: [u32; 2]) {
    if now != before {
        ground.mirror(slot, now);
    }
}

/// The best of what a task's priority rests on.
fn work_out<G: Ground>(ground: &G, task: u64, record: &WaitRecord) -> u32 {
    let mut best = record.standing.base.load(SeqCst);
    let is_owned = |core: &Core| owner_of(core.word.load(SeqCst)) == task;
    // Before the list and behind it: a task first has the ceiling here and then there, or the other way round.
    let see_ceiling = |best: &mut u32| {
        #[cfg(not(loom))]
        if let waits_at @ 1.. = record.standing.waits_at.load(SeqCst) {
            *best = waits_at.min(*best);
        }
        let _ = best;
    };
    see_ceiling(&mut best);
    // What it was handed, and has not linked yet, or not even been told of.
    let object = record.object.load(Acquire);
    if object != 0 {
        // SAFETY: as in `refresh`.
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
        // SAFETY: as above.
        let core = unsafe { super::core_at(address) };
        address = core.next_held.load(Acquire);
        // What is on the list is owned: it comes there after, and goes before. So the list is another one by
        // now, and where this link leads nobody knows.
        if is_owned(core) {
            best = best.min(in_force(core));
        } else {
            address = record.standing.ceilings.load(Acquire);
        }
    }
    see_ceiling(&mut best);
    inherited(ground, task, &record.standing).map_or(best, |inherited| inherited.min(best))
}

/// The best priority of those who wait for what a task owns and inherits by. Under the lock of its standing.
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
        // The task itself, just made the owner, may still say that it waits: it does not inherit from itself.
        if slot == slot_of(task) || waiter.word.load(SeqCst) & STATE != WAITING {
            continue;
        }
        let object = waiter.object.load(Acquire);
        if object == 0 || !ground.is_alive(waiter.task.load(Acquire)) {
            continue;
        }
        // SAFETY: as in `refresh`.
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
        // Relaxed: of interest under the lock.
        standing.inherits.store(1, Relaxed);
    }
    best
}

/// Puts a waiting task where its priority says; whether that is elsewhere.
fn put_in_place<G: Ground>(ground: &G, core: &Core, task: u64, record: &WaitRecord) -> bool {
    // Relaxed: looked at again under the lock.
    if !core.form().is_by_priority() {
        return false;
    }
    // Who cannot lock leaves the task where it is.
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
