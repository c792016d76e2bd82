//! Standing in a queue: how a wait begins, and its one end.
//!
//! *One end.* All who end a wait (a hand-over, a flush, a deletion, the waiter itself at its deadline or
//! in a deadlock) do so under the object's lock, and only if it has not ended: whoever comes second finds
//! another state than `WAITING`.
//!
//! *No wake-up is lost.* A waiter sleeps while its own word says `WAITING`. Who ends the wait changes the word
//! and wakes the one who sleeps there; if that was before the sleep, the kernel refuses it. Should it be killed
//! between the two, its death wakes all who sleep in the region. And whoever finds that deaths have been
//! counted since it last looked takes the object's lock, which puts right what the dead left in mid-change,
//! a hand-over to this very waiter included.

use super::ground::Ground;
use super::object::{Core, QUEUED};
use super::wait_queue::Locked;
use super::{Refusal, Wake, priority};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{fence_after_update, unless_fault};
use crate::mutex::pause::{Polls, pause};
use crate::region::Parked;
use crate::region::wait_record::{
    BUSY, DELETED, EPOCH, FLUSHED, GRANTED, IDLE, LOWEST, STATE, WAITING, WaitRecord,
};
use crate::time::Deadline;
use core::ops::ControlFlow;

/// Looks at the own word before the sleep: about what a sleep and a wake-up cost.
const LOOKS: u32 = if POLLS { 150 } else { 0 };

/// Looks at the semaphore before the queue: some tens of microseconds, with offers of the processor in between.
/// Where many tasks share few processors, those that hold what others poll for so get on; once tasks queue,
/// each hand-over costs a switch.
const LOOKS_AHEAD: u32 = if POLLS { 1_640 } else { 0 };
/// Of a task that has a priority, which counts from the queue on; and of one to which the owner owes its own.
pub(crate) const LOOKS_OF_A_DONOR: u32 = if POLLS { 20 } else { 0 };
/// The end of that, however long the offers took.
#[cfg(not(loom))]
const AHEAD: core::time::Duration = core::time::Duration::from_millis(1);
/// How often the clock is looked at.
#[cfg(not(loom))]
const CLOCK: u32 = 100;
const POLLS: bool = !cfg!(loom);

/// The time before the queue.
pub(crate) struct Approach {
    looks: u32,
    /// How long it pays.
    polls: Polls,
    /// That of the whole wait; some looks later also that of this part of it.
    #[cfg(not(loom))]
    end: Option<Deadline>,
}

impl Approach {
    #[cfg_attr(loom, expect(unused_variables, reason = "models have no clock"))]
    pub(crate) fn new(core: &Core, patience: Patience) -> Self {
        Self {
            looks: 0,
            polls: Polls::at(core::ptr::from_ref(core).addr(), LOOKS_AHEAD),
            #[cfg(not(loom))]
            end: patience.deadline(),
        }
    }

    /// Passes the time until the next look; false if that was enough, of at most so many.
    pub(crate) fn goes_on(&mut self, most: u32) -> bool {
        if self.looks >= most.min(self.polls.most()) {
            return false;
        }
        #[cfg(not(loom))]
        if self.looks.is_multiple_of(CLOCK) {
            if self.looks == CLOCK {
                let ahead = Deadline::after(AHEAD);
                self.end = Some(self.end.map_or(ahead, |end| end.min(ahead)));
            }
            if self.end.is_some_and(Deadline::has_passed) {
                return false;
            }
        }
        pause(self.looks);
        self.looks += 1;
        true
    }
}

impl Drop for Approach {
    fn drop(&mut self) {
        if self.looks > 0 {
            self.polls.made(self.looks);
        }
    }
}

/// How long a task is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Try,
    Until(Option<Deadline>),
}

impl Patience {
    /// The end of the wait, if there is one.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::Try => None,
            Self::Until(deadline) => deadline,
        }
    }
}

/// The calling task.
#[derive(Clone, Copy)]
pub(crate) struct Me<'a> {
    /// Slot and generation.
    pub(crate) task: u64,
    pub(crate) record: &'a WaitRecord,
}

impl Me<'_> {
    pub(crate) fn slot(self) -> u16 {
        super::object::slot_of(self.task)
    }

    /// Looks at the semaphore before the queue.
    pub(crate) fn looks_ahead(self) -> u32 {
        if self.priority() < LOWEST {
            LOOKS_OF_A_DONOR
        } else {
            LOOKS_AHEAD
        }
    }

    /// The priority that counts.
    #[inline]
    pub(crate) fn priority(self) -> u32 {
        // Relaxed: as good as any moment's.
        self.record.standing.effective.load(Relaxed) & !BUSY
    }
}

impl<G: Ground> Locked<'_, G> {
    /// Says in the word that somebody waits, if it is still what it was.
    pub(crate) fn announce(&self, word: u64) -> bool {
        // AcqRel: as in `note_emptiness`.
        self.core
            .word
            .compare_exchange(word, word | QUEUED, AcqRel, Relaxed)
            .is_ok()
    }

    /// The calling task waits from now on. The word says that somebody does.
    pub(crate) fn enter(&self, me: Me<'_>) {
        let record = me.record;
        record.ticket.store(self.ticket(), Relaxed);
        record.object.store(self.core.address(), Release);
        let epoch = record.word.load(Relaxed) & !STATE;
        // SeqCst, with the fence: whoever waits in a circle with this task, and entered before it, is seen by
        // its look round the circle; who enters later sees this one. See `chain.rs`.
        record.word.swap(
            epoch.wrapping_add(EPOCH) | WAITING,
            unless_fault!(SemaphoreEntersUnordered, SeqCst, Relaxed),
        );
        unless_fault!(SemaphoreEntersUnordered, fence_after_update(), ());
        // Behind the barrier: whoever changes the priority from now on finds the task waiting, and puts it
        // elsewhere; see `priority.rs`.
        record.priority.store(me.priority(), Relaxed);
        self.insert(me.slot());
    }

    /// Ends the calling task's wait without success, unless it has ended.
    pub(crate) fn withdraw(&self, me: Me<'_>) -> bool {
        let word = me.record.word.load(Relaxed);
        if word & STATE != WAITING {
            return false;
        }
        self.remove(me.slot());
        me.record.word.store(word & !STATE | IDLE, Relaxed);
        me.record.object.store(0, Release);
        self.note_emptiness();
        true
    }
}

/// Waits, from [`Locked::enter`] to the end. `seen`: the count of deaths that the object's lock has
/// settled. A grant is still to be [acknowledged](acknowledge).
pub(crate) fn wait<G: Ground>(
    ground: &G,
    core: &Core,
    me: Me<'_>,
    mut seen: u32,
    deadline: Option<Deadline>,
) -> Result<(), Refusal> {
    let record = me.record;
    // Relaxed: the dead one's, whose death was counted before the wait began, or one of the living is at work.
    if record.standing.effective.load(Relaxed) & BUSY != 0 {
        priority::refresh(ground, me.task, false);
    }
    let mut looks = LOOKS;
    loop {
        // Before the look: see `park`.
        let deaths = ground.deaths();
        let word = match look(me) {
            ControlFlow::Continue(word) => word,
            ControlFlow::Break(end) => return end,
        };
        if deaths != seen {
            seen = deaths;
            drop(Locked::new(ground, core)?);
            // What a dead task should have told this one, and the owner.
            priority::refresh(ground, me.task, true);
            continue;
        }
        if looks > 0 {
            looks -= 1;
            crate::atomic::spin_hint();
            continue;
        }
        if ground.park(&record.word, word, deaths, deadline) == Parked::TimedOut {
            return give_up(ground, core, me, Refusal::TimedOut);
        }
    }
}

/// The word of the calling task's record while it waits; or how the wait ended.
pub(super) fn look(me: Me<'_>) -> ControlFlow<Result<(), Refusal>, u32> {
    // Acquire: pairs with `end_wait`.
    let word = me.record.word.load(Acquire);
    let refusal = match word & STATE {
        WAITING => return ControlFlow::Continue(word),
        GRANTED => return ControlFlow::Break(Ok(())),
        FLUSHED => Refusal::Flushed,
        DELETED => Refusal::Deleted,
        state => crate::fatal(format_args!(
            "a wait for a semaphore ended in state {state}"
        )),
    };
    acknowledge(me);
    ControlFlow::Break(Err(refusal))
}

/// Ends the wait without success, unless it has ended otherwise.
pub(crate) fn give_up<G: Ground>(
    ground: &G,
    core: &Core,
    me: Me<'_>,
    refusal: Refusal,
) -> Result<(), Refusal> {
    let locked = Locked::new(ground, core)?;
    let withdrawn = unless_fault!(SemaphoreGivesUpGranted, locked.withdraw(me), {
        locked.withdraw(me);
        true
    });
    locked.unlock(Wake::NONE);
    if withdrawn {
        priority::pass_on(ground, core);
        return Err(refusal);
    }
    // Whatever else has happened is in the word.
    match look(me) {
        ControlFlow::Break(end) => end,
        ControlFlow::Continue(_) => Err(refusal),
    }
}

/// The task has taken note of the end of its wait.
pub(crate) fn acknowledge(me: Me<'_>) {
    let record = me.record;
    let word = record.word.load(Relaxed);
    // Who has not waited leaves the line to those who look at it as they work priorities out.
    if word & STATE == IDLE && record.object.load(Relaxed) == 0 {
        return;
    }
    // Release: what the task holds by now is known without this record.
    record.object.store(0, Release);
    record.word.store(word & !STATE | IDLE, Relaxed);
}
