//! The queue's lock, and what sending and receiving share: look, poll, sleep, look again.
#![allow(unsafe_code)]

use super::cells::Cells;
use super::sleepers::{Sleepers, Wake};
use super::{Queue, Wait};
use crate::atomic::Ordering::Relaxed;
use crate::mutex::pause::pause;
use crate::mutex::{Acquired, RawError};
use crate::region::{AttachError, Giant, Parked, Task};

/// Pauses before a sleep: some 10 µs on a processor that nobody else wants. A sleep and a wake-up on
/// another processor cost the two sides about as much.
const PAUSES: u32 = 300;
/// The most pauses from one look to the next, of a line that others are at work on: each look takes it
/// from them.
pub(super) const SELDOM: u32 = 8;
/// The same, of the lock while somebody holds it.
const RARELY: u32 = 16;
/// The same, of a line that nobody else is at work on.
pub(super) const OFTEN: u32 = 1;

/// Why a step was not done.
pub(super) enum Failure {
    Refused,
    TimedOut,
    Deleted,
    Attach(AttachError),
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

/// Polls until `ready` says so, or a sleep would have cost less.
pub(super) fn poll(most: u32, mut ready: impl FnMut() -> bool) -> bool {
    let (mut pauses, mut next) = (0, 1);
    while pauses < PAUSES {
        if ready() {
            return true;
        }
        for _ in 0..next {
            pause(pauses);
            pauses += 1;
        }
        next = most.min(2 * next);
    }
    ready()
}

impl<'r> Queue<'r> {
    /// Tries `step` under the lock until it returns something, sleeping among the senders in between.
    pub(super) fn attempt<T>(
        &self,
        wait: Wait,
        mut step: impl FnMut(Cells<'r>, Task<'r>) -> Option<(T, Wake<'r>)>,
    ) -> Result<T, Failure> {
        let inner = self.inner();
        let task = inner.task()?;
        let senders: &Sleepers = &self.cells.core.senders;
        let mut may_poll = true;
        loop {
            // Before the look at the queue: see `park`.
            let deaths = inner.deaths();
            let locked = self.lock(task, deaths)?;
            self.check_life()?;
            if let Some((value, wake)) = step(locked.cells, task) {
                locked.unlock(wake);
                return Ok(value);
            }
            if wait == Wait::Not {
                locked.unlock(Wake::NONE);
                self.look_for_deaths()?;
                continue;
            }
            if core::mem::take(&mut may_poll) {
                locked.unlock(Wake::NONE);
                poll(SELDOM, || self.cells.room() > 0);
                continue;
            }
            let ticket = senders.register();
            locked.unlock(Wake::NONE);
            let words = [(senders.word(), ticket)];
            if inner.park(task, &words, deaths, wait.deadline()) == Parked::TimedOut {
                return Err(Failure::TimedOut);
            }
        }
    }

    /// Refuses, for one who does not wait, unless there is a death to settle: what a dead task had in
    /// flight would be ours.
    pub(super) fn look_for_deaths(&self) -> Result<(), Failure> {
        let inner = self.inner();
        if !inner.has_unswept() {
            return Err(Failure::Refused);
        }
        inner.sweep()?;
        Ok(())
    }

    /// Whether the queue is still that of the handle. Deletion is for ever, for a handle; so a look
    /// without the lock may be late, and never wrong.
    pub(super) fn check_life(&self) -> Result<(), Failure> {
        if self.cells.core.fixed.life.load(Relaxed) == self.life {
            Ok(())
        } else {
            Err(Failure::Deleted)
        }
    }

    /// Takes the queue's lock, and settles what dead tasks left first.
    pub(super) fn lock(&self, task: Task<'_>, deaths: u32) -> Result<Locked<'r>, AttachError> {
        let giant = self.inner().giant();
        let core = self.cells.core;
        // The lock itself would look more often. Two processes that stream 64 bytes on two processors
        // take 0.7 of the time so: whoever has the lock gets several messages done.
        if core.lock.owner().is_some() {
            poll(RARELY, || core.lock.owner().is_none());
        }
        // SAFETY: the queue lies in the region, which the handle keeps mapped.
        let acquired = unsafe { core.lock.lock_raw(None) };
        let how = acquired.map_err(|error| match error {
            RawError::Unavailable(error) => AttachError::Task(error),
            _ => crate::fatal(format_args!(
                "a queue was used by a signal handler that interrupted its use"
            )),
        })?;
        let locked = Locked {
            cells: self.cells,
            _giant: giant,
        };
        if how != Acquired::Clean || core.recovered.load(Relaxed) != deaths {
            locked.cells.recover(task);
            if how == Acquired::OwnerDied {
                core.lock.mark_consistent();
            }
            if locked.cells.serves_in_order() {
                locked.cells.hand_out().carry_out();
            }
            core.recovered.store(deaths, Relaxed);
        }
        Ok(locked)
    }

    /// [`Self::lock`] for what does not wait.
    pub(super) fn lock_now(&self, task: Task<'_>) -> Result<Locked<'r>, AttachError> {
        self.lock(task, self.inner().deaths())
    }
}

/// The queue's lock, held.
pub(super) struct Locked<'r> {
    pub(super) cells: Cells<'r>,
    /// Given up after the lock.
    _giant: Giant<'r>,
}

impl Locked<'_> {
    pub(super) fn unlock(self, wake: Wake<'_>) {
        drop(self);
        wake.carry_out();
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // A panic under the lock is a bug of ours, and the cells are whole at every instruction.
        // SAFETY: locked by `Queue::lock`.
        unsafe { self.cells.core.lock.unlock_raw() };
    }
}
