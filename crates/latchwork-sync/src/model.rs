//! The functions by which the loom models reach robust locks without guards.
#![allow(unsafe_code)]

pub(crate) use latchwork_sys::model::{SOON, count_request, scene};

use crate::adoption::{self, Desk};
use crate::mutex::{
    Acquired, InRegion, RawError, RegionProtocol, Robust, RobustProtocol, WaitMode, WaitWake,
    in_region,
};
use crate::rwlock::{Entered, Part, RawRobust, SeatLock, Uncounted};
use crate::sharing::Shared;
use crate::task::Me;
use crate::time::Deadline;
use latchwork_sys::model::mortal;

/// The result of acquiring a robust lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The data is whole.
    Clean,
    /// The last owner died.
    OwnerDied,
    /// Not acquired: the lock was given up.
    NotRecoverable,
    /// Not acquired: the deadline passed.
    TimedOut,
    /// Not acquired: the task would wait for itself.
    Deadlock,
}

impl<F: core::fmt::Debug> From<RawError<F>> for Taken {
    fn from(error: RawError<F>) -> Self {
        match error {
            RawError::NotRecoverable => Self::NotRecoverable,
            RawError::TimedOut => Self::TimedOut,
            RawError::Deadlock => Self::Deadlock,
            error => panic!("{error:?}"),
        }
    }
}

impl<F: core::fmt::Debug> From<Result<Acquired, RawError<F>>> for Taken {
    fn from(result: Result<Acquired, RawError<F>>) -> Self {
        match result {
            Ok(Acquired::Clean) => Self::Clean,
            Ok(Acquired::OwnerDied) => Self::OwnerDied,
            Err(error) => error.into(),
        }
    }
}

/// A robust lock without data and guards, for a death that runs no destructor.
#[derive(Default)]
pub struct RobustLock<P: RobustProtocol + Default = WaitWake<Shared>>(Robust<P>);

impl<P: RobustProtocol + Default> RobustLock<P> {
    /// Acquires the lock.
    ///
    /// # Panics
    /// If the result has no counterpart in [`Taken`].
    pub fn lock(&self, deadline: Option<Deadline>) -> Taken {
        // SAFETY: models keep their locks until all tasks have ended.
        unsafe { self.0.lock_raw(deadline) }.into()
    }

    /// Declares the data whole.
    pub fn mark_consistent(&self) {
        self.0.mark_consistent();
    }

    /// Releases the lock; if the data was not repaired, the lock is given up.
    ///
    /// # Safety
    /// The calling task holds it.
    pub unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.unlock_raw() };
    }
}

/// A region lock without data and guards, for a death that runs no destructor.
pub struct RegionLock<P: RegionProtocol = WaitWake<Shared>>(InRegion<P>);

impl<P: RegionProtocol> Default for RegionLock<P> {
    fn default() -> Self {
        Self(InRegion::new())
    }
}

impl<P: RegionProtocol> RegionLock<P> {
    /// Acquires the lock.
    ///
    /// # Panics
    /// If the result has no counterpart in [`Taken`].
    pub fn lock(&self, deadline: Option<Deadline>) -> Taken {
        if self.0.acquire_free().is_some() {
            return Taken::Clean;
        }
        match self.0.acquire_slowly(WaitMode::until(deadline)) {
            Ok((Acquired::Clean, _)) => Taken::Clean,
            Ok((Acquired::OwnerDied, _)) => Taken::OwnerDied,
            Err(in_region::RawError::NotRecoverable) => Taken::NotRecoverable,
            Err(in_region::RawError::TimedOut) => Taken::TimedOut,
            Err(in_region::RawError::Deadlock) => Taken::Deadlock,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Declares the data whole.
    pub fn mark_consistent(&self) {
        self.0.mark_consistent(mortal::identity());
    }

    /// Releases the lock, with whole data.
    ///
    /// # Safety
    /// The calling task holds it.
    pub unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.release_guarded(mortal::identity()) };
    }

    /// Releases the lock: the death is reported to the next owner, too.
    pub fn pass_on(&self) {
        self.0.unlock_inconsistent(mortal::identity());
    }

    /// Gives the lock up.
    pub fn give_up(&self) {
        self.0.release_not_recoverable(mortal::identity());
    }
}

/// A robust lock whose owner ends in good order, and the keeper that takes it (`adoption.rs`).
#[derive(Default)]
pub struct Adoption {
    /// The lock.
    pub lock: RobustLock,
    desk: Desk,
}

impl Adoption {
    /// The owner's part.
    pub fn give(&self) {
        let node = self.lock.0.node();
        // SAFETY: models keep their locks, and a task's list, until all tasks have ended.
        let head = unsafe { Me::current_or_none().head() };
        // SAFETY: the calling task holds the lock, which is announced when this is called.
        let unlink = || {
            let _ = unsafe { head.unlink(node, 0) };
        };
        adoption::give(head, node, unlink, || self.desk.ask());
    }

    /// The keeper's part, for one lock of the task with the ID `giver`.
    pub fn keep(&self, giver: u32) {
        self.desk.wait_for_request();
        let node = self.lock.0.node();
        let me = Me::current_or_none();
        // SAFETY: as in `give`.
        let head = unsafe { me.head() };
        // SAFETY: the word names this task, and the node is announced, when this is called.
        let link = || {
            let _ = unsafe { head.link(node, 0, 0, 0) };
        };
        adoption::take(head, node, giver, me.tid(), link);
        self.desk.answer();
    }

    /// One of the two is dead, and the other is being killed.
    pub fn kill(&self) {
        self.desk.kill();
    }
}

/// A robust reader/writer lock without data and guards, for a death that runs no destructor.
pub struct RobustReadWrite<const READERS: usize, K: SeatLock = Robust>(
    RawRobust<READERS, Uncounted, K>,
);

impl<const READERS: usize> RobustReadWrite<READERS> {
    /// A free lock whose parts are on the kernel's list.
    pub fn new() -> Self {
        Self(RawRobust::new())
    }
}

impl<const READERS: usize> RobustReadWrite<READERS, InRegion> {
    /// A free lock whose parts are region locks.
    pub fn in_region() -> Self {
        Self(RawRobust::in_region())
    }
}

impl<const READERS: usize, K: SeatLock> RobustReadWrite<READERS, K> {
    fn me(&self) -> K::Owner {
        K::known_caller(self.0.gate()).expect("a task that holds the lock")
    }

    /// Acquires the lock to read, with a seat, or to write if a writer died inside.
    ///
    /// # Errors
    /// Why it was not acquired for reading.
    ///
    /// # Panics
    /// If the result has no counterpart in [`Taken`].
    pub fn read(&self, deadline: Option<Deadline>) -> Result<usize, Taken> {
        // SAFETY: models keep their locks until all tasks have ended.
        let entered = unsafe {
            match self.0.read_free() {
                Some((seat, _)) => Ok(Entered::Reading(seat)),
                None => self
                    .0
                    .read(WaitMode::until(deadline))
                    .map(|(entered, _)| entered),
            }
        };
        match entered {
            Ok(Entered::Reading(seat)) => Ok(seat),
            Ok(Entered::Torn) => Err(Taken::OwnerDied),
            Err(error) => Err(error.into()),
        }
    }

    /// Acquires the lock to write.
    ///
    /// # Panics
    /// As for [`Self::read`].
    pub fn write(&self, deadline: Option<Deadline>) -> Taken {
        // SAFETY: models keep their locks until all tasks have ended.
        unsafe { self.0.write(WaitMode::until(deadline)) }.into()
    }

    /// Declares the data whole.
    pub fn mark_consistent(&self) {
        self.0.gate().mark_consistent();
    }

    /// Releases a seat.
    ///
    /// # Safety
    /// The calling task has the seat.
    pub unsafe fn unlock_read(&self, seat: usize) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.unlock_read(seat, self.me()) };
    }

    /// Releases the lock after writing.
    ///
    /// # Safety
    /// The calling task holds it to write.
    pub unsafe fn unlock_write(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.unlock_write(self.me()) };
    }

    /// Becomes a reader; returns its seat.
    ///
    /// # Safety
    /// As for [`Self::unlock_write`].
    pub unsafe fn downgrade(&self) -> usize {
        // SAFETY: by the caller's contract.
        unsafe { self.0.downgrade(self.me()) }
    }
}
