//! The effective priority of a task, computed from the records alone.

use crate::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::atomic::{fence_after_update, unless_fault};
use crate::region::wait_record::{BUSY, STATE, Standing, WAITING, WaitRecord};
use crate::semaphore::object::{core_at, owner_of, slot_of};
use crate::semaphore::{Core, Kind, TaskTable};

/// Longer than any list of ceilings; a list that changes while it is read may seem endless.
const MAX_LIST: usize = 1 << 16;

/// The best of a task's own priority, ceilings, and inherited priorities.
#[inline]
pub(super) fn compute<T: TaskTable>(tasks: &T, task: u64, record: &WaitRecord) -> u32 {
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
        let core = unsafe { core_at(object) };
        if core.form().kind() == Kind::Ceiling && is_owned(core) {
            best = best.min(core.ceiling.load(SeqCst));
        }
    }
    let mut address = record.standing.ceilings.load(Acquire);
    for _ in 0..MAX_LIST {
        if address == 0 {
            break;
        }
        // SAFETY: the address is from the task's list of cores; a core stays a core for ever.
        let core = unsafe { core_at(address) };
        address = core.next_held.load(Acquire);
        // A core enters the list after it is owned, and leaves it before it is given up. So the list has changed since,
        // this link may lead anywhere, and the walk begins again.
        if is_owned(core) {
            best = best.min(ceiling_in_force(core));
        } else {
            address = record.standing.ceilings.load(Acquire);
        }
    }
    see_ceiling(&mut best);
    inherited(tasks, task, &record.standing).map_or(best, |inherited| inherited.min(best))
}

/// The best priority of the tasks that wait for inheriting semaphores of this task. Under the lock of its standing.
#[inline]
fn inherited<T: TaskTable>(tasks: &T, task: u64, standing: &Standing) -> Option<u32> {
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
    for slot in 0..tasks.used() {
        let Some(waiter) = tasks.record(slot) else {
            break;
        };
        // The task itself, if just made the owner, may still have `WAITING` in its record: it does not inherit from
        // itself.
        if slot == slot_of(task) || waiter.word.load(SeqCst) & STATE != WAITING {
            continue;
        }
        let object = waiter.object.load(Acquire);
        if object == 0 || !tasks.is_alive(waiter.task.load(Acquire)) {
            continue;
        }
        // SAFETY: as in `refresh`: this library stored the address, and a core stays a core for ever.
        let core = unsafe { core_at(object) };
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

/// The ceiling that the owner of `core` has at present.
#[inline]
pub(super) fn ceiling_in_force(core: &Core) -> u32 {
    if core.form().kind() == Kind::Mrsp {
        core.in_force.load(SeqCst)
    } else {
        core.ceiling.load(SeqCst)
    }
}
