//! The queue's locks, and the loop that sending and receiving share: check, poll, sleep, check again.

use super::locked::{Locked, Side};
use super::{Queue, Wait, error::Failure, layout::Cells, report::Report, wake::Wake};
use crate::hook::{Kind, Misuse, Site, Waiting};
use crate::region::{AttachError, Parked, Task};
use crate::{atomic::Ordering::Relaxed, backoff::ExponentialBackoff, mutex::Acquired};

/// How often a task tries to have dead tasks settled before it goes on without. (One more may have died each time; and a signal
/// handler that interrupts a sweep of its own thread tries in vain.)
const TRIES: usize = 8;

impl<'r> Queue<'r> {
    /// Tries `step` under the senders' lock until it returns a value, and sleeps between attempts.
    #[track_caller]
    pub(super) fn attempt<T>(
        &self,
        wait: Wait,
        mut step: impl FnMut(Cells<'r>, Task<'r>) -> Option<(T, Wake<'r>)>,
    ) -> Result<T, Failure> {
        let inner = self.inner();
        let task = inner.task()?;
        let senders = &self.cells.core.fixed.senders;
        self.cells.prefetch_for_send();
        let mut may_poll = true;
        let site = Site::caller();
        loop {
            // Read before the queue is checked: see `park`.
            let deaths = inner.deaths();
            let locked = self.lock(self.senders(), task, deaths)?;
            if may_poll {
                self.check_use(site)?;
            } else {
                self.check_life()?;
            }
            if let Some((value, wake)) = step(locked.cells, task) {
                locked.unlock(wake);
                return Ok(value);
            }
            if wait == Wait::Not {
                locked.unlock(Wake::NONE);
                self.check_for_deaths(deaths)?;
                continue;
            }
            if core::mem::take(&mut may_poll) {
                locked.unlock(Wake::NONE);
                let turns = Some(&task.slot.takes_turns);
                ExponentialBackoff::Shared
                    .poll(self.max_message(), turns, || self.cells.may_have_room());
                continue;
            }
            let ticket = senders.register();
            // Checks once more: receivers make room under another lock.
            let room = locked.cells.has_room();
            locked.unlock(Wake::NONE);
            let (mut parked, mut woken) = (Parked::Again, false);
            if !room {
                let words = [(senders.word(), ticket)];
                let (object, deadline) = (self.cells.address(), wait.deadline());
                let waiting = Waiting::begin_at(Kind::Queue, object, deadline.is_some(), site);
                waiting.report_if_alone(|| senders.has_ticket(ticket));
                (parked, woken) = inner.park(task, &words, deaths, deadline);
            }
            senders.leave(ticket, woken);
            if parked == Parked::TimedOut {
                return Err(Failure::TimedOut);
            }
        }
    }

    /// For a call that does not wait: refuses, unless there is a death to settle, or another task has swept one since
    /// `deaths` was read. In both cases the call tries again, since it may get what the dead task had in flight.
    pub(super) fn check_for_deaths(&self, deaths: u32) -> Result<(), Failure> {
        let inner = self.inner();
        if inner.has_unswept() {
            inner.sweep()?;
        } else if inner.deaths() == deaths {
            return Err(Failure::Refused);
        }
        Ok(())
    }

    /// Whether the handle's queue still lives. Deletion is final for a handle, so a check without the lock may be late,
    /// but is never wrong.
    pub(super) fn check_life(&self) -> Result<(), Failure> {
        let alive = self.cells.core.fixed.life.load(Relaxed) == self.life;
        alive.then_some(()).ok_or(Failure::Deleted)
    }

    /// The same check for a call that has not waited: a use after the queue's end is also reported to the checker.
    pub(super) fn check_use(&self, site: Site) -> Result<(), Failure> {
        self.check_life()
            .inspect_err(|_| self.report().misused(Misuse::AfterEnd, site))
    }

    /// What the queue reports to the checker.
    pub(super) fn report(&self) -> Report {
        Report(self.cells.address())
    }

    /// The senders' lock.
    pub(super) fn senders(&self) -> Side {
        if self.cells.serves_in_order() {
            Side::Receivers
        } else {
            Side::Senders
        }
    }

    /// The locks of all tasks that may be at work on a live queue. A task that changes a queue's life, or that runs
    /// whatever the life is, takes both locks.
    pub(super) fn live_locks(&self) -> Side {
        if self.cells.serves_in_order() {
            Side::Receivers
        } else {
            Side::Both
        }
    }

    /// Takes a side's lock, and first settles what dead tasks left.
    #[inline]
    pub(super) fn lock(
        &self,
        side: Side,
        task: Task<'_>,
        deaths: u32,
    ) -> Result<Locked<'r>, AttachError> {
        let (locked, how) = Locked::acquire(self.cells, side)?;
        // Relaxed: written under both locks.
        if how == Acquired::Clean && self.cells.core.fixed.recovered.load(Relaxed) == deaths {
            return Ok(locked);
        }
        self.settle(locked, how, side, task)
    }

    /// [`Self::lock`] for a call that does not wait.
    pub(super) fn lock_now(&self, side: Side, task: Task<'_>) -> Result<Locked<'r>, AttachError> {
        self.lock(side, task, self.inner().deaths())
    }

    /// Settles what dead tasks left, which takes all locks.
    #[cold]
    fn settle(
        &self,
        locked: Locked<'r>,
        how: Acquired,
        side: Side,
        task: Task<'_>,
    ) -> Result<Locked<'r>, AttachError> {
        let (mut locked, how) = if side == Side::Both {
            (locked, how)
        } else {
            // Lock order: the senders' lock comes first, so this one is released. Its next owner gets the report of the
            // owner's death instead.
            locked.leave(how);
            Locked::acquire(self.cells, Side::Both)?
        };
        let core = self.cells.core;
        // Unless another task has done it meanwhile.
        if how == Acquired::OwnerDied || core.fixed.recovered.load(Relaxed) != self.inner().deaths()
        {
            // The heap of a task that died in the lock is settled before any task changes words of cells that the heap's intent
            // may name. If this fails, another task does it later, and a block may be lost.
            let mut is_settled = how != Acquired::OwnerDied;
            let mut tries = 0..TRIES;
            let deaths = loop {
                if !core::mem::replace(&mut is_settled, false) {
                    let sweep = || drop(self.inner().sweep());
                    crate::atomic::unless_disabled!(QueueAwaitsProcess, sweep(), ());
                }
                let deaths = self.inner().deaths();
                let at_once = tries.next().is_none();
                let recover = || locked.cells.recover(task, at_once);
                if crate::atomic::unless_disabled!(QueueRecovers, recover(), true) {
                    break deaths;
                }
            };
            if core.is_alive() && locked.cells.serves_in_order() {
                locked.cells.serve_waiters().carry_out(core);
            }
            core.fixed.recovered.store(deaths, Relaxed);
            locked.mark_consistent();
        }
        locked.keep(side);
        Ok(locked)
    }
}
