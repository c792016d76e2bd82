//! Semaphores for tasks on several processors: MrsP, the multiprocessor resource sharing protocol.
//!
//! Source: Burns and Wellings, "A Schedulability Compatible Multiprocessor Resource Sharing Protocol" (2013), and
//! what RTEMS makes of it. Each processor has a ceiling of its own. Who obtains the semaphore, and who
//! waits for it, has the ceiling of the processor that it is on; waiters are served in the order in which
//! they came, and keep their processors busy meanwhile, so that of each processor one task at most waits.
//! A waiter has nothing to do but to wait: if the owner is preempted, it goes on in the waiter's place.
//! So a section costs what it takes, times the number of processors.
//!
//! | word | meaning |
//! | --- | --- |
//! | as in `owned.rs`, but never `NESTED` | |
//!
//! | the caller's `waits_at`, `spins_at` | its record | meaning | entered by |
//! | --- | --- | --- | --- |
//! | 0, 0 | `IDLE` | it does not wait; what it owns counts by its list | the end of an obtain |
//! | ceiling, 0 | `IDLE` | it has the ceiling, and is about to take the semaphore or a place, or gives it up | obtain, release |
//! | ceiling, 0 | `WAITING` | it has a place; it sleeps, or is about to lend its processor | itself, under the lock |
//! | ceiling, one below the owner | `WAITING` | it spins, its processor lent | itself, the processor lent |
//! | ceiling, either | `GRANTED` | it is the owner, at its ceiling | who released, under the lock |
//!
//! Invariants
//! 1. A task that owns the semaphore has its ceiling: it has it before it takes the semaphore or enters
//!    the queue (`waits_at`), and gives that up only when the semaphore stands on its list, with the ceiling
//!    that it came by (`in_force`); and the other way round when it releases, for by then the list is the next
//!    owner's to link. So a ceiling that is changed counts from the next obtain on.
//! 2. What the kernel is told follows from the records: the priority that counts; for a task that waits
//!    and spins, one below the owner's. The end of the wait and what is told next are ordered: whoever ended
//!    it has the priority told anew, and so has the task itself.
//! 3. Where the kernel lets an owner run follows from the records, too: see `lend.rs`.
//! 4. No recursion: the owner is refused, also if it does not want to wait.
//!
//! *Who spins.* To spin is of use where the kernel knows the priorities of both, owner and waiter. So a task
//! spins, and lends its processor, if it is [mirrored](crate::region::TaskId::mirror), the kernel took
//! its priority, it may run on one processor only, and the owner is mirrored, too. All others sleep, in the same
//! queue, by the same rules, at the same recorded priorities.
//!
//! *One level below.* The kernel moves a preempted real-time task to a processor that runs something lower, never
//! to one that runs an equal. So a waiter spins one level below the owner (and below its ceiling). *When* it
//! moves one: at the moment of the preemption, if the processor is lent by then; and when a task's priority
//! falls on a processor that could take one. So a waiter that comes has the ceiling first, lends its
//! processor, and then steps down; and it does so again for each new owner, and if the owner's priority changes so
//! that it would spin at another level.
//!
//! *A kill at any instruction.* Of the owner: its death ends its place, its priority and its affinity with the
//! thread; the semaphore passes to the first who waits, who is told, as in `owned.rs`; a spinner looks whether
//! the owner lives at each of its looks. Of a waiter: its record is that of a dead task, and counts neither for the
//! queue nor for the owner's affinity. Its processor stays in the owner's mask until that is worked out again: by
//! whoever waits and finds the death counted, by the next that comes or goes, at the latest by the owner, when it
//! releases. Of who releases, between the hand-over and the heir's new priority: the heir tells the kernel
//! itself, and if a spinner on the same processor keeps it from running, that one does, for whoever lends to an
//! owner has its priority told first. Of a deleter or creator: as in `owned.rs`.
//!
//! *No wake-up is lost:* as in `wait.rs`; a spinner looks at its own record, and needs none. It sleeps for no
//! death, so it looks for those that matter: the owner's; and if the word names the spinner itself, that of who
//! made it so and has not said so yet.
//!
//! *Progress.* Places are given in order of arrival, under the object's lock. The locks of objects, priorities and
//! lending are held for short sections and one at a time, but inherit nothing: who comes for one waits for a task that
//! was preempted in it, by something above the ceiling, or while it changed another's priority at its own. So does a
//! hand-over that finds a waiter at its queue, and the owner's way back to its own processor; on that the semaphore
//! has passed on already.
//!
//! *Hostile events.* A thread that the user binds elsewhere in mid-section stays there: see `lend.rs`. A stopped
//! owner is waited for, by spinners until their deadlines. An owner that replaces its program (`execve`) is dead to
//! the semaphore, and the new program keeps priority and affinity, as of any mirrored task. A thread or process that
//! is made in a section or by who waits begins with the ceiling, and with what was lent: the kernel copies them. A task
//! that is mirrored no more ([`mirror`](crate::region::TaskId::mirror)) in a section keeps the ceiling. A signal handler
//! must not use a semaphore that the code it interrupts may be using.
//!
//! *Limits of Linux.* A thread has one priority: where the ceilings of processors differ, an owner that is
//! helped runs with that of the processor that it came from, and waiters on others spin below it. Nothing
//! keeps the owner's place while it sleeps in a section, or runs elsewhere: lower tasks of its own processor run.
//! Real-time tasks together get 950 ms of each second by default (`sched_rt_runtime_us`), and spinning counts.
//! Ceilings from 1 to 97 can be told apart by the kernel; with others waiters sleep.
//! A ceiling should be one better than the priority of any task that uses the semaphore: a waiter spins one below
//! it, and its equals do not preempt it there.
//!
//! *Cost.* A section of a mirrored task is three system calls: where it may run, its priority up, and down.
//! Another two if anybody lent it a processor. A wait takes three or four for each owner that it is lent to: the
//! owner's processors read and written, the own priority up and down.
//! For others none, but for sleeping and waking. Each task that lends reads all records.
//!
//! *Checked by:* `tests/semaphore_mrsp`, `tests/classic`, RTEMS's tables (`tests/rtems_tables.rs`),
//! `tests/kill_semaphore` (owners and helpers killed at each instruction).

mod handle;
mod lend;

pub use handle::{Helping, MrspHeld, MrspSemaphore};
pub(crate) use handle::{obtain_at, release_from};

use super::ground::Ground;
use super::object::{Core, DIED, is_of, owner_of};
use super::owned::{self, Taken, Told};
use super::wait::{Me, Patience, acknowledge, give_up, look};
use super::wait_queue::Locked;
use super::{Refusal, ReleaseRefusal, Wake, chain, priority};
use crate::atomic::Ordering::{Relaxed, SeqCst};
use crate::backoff::pause;
use crate::region::{Inner, Parked};
use crate::time::Deadline;
use core::ops::ControlFlow;
use std::sync::Arc;

/// Looks of a spinner from one glance at the clock to the next.
const CLOCK: u32 = 100;

/// Obtains the semaphore. `ceiling_on`: the ceiling of a processor.
#[cold]
pub(crate) fn obtain(
    ground: &Arc<Inner>,
    core: &Core,
    key: u64,
    me: Me<'_>,
    patience: Patience,
    ceiling_on: impl Fn(u32) -> u32,
) -> Result<Told, Refusal> {
    let word = core.word.load(Relaxed);
    if !is_of(word, key) {
        return Err(Refusal::NoObject);
    }
    let owner = owner_of(word);
    if owner == me.task {
        return Err(Refusal::Deadlock);
    }
    if matches!(patience, Patience::Try) && owner != 0 && ground.is_alive(owner) {
        return Err(Refusal::WouldBlock);
    }
    // The classic interface has 0, too, which `waits_at` has for none.
    let ceiling = ceiling_on(lend::arrive(me)).max(1);
    let own = me.priority();
    if own < ceiling {
        return Err(Refusal::AboveCeiling { own, ceiling });
    }
    let standing = &me.record.standing;
    // SeqCst: before the refresh, which reads it.
    standing.waits_at.store(ceiling, SeqCst);
    priority::refresh(ground, me.task, false);
    let taken = take(ground, core, key, me, patience);
    if taken.is_ok() {
        standing.obtained();
        own_at(ground, core, me, ceiling);
    }
    standing.spins_at.store(0, Relaxed);
    standing.waits_at.store(0, SeqCst);
    if taken == Ok(Told::OwnerDied) {
        owned::take_note(ground, core);
    }
    if taken.is_ok() {
        acknowledge(me);
    }
    // Down from the ceiling, or up to it from where it spun.
    priority::refresh(ground, me.task, false);
    taken
}

/// The calling task owns the semaphore, from the ceiling that it has.
fn own_at(ground: &Arc<Inner>, core: &Core, me: Me<'_>, ceiling: u32) {
    let sections = &me.record.lending.sections;
    sections.store(sections.load(Relaxed) + 1, Relaxed);
    core.in_force.store(ceiling, SeqCst);
    priority::has_ceiling(ground, core, me);
}

/// The calling task is about to make a semaphore that it owns: once it is made, others may come and help.
pub(super) fn makes(me: Me<'_>, ceiling: u32) {
    lend::arrive(me);
    me.record.standing.waits_at.store(ceiling.max(1), SeqCst);
}

/// The calling task has made the semaphore, and owns it.
pub(super) fn made(ground: &Arc<Inner>, core: &Core, me: Me<'_>) {
    let waits_at = &me.record.standing.waits_at;
    own_at(ground, core, me, waits_at.load(Relaxed));
    waits_at.store(0, SeqCst);
}

fn take(
    ground: &Arc<Inner>,
    core: &Core,
    key: u64,
    me: Me<'_>,
    patience: Patience,
) -> Result<Told, Refusal> {
    if owned::obtain_free(core, key, me.task) {
        return Ok(Told::Clean);
    }
    let seen = match Locked::new(ground, core)?.take_or_enter(key, me, patience)? {
        Taken::Owned(told) => return Ok(told),
        Taken::Entered(seen) => seen,
    };
    let waited = if chain::is_circle(ground, core, me) {
        give_up(ground, core, me, Refusal::Deadlock)
    } else {
        wait(ground, core, me, seen, patience.deadline())
    };
    if waited.is_err() {
        // The owner has this processor no more.
        lend::bring_up_to_date(ground, core);
    }
    waited?;
    // Relaxed: the grant has been seen with Acquire.
    Ok(owned::told(core.word.load(Relaxed)))
}

/// Waits, from the entering to the end: see `wait.rs`.
fn wait(
    ground: &Arc<Inner>,
    core: &Core,
    me: Me<'_>,
    mut seen: u32,
    deadline: Option<Deadline>,
) -> Result<(), Refusal> {
    // To whom the processor is lent, and what the caller spins at, if so.
    let mut helped = (0, None);
    let mut spins = false;
    let mut looks = 0_u32;
    loop {
        // Before the look: see `park`.
        let deaths = ground.deaths();
        let word = match look(me) {
            ControlFlow::Continue(word) => word,
            ControlFlow::Break(end) => return end,
        };
        // SeqCst: as in `lend.rs`.
        let owner = owner_of(core.word.load(SeqCst));
        // A hand-over to this task that is not finished may be a dead one's: the lock tells.
        if deaths != seen || owner == me.task || !ground.is_alive(owner) {
            seen = deaths;
            helped = (0, None);
            settle(ground, core)?;
            continue;
        }
        // The owner's priority may fall, in mid-section.
        let now = (owner, lend::level(ground, me, owner));
        if now != helped {
            helped = now;
            spins = lend::help(ground, core, me, owner, now.1);
            continue;
        }
        if spins {
            let is_late = looks.is_multiple_of(CLOCK) && deadline.is_some_and(Deadline::has_passed);
            if is_late {
                return give_up(ground, core, me, Refusal::TimedOut);
            }
            pause(looks);
            looks = looks.wrapping_add(1);
        } else if ground.park(&me.record.word, word, deaths, deadline) == Parked::TimedOut {
            return give_up(ground, core, me, Refusal::TimedOut);
        }
    }
}

/// Puts right what dead tasks left. A dead owner's semaphore passes on.
fn settle(ground: &Arc<Inner>, core: &Core) -> Result<(), Refusal> {
    let locked = Locked::new(ground, core)?;
    let word = core.word.load(Relaxed);
    let owner = owner_of(word);
    if owner != 0 && !ground.is_alive(owner) {
        locked.settle_dead_owner(word);
    }
    locked.unlock(Wake::NONE);
    Ok(())
}

/// Releases the semaphore. `torn`: the next owner is to be told, as if this one had died.
#[cold]
pub(crate) fn release(
    ground: &Arc<Inner>,
    core: &Core,
    key: u64,
    me: Me<'_>,
    torn: bool,
) -> Result<(), ReleaseRefusal> {
    let word = owned::own_word(core, key, me)?;
    priority::had_ceiling(core, me);
    owned::surrender(ground, core, key, me, torn || word & DIED != 0)?;
    // Home first: with its own priority the task might wait for this processor for long.
    lend::depart(ground, me);
    me.record.standing.released();
    priority::had_more(ground, core, me);
    Ok(())
}
