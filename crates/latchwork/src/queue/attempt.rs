//! The queue's locks, and what sending and receiving share: look, poll, sleep, look again.
#![allow(unsafe_code)]

use super::cells::Cells;
use super::wake::Wake;
use super::{Queue, Wait};
use crate::atomic::Ordering::Relaxed;
use crate::backoff::Widening;
use crate::hook::{self, Kind, Lock, Misuse, Observer, Registered, Site, Waiting};
use crate::mutex::{Acquired, RawError, Robust};
use crate::region::{AllocError, AttachError, Parked, StorageError, Task};

/// Why a step was not done.
pub(super) enum Failure {
    Refused,
    TimedOut,
    Deleted,
    Attach(AttachError),
    Storage(StorageError),
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        Self::Storage(error.into())
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

impl<'r> Queue<'r> {
    /// Tries `step` under the senders' lock until it returns something, sleeping in between.
    #[track_caller]
    pub(super) fn attempt<T>(
        &self,
        wait: Wait,
        mut step: impl FnMut(Cells<'r>, Task<'r>) -> Option<(T, Wake<'r>)>,
    ) -> Result<T, Failure> {
        let inner = self.inner();
        let task = inner.task()?;
        let senders = &self.cells.core.fixed.senders;
        self.cells.expect_to_send();
        let mut may_poll = true;
        let site = Site::caller();
        loop {
            // Before the look at the queue: see `park`.
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
                self.look_for_deaths(deaths)?;
                continue;
            }
            if core::mem::take(&mut may_poll) {
                locked.unlock(Wake::NONE);
                let turns = Some(&task.slot.takes_turns);
                Widening::Shared.poll(self.max_message(), turns, || self.cells.may_have_room());
                continue;
            }
            let ticket = senders.register();
            // Once more: receivers make room under another lock.
            let room = locked.cells.has_room();
            locked.unlock(Wake::NONE);
            let (mut parked, mut woken) = (Parked::Again, false);
            if !room {
                let words = [(senders.word(), ticket)];
                let object = core::ptr::from_ref(self.cells.core).addr();
                let _waiting =
                    Waiting::begin_at(Kind::Queue, object, wait.deadline().is_some(), site);
                (parked, woken) = inner.park_told(task, &words, deaths, wait.deadline());
            }
            senders.leave(ticket, woken);
            if parked == Parked::TimedOut {
                return Err(Failure::TimedOut);
            }
        }
    }

    /// Refuses, for one who does not wait, unless there is a death to settle, or others have swept one
    /// since `deaths` were counted: what a dead task had in flight would be ours.
    pub(super) fn look_for_deaths(&self, deaths: u32) -> Result<(), Failure> {
        let inner = self.inner();
        if inner.has_unswept() {
            inner.sweep()?;
        } else if inner.deaths() == deaths {
            return Err(Failure::Refused);
        }
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

    /// The same for a call that has not waited: after the queue's end it comes too late, which the checker is told.
    pub(super) fn check_use(&self, site: Site) -> Result<(), Failure> {
        let alive = self.check_life();
        if alive.is_err() {
            self.tell(Misuse::AfterEnd, site);
        }
        alive
    }

    /// Tells the checker of a call that was refused, or should have been.
    #[cold]
    pub(super) fn tell(&self, misuse: Misuse, site: Site) {
        if hook::is_observed() {
            Registered::misused(self.watched(), misuse, site);
        }
    }

    /// The queue, as the checker knows it.
    fn watched(&self) -> Lock {
        let address = core::ptr::from_ref(self.cells.core).addr();
        Lock::new(address, Kind::Queue).with(hook::Traits::SHARED)
    }

    /// Names the queue to the checker, which then need not look for its name in the region.
    pub(super) fn report_name(&self, name: &str, site: Site) {
        if hook::is_observed() {
            Registered::named(self.watched(), name, site);
        }
    }

    /// The queue is about to lose its name. The checker keeps it, for uses that come too late.
    pub(super) fn report_end(&self, site: Site) {
        if hook::is_observed() {
            let mut name = String::new();
            crate::region::write_object_name(self.watched().address, &mut name);
            Registered::named(self.watched(), &name, site);
            Registered::ended(self.watched());
        }
    }

    /// The lock of those who send.
    pub(super) fn senders(&self) -> Side {
        if self.cells.serves_in_order() {
            Side::Receivers
        } else {
            Side::Senders
        }
    }

    /// The locks of all who may be at work on a queue that lives. What changes a queue's life, or runs whatever the
    /// life, takes both.
    pub(super) fn everybody(&self) -> Side {
        if self.cells.serves_in_order() {
            Side::Receivers
        } else {
            Side::Both
        }
    }

    /// Takes a side's lock, and settles what dead tasks left first.
    #[inline]
    pub(super) fn lock(
        &self,
        side: Side,
        task: Task<'_>,
        deaths: u32,
    ) -> Result<Locked<'r>, AttachError> {
        let (locked, how) = self.acquire(side)?;
        // Relaxed: written under both locks.
        if how == Acquired::Clean && self.cells.core.fixed.recovered.load(Relaxed) == deaths {
            return Ok(locked);
        }
        self.settle(locked, how, side, task)
    }

    /// [`Self::lock`] for what does not wait.
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
        let all = Side::Both;
        let (mut locked, how) = if side == all {
            (locked, how)
        } else {
            // The order of locks: those who wait for this one are told of the death in our stead.
            locked.leave(how);
            self.acquire(all)?
        };
        if how == Acquired::OwnerDied {
            // Before anybody changes the words of cells that its heap's intent may name. Who cannot leaves that
            // to others, at the price of a block.
            let _ = self.inner().sweep();
        }
        let core = self.cells.core;
        let deaths = self.inner().deaths();
        // Unless another one has, meanwhile.
        if how == Acquired::OwnerDied || core.fixed.recovered.load(Relaxed) != deaths {
            locked.cells.recover(task);
            if core.is_alive() && locked.cells.serves_in_order() {
                locked.cells.hand_out().carry_out(core);
            }
            core.fixed.recovered.store(deaths, Relaxed);
            for lock in locked.locks() {
                lock.mark_consistent();
            }
        }
        locked.keep(side);
        Ok(locked)
    }

    /// Takes the lock of a side, or both, and says whether an owner died.
    #[inline]
    fn acquire(&self, side: Side) -> Result<(Locked<'r>, Acquired), AttachError> {
        let core = self.cells.core;
        let mut how = Acquired::Clean;
        if side != Side::Receivers {
            how = acquire(&core.senders_lock)?;
        }
        if side != Side::Senders {
            match acquire(&core.receivers_lock) {
                Ok(Acquired::Clean) => {}
                Ok(died) => how = died,
                Err(error) => {
                    if side == Side::Both {
                        // SAFETY: taken just now.
                        unsafe { core.senders_lock.unlock_inconsistent() };
                    }
                    return Err(error);
                }
            }
        }
        let locked = Locked {
            cells: self.cells,
            side,
        };
        Ok((locked, how))
    }
}

/// Takes a lock.
#[inline]
fn acquire(lock: &Robust) -> Result<Acquired, AttachError> {
    // The lock itself would look more often. Two processes that stream 64 bytes on two processors
    // took 0.7 of the time so, when they had one lock between them: whoever has it gets several
    // messages done.
    if lock.owner().is_some() {
        Widening::Held.poll(0, None, || lock.owner().is_none());
    }
    // SAFETY: the queue lies in the region, which the handle keeps mapped.
    unsafe { lock.lock_raw(None) }.map_err(|error| match error {
        RawError::Unavailable(error) => AttachError::Task(error),
        // Nobody gives it up; a file made by a hostile hand may say so.
        RawError::NotRecoverable => AttachError::Damaged("nobody can take a lock of a queue"),
        _ => crate::fatal(format_args!(
            "a queue was used by a signal handler that interrupted its use"
        )),
    })
}

/// Which of a queue's locks.
/// (As wide as what stands beside it in [`Locked`]: a narrower one is copied with its padding, in pieces that are read
/// back at once; 0.8 of the pairs of a task that sends to itself.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Side {
    Senders,
    Receivers,
    Both,
}

/// Locks of a queue, held.
pub(super) struct Locked<'r> {
    pub(super) cells: Cells<'r>,
    side: Side,
}

impl<'r> Locked<'r> {
    /// Releases the locks, and wakes whom the changes concern. (Each unlock is a read-modify-write, or a
    /// system call that makes one: the barrier that a notification needs.)
    #[inline]
    pub(super) fn unlock(self, wake: Wake<'_>) {
        let core = self.cells.core;
        drop(self);
        wake.carry_out(core);
    }

    fn locks(&self) -> impl Iterator<Item = &'r Robust> {
        let core = self.cells.core;
        let senders = (self.side != Side::Receivers).then_some(&*core.senders_lock);
        let receivers = (self.side != Side::Senders).then_some(&*core.receivers_lock);
        senders.into_iter().chain(receivers)
    }

    /// Releases all locks but those of a side.
    fn keep(&mut self, side: Side) {
        let core = self.cells.core;
        let released = match (self.side, side) {
            (Side::Both, Side::Senders) => &core.receivers_lock,
            (Side::Both, Side::Receivers) => &core.senders_lock,
            _ => return,
        };
        self.side = side;
        // SAFETY: taken by `acquire`.
        unsafe { released.unlock_raw() };
    }

    /// Releases the locks as they were found.
    fn leave(self, how: Acquired) {
        if how == Acquired::Clean {
            return;
        }
        let left = core::mem::ManuallyDrop::new(self);
        for lock in left.locks() {
            // SAFETY: taken by `acquire`.
            unsafe { lock.unlock_inconsistent() };
        }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // A panic under the lock is a bug of ours, and the cells are whole at every instruction.
        for lock in self.locks() {
            // SAFETY: taken by `acquire`.
            unsafe { lock.unlock_raw() };
        }
    }
}
