//! Semaphores for tasks on several CPUs: MrsP, the multiprocessor resource sharing protocol.
//!
//! Source: Burns and Wellings, "A Schedulability Compatible Multiprocessor Resource Sharing Protocol" (2013), and
//! RTEMS's implementation of it. Each CPU has a ceiling of its own. The owner and the waiters have the ceilings of the
//! CPUs that they are on. Waiters are served in order of arrival, and keep their CPUs busy meanwhile, so that at most
//! one task of each CPU waits. A waiter has no other work: if the owner is preempted, it continues on the waiter's CPU.
//! So a critical section takes at most its own time, multiplied by the number of CPUs.
//!
//! The word is as in `owned.rs`, but never `NESTED`.
//!
//! | the caller's `waits_at`, `spins_at` | its record | meaning | entered by |
//! | --- | --- | --- | --- |
//! | 0, 0 | `IDLE` | it does not wait; the semaphores that it owns count through its list | the end of an obtain |
//! | ceiling, 0 | `IDLE` | it has the ceiling, and is about to take the semaphore or to queue, or gives it up | obtain, release |
//! | ceiling, 0 | `WAITING` | it is in the queue; it sleeps, or is about to lend its CPU | itself, under the lock |
//! | ceiling, one below the owner | `WAITING` | it spins, with its CPU lent | itself, after it has lent the CPU |
//! | ceiling, either | `GRANTED` | it is the owner, at its ceiling | the task that released, under the lock |
//!
//! Invariants
//! 1. A task that owns the semaphore has its ceiling. It gets the ceiling (`waits_at`) before it takes the semaphore or
//!    enters the queue, and clears `waits_at` only when the semaphore is on its list, with the ceiling at which it
//!    obtained (`in_force`). A release does this in the opposite order, for after it the list link belongs to the next
//!    owner. So a changed ceiling takes effect with the next obtain.
//! 2. The priority in the kernel follows from the records: the effective priority; for a task that waits and spins, one
//!    below the owner's. The end of the wait and the next update of the kernel are ordered: the task that ended the
//!    wait refreshes the waiter's priority, and so does the waiter itself.
//! 3. The CPUs on which the kernel lets an owner run follow from the records, too: see `lend.rs`.
//! 4. No recursion: an obtain by the owner is refused, even one that does not wait.
//!
//! *Which waiters spin.* Spinning helps only if the kernel knows the priorities of both owner and waiter. So a task
//! spins, and lends its CPU, if it is [mirrored](crate::semaphore::TaskPriority::mirror), the kernel accepted its priority, it
//! may run on one CPU only, and the owner is mirrored, too. All others sleep, in the same queue, by the same rules, at
//! the same recorded priorities.
//!
//! *One level below.* The kernel moves a preempted real-time task to a CPU that runs a lower priority, never to one
//! that runs an equal. So a waiter spins one level below the owner (and below its ceiling). The kernel moves a task at
//! two moments: at the preemption, if the CPU is lent already; and when the priority of the running task falls on a CPU
//! that could take the preempted one. So an arriving waiter first has the ceiling, then lends its CPU, and then lowers
//! its priority. It does so again for each new owner, and when the owner's priority changes so that it must spin at
//! another level.
//!
//! *A kill at any instruction.* If the owner is killed, its place, its priority and its affinity end with the thread.
//! The semaphore passes to the first waiter, which gets the report, as in `owned.rs`; a spinning waiter checks at each
//! poll whether the owner lives. If a waiter is killed, its record is that of a dead task, and counts neither for the
//! queue nor for the owner's affinity. Its CPU stays in the owner's mask until the mask is recomputed: by a waiter that
//! finds the death counted, by the next task that comes or goes, at the latest by the owner when it releases. If a
//! releasing task is killed between the hand-over and the refresh of the heir's priority, the heir updates the kernel
//! itself; if a waiter that spins on the same CPU keeps the heir from running, that waiter does, since a task that
//! lends to an owner refreshes the owner's priority first. For a deleting or creating task: as in `owned.rs`.
//!
//! *No wake-up is lost:* as in `wait.rs`. A spinning waiter polls its own record, and needs no wake-up. No death
//! interrupts it, so it checks for the deaths that matter: the owner's; and, if the word names the waiter itself, the
//! death of the task that stored this and has not granted yet.
//!
//! *Progress.* Tasks enter the queue in order of arrival, under the object's lock. The locks of objects, standings and
//! lending are held for short times and one at a time, but do not inherit priorities. So a task that comes for one may
//! wait for a task that was preempted while it held the lock, by a task above the ceiling, or while it changed another
//! task's priority at its own. So may a hand-over that finds a waiter entering the queue, and the owner's return to its
//! own CPU; the semaphore has been handed over before that.
//!
//! *Hostile events.* A thread that the user binds to another CPU in a critical section stays there: see `lend.rs`.
//! Waiters wait for a stopped owner, spinning ones until their deadlines. An owner that replaces its program (`execve`)
//! counts as dead for the semaphore, and the new program keeps priority and affinity, as of any mirrored task. A thread
//! or process that is created in a critical section, or by a waiter, begins with the ceiling and the lent CPUs: the
//! kernel copies them. A task whose mirroring ends ([`mirror`](crate::semaphore::TaskPriority::mirror)) in a critical section
//! keeps the ceiling. A signal handler must not use any semaphore if the interrupted code may be in a call on one: see [`super`].
//!
//! *Limits of Linux.* A thread has one priority: where the ceilings of CPUs differ, a helped owner runs with the
//! ceiling of the CPU that it came from, and waiters on other CPUs spin below it. Nothing keeps the owner's CPU free
//! while it sleeps in a critical section, or runs elsewhere: lower tasks of its own CPU run. Real-time tasks together
//! get 950 ms of each second by default (`sched_rt_runtime_us`), and spinning counts. The kernel distinguishes ceilings
//! from 1 to 97; with others, waiters sleep. A ceiling should be one better than the priority of any task that uses the
//! semaphore: a waiter spins one level below it, and tasks of its own priority do not preempt it there.
//!
//! *Cost.* A critical section of a mirrored task makes three system calls: to read where it may run, to raise its
//! priority, and to lower it; another two if a task lent it a CPU. A wait makes three or four for each owner that it
//! lends to: to read and write the owner's affinity, to raise and lower its own priority. Other tasks make no system
//! calls but those for sleeping and waking. Each task that lends reads all records.
//!
//! *Checked by:* `tests/semaphore_mrsp`, `tests/classic`, RTEMS's tables (`tests/rtems_tables.rs`),
//! `tests/kill_semaphore` (owners and helpers killed at each instruction).

#[cfg(not(loom))]
mod content;
mod handle;
mod lend;

pub use handle::{Helping, MrspHeld, MrspSemaphore};
pub(crate) use handle::{obtain_at, release_from};

use super::object::{DIED, is_of, owner_of};
use super::owned::{self, Acquisition};
use super::wait::{acknowledge, cancel_wait, wait_outcome};
use super::{Access, Caller, Core, Locked, Obtained, Refusal, ReleaseError, TaskTable, WaitLimit};
use super::{deadlock, priority};
use crate::atomic::Ordering::{Relaxed, SeqCst};
use crate::backoff::pause_once;
use crate::region::{Inner, Parked};
use crate::sys::thread::yield_cpu;
use crate::time::Deadline;
use core::ops::ControlFlow;
use std::sync::Arc;

/// The number of a spinning waiter's polls from one read of the clock to the next.
const POLLS_PER_CLOCK_READ: u32 = 100;
/// On a crowded processor, of how many yields a spinning waiter makes one.
const RARELY: u32 = 64;

/// Obtains the semaphore. `ceiling_on`: the ceiling of a CPU.
#[cold]
fn obtain(
    access: &Access<'_, Arc<Inner>>,
    limit: WaitLimit,
    ceiling_on: impl Fn(u32) -> u32,
) -> Result<Obtained, Refusal> {
    let (tasks, core, key, caller) = access.parts();
    let word = core.word.load(Relaxed);
    if !is_of(word, key) {
        return Err(Refusal::NoObject);
    }
    let owner = owner_of(word);
    if owner == caller.task {
        return Err(Refusal::Deadlock);
    }
    if matches!(limit, WaitLimit::Try) && owner != 0 && tasks.is_alive(owner) {
        return Err(Refusal::WouldBlock);
    }
    // The classic interface also has priority 0, which means "none" in `waits_at`.
    let ceiling = ceiling_on(lend::note_home(caller)).max(1);
    let own = caller.priority();
    if own < ceiling {
        return Err(Refusal::AboveCeiling { own, ceiling });
    }
    let standing = &caller.record.standing;
    // SeqCst: ordered before the refresh, which reads it.
    standing.waits_at.store(ceiling, SeqCst);
    priority::refresh(tasks, caller.task, false);
    let taken = acquire(access, limit);
    if taken.is_ok() {
        standing.obtained();
        record_ownership(tasks, core, caller, ceiling);
    }
    standing.spins_at.store(0, Relaxed);
    standing.waits_at.store(0, SeqCst);
    if matches!(taken, Ok(Obtained::OwnerDied)) {
        owned::clear_owner_died(tasks, core);
    }
    if taken.is_ok() {
        acknowledge(caller);
    }
    // Lowers the priority from the ceiling, or raises it to the ceiling from the level at which the task spun.
    priority::refresh(tasks, caller.task, false);
    taken
}

/// Enters the semaphore, which the calling task owns, into its list, with the ceiling that the task has.
fn record_ownership(tasks: &Arc<Inner>, core: &Core, caller: Caller<'_>, ceiling: u32) {
    let sections = &caller.record.lending.sections;
    sections.store(sections.load(Relaxed) + 1, Relaxed);
    core.in_force.store(ceiling, SeqCst);
    priority::push_ceiling(tasks, core, caller);
}

/// The calling task is about to create a semaphore that it owns: other tasks may help as soon as it exists.
pub(super) fn before_creation(caller: Caller<'_>, ceiling: u32) {
    lend::note_home(caller);
    let waits_at = &caller.record.standing.waits_at;
    waits_at.store(ceiling.max(1), SeqCst);
}

/// The calling task has created the semaphore, and owns it.
pub(super) fn after_creation(tasks: &Arc<Inner>, core: &Core, caller: Caller<'_>) {
    let waits_at = &caller.record.standing.waits_at;
    record_ownership(tasks, core, caller, waits_at.load(Relaxed));
    waits_at.store(0, SeqCst);
}

fn acquire(access: &Access<'_, Arc<Inner>>, limit: WaitLimit) -> Result<Obtained, Refusal> {
    let (tasks, core, key, caller) = access.parts();
    if owned::obtain_free(core, key, caller.task) {
        return Ok(Obtained::Clean);
    }
    let settled = match owned::acquire_or_enqueue(access, limit)? {
        Acquisition::Owned(obtained) => return Ok(obtained),
        Acquisition::Queued(settled) => settled,
    };
    let waited = if deadlock::completes_cycle(tasks, core, caller) {
        cancel_wait(access, Refusal::Deadlock)
    } else {
        wait(access, settled, limit.deadline())
    };
    if waited.is_err() {
        // The owner may no longer use this CPU.
        lend::update_owners(tasks, core);
    }
    waited?;
    // Relaxed: the grant was read with Acquire.
    Ok(Obtained::from_word(core.word.load(Relaxed)))
}

/// Waits, after the entry into the queue, for the end of the wait: see `wait.rs`.
fn wait(
    access: &Access<'_, Arc<Inner>>,
    mut settled: u32,
    deadline: Option<Deadline>,
) -> Result<(), Refusal> {
    let (tasks, core, _, caller) = access.parts();
    // The owner to which the CPU is lent, and the level at which the caller spins, if it does.
    let mut helped = (0, None);
    let mut spins = false;
    let mut polls = 0_u32;
    loop {
        // Read before the check: see `park`.
        let deaths = tasks.deaths();
        let word = match wait_outcome(caller) {
            ControlFlow::Continue(word) => word,
            ControlFlow::Break(end) => return end,
        };
        // SeqCst: as in `lend.rs`.
        let owner = owner_of(core.word.load(SeqCst));
        // A hand-over to this task that is not finished may be of a dead task: taking the lock settles that.
        if deaths != settled || owner == caller.task || !tasks.is_alive(owner) {
            settled = deaths;
            helped = (0, None);
            settle_deaths(tasks, core)?;
            continue;
        }
        // The owner's priority may fall in its critical section.
        let now = (owner, lend::spin_level(tasks, caller, owner));
        if now != helped {
            helped = now;
            spins = lend::lend_cpu(access, owner, now.1);
            continue;
        }
        if spins {
            let is_late = polls.is_multiple_of(POLLS_PER_CLOCK_READ)
                && deadline.is_some_and(Deadline::has_passed);
            if is_late {
                return cancel_wait(access, Refusal::TimedOut);
            }
            // By the protocol it spins on a crowded processor, too. It yields there, but rarely.
            if !pause_once(polls) && (polls / POLLS_PER_CLOCK_READ).is_multiple_of(RARELY) {
                yield_cpu();
            }
            polls = polls.wrapping_add(1);
        } else if tasks.park(&caller.record.word, word, deaths, deadline) == Parked::TimedOut {
            return cancel_wait(access, Refusal::TimedOut);
        }
    }
}

/// Settles what dead tasks left. A dead owner's semaphore passes on.
fn settle_deaths(tasks: &Arc<Inner>, core: &Core) -> Result<(), Refusal> {
    let locked = Locked::new(tasks, core)?;
    let word = core.word.load(Relaxed);
    let owner = owner_of(word);
    if owner != 0 && !tasks.is_alive(owner) {
        crate::atomic::unless_disabled!(MrspTakesOver, locked.settle_dead_owner(word), ());
    }
    Ok(())
}

/// Releases the semaphore. `torn`: the next owner gets the report of owner death.
#[cold]
fn release(access: &Access<'_, Arc<Inner>>, torn: bool) -> Result<(), ReleaseError> {
    let (tasks, core, _, caller) = access.parts();
    let word = owned::word_if_owned(access)?;
    priority::remove_ceiling(core, caller);
    owned::hand_over_or_free(access, torn || word & DIED != 0)?;
    // The task returns to its home CPU before its priority falls: with its own priority it might wait long for this
    // CPU.
    lend::return_home(tasks, caller);
    caller.record.standing.released();
    priority::lower_priority(tasks, core, caller);
    Ok(())
}
