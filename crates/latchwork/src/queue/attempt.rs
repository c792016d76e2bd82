//! A step under the queue's lock, tried again until it is done: what sending and receiving share.
#![allow(unsafe_code)]

use super::Queue;
use super::cells::Cells;
use super::sleepers::{Sleepers, Wake};
use crate::atomic::{Ordering, spin_hint};
use crate::mutex::{Acquired, RawError};
use crate::region::{AttachError, Parked, Task};
use crate::time::Deadline;

/// Polls before a sleep. A sleep and wake-up across CPUs costs some 6 µs; this is about as long.
const SPINS: u32 = 300;

/// What a task does under the lock.
pub(super) enum Step<T> {
    Done(T),
    Wait,
}

/// How long a task tries.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    Try,
    Until(Option<Deadline>),
}

/// Why a step was not done.
pub(super) enum Failure {
    Refused,
    TimedOut,
    Attach(AttachError),
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

impl<'r> Queue<'r> {
    /// Tries `step` under the lock until it is done, sleeping among `sleepers` in between.
    pub(super) fn attempt<T>(
        &self,
        patience: Patience,
        sleepers: &Sleepers,
        mut step: impl FnMut(Cells<'r>, Task<'r>) -> (Step<T>, Wake<'r>),
    ) -> Result<T, Failure> {
        let inner = self.inner();
        let task = inner.task()?;
        let mut polls = SPINS;
        loop {
            // Before the look at the queue: see `park`.
            let deaths = inner.deaths();
            let locked = self.lock(deaths)?;
            let (outcome, wake) = step(locked.cells, task);
            if let Step::Done(value) = outcome {
                locked.unlock(wake);
                return Ok(value);
            }
            let Patience::Until(deadline) = patience else {
                locked.unlock(wake);
                // What a dead task had in flight would be ours.
                if inner.has_unswept() {
                    inner.sweep()?;
                    continue;
                }
                return Err(Failure::Refused);
            };
            if polls > 0 {
                locked.unlock(wake);
                self.poll(sleepers, &mut polls);
                continue;
            }
            let ticket = sleepers.register();
            locked.unlock(wake);
            match inner.park(task, &[(sleepers.word(), ticket)], deaths, deadline) {
                Parked::Again => polls = 1,
                Parked::TimedOut => return Err(Failure::TimedOut),
            }
        }
    }

    /// Waits for a change without sleeping.
    fn poll(&self, sleepers: &Sleepers, polls: &mut u32) {
        let core = self.cells.core;
        let receiving = core::ptr::eq(sleepers, &core.receivers);
        let seen = core.ready_count.load(Ordering::Relaxed);
        while *polls > 0 {
            *polls -= 1;
            let now = core.ready_count.load(Ordering::Relaxed);
            if if receiving { now > 0 } else { now < seen } {
                return;
            }
            spin_hint();
        }
    }

    /// Takes the queue's lock, and settles what dead tasks left first.
    pub(super) fn lock(&self, deaths: u32) -> Result<Locked<'r>, AttachError> {
        let core = self.cells.core;
        // SAFETY: the queue lies in the region, which the handle keeps mapped.
        let acquired = unsafe { core.lock.lock_raw(None) };
        let locked = Locked { cells: self.cells };
        match acquired {
            Ok(Acquired::Clean) if core.recovered.load(Ordering::Relaxed) == deaths => {}
            Ok(how) => {
                locked.cells.recover(|owner| self.inner().is_alive(owner));
                core.recovered.store(deaths, Ordering::Relaxed);
                if how == Acquired::OwnerDied {
                    core.lock.mark_consistent();
                }
            }
            Err(error) => {
                core::mem::forget(locked);
                return Err(match error {
                    RawError::Unavailable(error) => AttachError::Task(error),
                    _ => crate::fatal(format_args!(
                        "a queue was used by a signal handler that interrupted its use"
                    )),
                });
            }
        }
        Ok(locked)
    }
}

/// The queue's lock, held.
pub(super) struct Locked<'r> {
    pub(super) cells: Cells<'r>,
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
