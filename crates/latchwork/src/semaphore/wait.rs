//! Waiting in a queue: how a wait begins, and its only end.
//!
//! *One end.* A hand-over, a flush, a deletion, or the waiter itself (at its deadline, or in a deadlock) ends a wait.
//! Each does so under the object's lock, and only if the wait has not ended: the second one finds another state than
//! `WAITING`.
//!
//! *No wake-up is lost.* A waiter sleeps while its own word says `WAITING`. A task that ends the wait changes the word,
//! and then wakes the sleeper of this word; if the change comes before the sleep, the kernel refuses the sleep. If that
//! task is killed between the two, the sleeps of all tasks in the region end after its death. A task that finds more deaths
//! counted than at its last check takes the object's lock, which settles what the dead task left in mid-change,
//! including a hand-over to this waiter.

use super::object::QUEUED;
use super::{Access, Caller, Core, Locked, Refusal, TaskTable, priority};
use crate::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{fence_after_update, unless_fault};
use crate::backoff::{BEFORE_QUEUE, Budget, FIRST_POLLS, IN_QUEUE, SLEEP, pause_once};
use crate::region::Parked;
use crate::region::wait_record::{BUSY, DELETED, EPOCH, FLUSHED, GRANTED, IDLE, STATE, WAITING};
use crate::time::Deadline;
use core::ops::ControlFlow;

/// The longest time before the queue, even if the yields take long.
#[cfg(not(loom))]
const MAX_SPIN: core::time::Duration = core::time::Duration::from_millis(1);
/// The number of polls from one read of the clock to the next.
#[cfg(not(loom))]
const POLLS_PER_CLOCK_READ: u32 = 100;

/// The polling before the queue.
pub(crate) struct AdaptiveSpin {
    polls: u32,
    /// The polling budget; set at the first poll.
    budget: Option<Budget>,
    address: usize,
    /// The deadline of the whole wait; after the first [`POLLS_PER_CLOCK_READ`] polls, also that of the polling.
    #[cfg(not(loom))]
    end: Option<Deadline>,
}

impl AdaptiveSpin {
    #[cfg_attr(loom, expect(unused_variables, reason = "models have no clock"))]
    pub(crate) fn new(core: &Core, limit: WaitLimit) -> Self {
        Self {
            polls: 0,
            budget: None,
            address: core::ptr::from_ref(core).addr(),
            #[cfg(not(loom))]
            end: limit.deadline(),
        }
    }

    /// Passes the time until the next poll; returns false at the end of the polling, after at most `max` polls. `queued`:
    /// no unit can come before others have got theirs.
    pub(crate) fn poll_again(&mut self, max: u32, queued: bool) -> bool {
        let address = self.address;
        let budget = self
            .budget
            .get_or_insert_with(|| Budget::at(address, SLEEP));
        let first = if queued { 0 } else { FIRST_POLLS };
        if self.polls >= max.min(budget.most(BEFORE_QUEUE).max(first)) {
            return false;
        }
        #[cfg(not(loom))]
        if self.polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
            if self.polls == POLLS_PER_CLOCK_READ {
                let ahead = Deadline::after(MAX_SPIN);
                self.end = Some(self.end.map_or(ahead, |end| end.min(ahead)));
            }
            if self.end.is_some_and(Deadline::has_passed) {
                return false;
            }
        }
        self.polls += 1;
        pause_once(self.polls - 1)
    }

    /// Records the end of the polling, and whether it got the semaphore.
    pub(crate) fn finish(&self, success: bool) {
        if !success && let Some(budget) = &self.budget {
            budget.sleeps();
        }
    }
}

/// Wait mode: try, or wait until a deadline or for ever (`None`).
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    Try,
    Until(Option<Deadline>),
}

impl WaitLimit {
    /// The deadline of the wait, if there is one.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::Try => None,
            Self::Until(deadline) => deadline,
        }
    }
}

impl<T: TaskTable> Locked<'_, T> {
    /// Sets `QUEUED` in the word, if the word is still `word`.
    pub(crate) fn set_queued(&self, word: u64) -> bool {
        self.core.replace(word, word | QUEUED)
    }

    /// Makes the calling task a waiter. The word has `QUEUED` already.
    pub(crate) fn enqueue(&self, caller: Caller<'_>) {
        let record = caller.record;
        record.ticket.store(self.ticket(), Relaxed);
        record.object.store(self.core.address(), Release);
        let epoch = record.word.load(Relaxed) & !STATE;
        // SeqCst, with the fence: a task of the same cycle that entered before this one is seen by this task's walk;
        // one that enters later sees this one. See `deadlock.rs`.
        record.word.swap(
            epoch.wrapping_add(EPOCH) | WAITING,
            unless_fault!(SemaphoreEntersUnordered, SeqCst, Relaxed),
        );
        unless_fault!(SemaphoreEntersUnordered, fence_after_update(), ());
        // After the barrier: a task that changes the priority from now on finds this task waiting, and moves it within
        // the queue; see `priority.rs`.
        record.priority.store(caller.priority(), Relaxed);
        self.insert(caller.slot());
    }

    /// Ends the calling task's wait without success; returns false if it has ended already.
    pub(crate) fn withdraw(&self, caller: Caller<'_>) -> bool {
        let word = caller.record.word.load(Relaxed);
        if word & STATE != WAITING {
            return false;
        }
        self.remove(caller.slot());
        caller.record.word.store(word & !STATE | IDLE, Relaxed);
        caller.record.object.store(0, Release);
        self.update_queued_flag();
        true
    }
}

/// Waits, after [`Locked::enqueue`], for the end of the wait. `settled`: the count of deaths that the object's lock has
/// settled. The caller must [acknowledge](acknowledge) a grant.
pub(super) fn wait<T: TaskTable>(
    access: &Access<'_, T>,
    mut settled: u32,
    deadline: Option<Deadline>,
) -> Result<(), Refusal> {
    let (tasks, core, _, caller) = access.parts();
    let record = caller.record;
    // Relaxed: `BUSY` is of a dead task, whose death was counted before the wait began, or of a living one at work.
    if record.standing.effective.load(Relaxed) & BUSY != 0 {
        priority::refresh(tasks, caller.task, false);
    }
    let mut polls = 0;
    // A budget of its own (hence + 4): the time to the next hand-over is learned apart from that to a free unit.
    let budget = Budget::at(core::ptr::from_ref(core).addr() + 4, SLEEP);
    let most = budget.most(IN_QUEUE);
    loop {
        // Read before the poll: see `park`.
        let deaths = tasks.deaths();
        let word = match wait_outcome(caller) {
            ControlFlow::Continue(word) => word,
            ControlFlow::Break(end) => {
                return end;
            }
        };
        if deaths != settled {
            settled = deaths;
            drop(Locked::new(tasks, core)?);
            // The dead task may have left this task's refresh undone, and the owner's.
            priority::refresh(tasks, caller.task, true);
            continue;
        }
        if polls < most {
            polls += 1;
            crate::atomic::spin_hint();
            continue;
        }
        budget.sleeps();
        if tasks.park(&record.word, word, deaths, deadline) == Parked::TimedOut {
            return cancel_wait(access, Refusal::TimedOut);
        }
    }
}

/// The word of the calling task's record while it waits, or the result of the wait.
pub(super) fn wait_outcome(caller: Caller<'_>) -> ControlFlow<Result<(), Refusal>, u32> {
    // Acquire: pairs with `end_wait`.
    let word = caller.record.word.load(Acquire);
    let refusal = match word & STATE {
        WAITING => return ControlFlow::Continue(word),
        GRANTED => return ControlFlow::Break(Ok(())),
        FLUSHED => Refusal::Flushed,
        DELETED => Refusal::Deleted,
        state => crate::fatal(format_args!(
            "a wait for a semaphore ended in state {state}"
        )),
    };
    acknowledge(caller);
    ControlFlow::Break(Err(refusal))
}

/// Ends the wait without success; if it has ended already, returns its result.
pub(super) fn cancel_wait<T: TaskTable>(
    access: &Access<'_, T>,
    refusal: Refusal,
) -> Result<(), Refusal> {
    let (tasks, core, _, caller) = access.parts();
    let locked = Locked::new(tasks, core)?;
    let withdrawn = unless_fault!(SemaphoreGivesUpGranted, locked.withdraw(caller), {
        locked.withdraw(caller);
        true
    });
    drop(locked);
    if withdrawn {
        priority::refresh_owner(tasks, core);
        return Err(refusal);
    }
    // The wait has ended before: its result is in the word.
    match wait_outcome(caller) {
        ControlFlow::Break(end) => end,
        ControlFlow::Continue(_) => Err(refusal),
    }
}

/// Resets the record after the end of a wait.
pub(crate) fn acknowledge(caller: Caller<'_>) {
    let record = caller.record;
    let word = record.word.load(Relaxed);
    // A task that has not waited does not write this line, which tasks read that recompute priorities.
    if word & STATE == IDLE && record.object.load(Relaxed) == 0 {
        return;
    }
    // Release: what the task owns now is on record without this.
    record.object.store(0, Release);
    record.word.store(word & !STATE | IDLE, Relaxed);
}
