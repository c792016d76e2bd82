//! The robust mutexes of which a reader/writer lock is made: what its algorithm needs of them, and the two kinds.
#![allow(unsafe_code)]

use crate::atomic::Ordering;
#[cfg(not(loom))]
use crate::mutex::throughput;
use crate::mutex::{
    Acquired, RawError, Robust, RobustProtocol, Throughput, WAITERS, WaitMode, owner_of_guard,
};
use crate::rwlock::trace::Entry;
#[cfg(not(loom))]
use crate::rwlock::trace::Released;
use crate::sharing::Shared;
use crate::task::Me;
use core::convert::Infallible;
use core::error::Error;
use core::fmt;

/// A robust mutex without data, as a gate or a seat. An owner's methods are called by the task that holds it.
///
/// # Safety
/// Between a call that acquires the mutex and the one that releases it no other task acquires it, unless the owner has
/// died.
#[doc(hidden)]
pub unsafe trait Part {
    /// How a task is named as an owner, by a lock's word or by its stamp.
    type Owner: Copy + Eq;
    /// Why a lock call may fail that succeeds for other kinds.
    type Fault: Error + Send + Sync + 'static;

    /// Whether the mutex is free and clean at this moment, and reserved for no waiter; if so, all that its last owner did is visible.
    fn is_free(&self) -> bool;
    /// Whether a task may sleep for it.
    fn has_sleepers(&self) -> bool;
    /// The task that holds it at this moment. (The kernel's list names no dead owner, and a region's table does.)
    fn holder(&self) -> Option<Self::Owner>;
    /// Acquires a mutex that is free and clean; returns the calling task's [stamp](SeatOps::stamp).
    ///
    /// # Safety
    /// A mutex that must be pinned stays where it is until it is released or this task has ended.
    unsafe fn acquire_free(&self) -> Option<Self::Owner>;
    /// Acquires the mutex, also beyond the task's budget of robust locks.
    ///
    /// # Safety
    /// As for [`Self::acquire_free`].
    unsafe fn acquire(&self, wait_mode: WaitMode) -> Result<Acquired, RawError<Self::Fault>>;
    /// Releases it with whole data; a death that was reported and not repaired makes it not recoverable.
    ///
    /// # Safety
    /// The calling task holds it.
    unsafe fn unlock(&self);
    /// Releases it with its data in an unknown state.
    ///
    /// # Safety
    /// As for [`Self::unlock`].
    unsafe fn unlock_inconsistent(&self);
    /// Releases it as not recoverable.
    ///
    /// # Safety
    /// As for [`Self::unlock`].
    unsafe fn release_not_recoverable(&self);
    /// Releases it for a guard of `owner`; in a panic, with its data in an unknown state.
    ///
    /// # Safety
    /// The guard holds it, if the guard is used in the process that it was made in.
    unsafe fn release_guarded(&self, owner: Self::Owner);
    /// Declares the data whole. Only the owner calls it.
    fn mark_consistent(&self);
    /// Frees a mutex that no living task uses, and declares its data whole.
    fn make_clean(&mut self);
}

/// What a kind of seats brings with it: its gate, and how a task is named by them.
///
/// # Safety
/// The owners that two tasks are given at a time are not equal.
#[doc(hidden)]
pub unsafe trait SeatOps: Part + Sized + 'static {
    /// The queueing mutex that writers hold.
    type Gate: Part<Owner = Self::Owner, Fault = Self::Fault>;

    /// The calling task, which may own parts from now on. It need not have room for them.
    fn caller(gate: &Self::Gate) -> Result<Self::Owner, RawError<Self::Fault>>;
    /// The same, if it has room for one more.
    fn caller_with_room(gate: &Self::Gate) -> Result<Self::Owner, RawError<Self::Fault>>;
    /// The calling task, if it is known already.
    fn known_caller(gate: &Self::Gate) -> Option<Self::Owner>;
    /// What a guard keeps of the calling task, if that is known already.
    fn stamp(gate: &Self::Gate) -> Option<Self::Owner>;
    /// Aborts unless a guard with the stamp `owner` was made for the calling task.
    fn assert_owner(gate: &Self::Gate, owner: Self::Owner);
    /// Selects a task's favourite seat.
    fn number(owner: Self::Owner) -> usize;
    /// An owner for readers.
    fn shown(owner: Self::Owner) -> impl fmt::Debug;
    /// Acquires a gate that was not free. Says how, unless by sleeping.
    ///
    /// # Safety
    /// As for [`Part::acquire_free`].
    unsafe fn take_gate(
        gate: &Self::Gate,
        wait_mode: WaitMode,
        entry: &mut Entry,
    ) -> Result<Acquired, RawError<Self::Fault>>;
    /// Releases the gate, by [`Part::unlock`] or [`Part::unlock_inconsistent`]; returns what that did for the waiters.
    ///
    /// # Safety
    /// The calling task has it.
    #[cfg(not(loom))]
    unsafe fn unlock_gate_traced(gate: &Self::Gate, is_whole: bool) -> Released;
}

/// The robust mutexes of which a [`RobustRwLock`](super::RobustRwLock) can be made: [`Robust`], whose dead
/// owners the kernel finds, and [`InRegion`](crate::mutex::InRegion), whose dead owners a region does.
pub trait SeatLock: SeatOps {}
impl<L: SeatOps> SeatLock for L {}

// SAFETY: a robust mutex.
unsafe impl<P: RobustProtocol<Fault = Infallible>> Part for Robust<P> {
    type Owner = u32;
    type Fault = Infallible;

    #[inline(always)]
    fn is_free(&self) -> bool {
        let ignored = if P::RESERVES { 0 } else { WAITERS };
        // Acquire: pairs with the Release of the last owner.
        self.node().word.load(Ordering::Acquire) & !ignored == 0
    }

    #[inline(always)]
    fn has_sleepers(&self) -> bool {
        // Relaxed: only a number is made of it.
        self.node().word.load(Ordering::Relaxed) & WAITERS != 0
    }

    fn holder(&self) -> Option<u32> {
        self.owner()
    }

    #[inline(always)]
    unsafe fn acquire_free(&self) -> Option<u32> {
        // SAFETY: by the caller's contract.
        unsafe { self.acquire_free() }
    }

    #[inline]
    unsafe fn acquire(&self, wait_mode: WaitMode) -> Result<Acquired, RawError> {
        // SAFETY: by the caller's contract.
        unsafe { self.acquire(wait_mode) }
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.unlock_raw() };
    }

    unsafe fn unlock_inconsistent(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.unlock_inconsistent() };
    }

    unsafe fn release_not_recoverable(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.release_not_recoverable() };
    }

    #[inline(always)]
    unsafe fn release_guarded(&self, owner: u32) {
        // SAFETY: by the caller's contract.
        unsafe { self.release_guarded(owner) };
    }

    fn mark_consistent(&self) {
        self.mark_consistent();
    }

    fn make_clean(&mut self) {
        self.make_clean();
    }
}

type ListedGate = Robust<Throughput<Shared>>;

// SAFETY: a task is named by its thread ID.
unsafe impl SeatOps for Robust {
    type Gate = ListedGate;

    #[inline]
    fn caller(_: &ListedGate) -> Result<u32, RawError> {
        Me::get().map(Me::tid).map_err(RawError::Unavailable)
    }

    #[inline]
    fn caller_with_room(_: &ListedGate) -> Result<u32, RawError> {
        let me = Me::get().map_err(RawError::Unavailable)?;
        if me.budget() <= 0 && me.recount() <= 0 {
            return Err(RawError::TooManyHeld);
        }
        Ok(me.tid())
    }

    #[inline(always)]
    fn known_caller(_: &ListedGate) -> Option<u32> {
        let tid = Me::current_or_none().tid();
        (tid != 0).then_some(tid)
    }

    #[inline(always)]
    fn stamp(_: &ListedGate) -> Option<u32> {
        let stamp = Me::current_or_none().stamp();
        (stamp != 0).then_some(stamp)
    }

    #[inline]
    fn assert_owner(_: &ListedGate, owner: u32) {
        owner_of_guard(owner);
    }

    #[inline(always)]
    fn number(owner: u32) -> usize {
        owner as usize
    }

    fn shown(owner: u32) -> impl fmt::Debug {
        owner
    }

    unsafe fn take_gate(
        gate: &ListedGate,
        wait_mode: WaitMode,
        entry: &mut Entry,
    ) -> Result<Acquired, RawError> {
        #[cfg(loom)]
        {
            let _ = entry;
            // SAFETY: the same contract.
            unsafe { gate.acquire_in_budget(wait_mode) }
        }
        #[cfg(not(loom))]
        {
            // SAFETY: the same contract.
            let (taken, how) = unsafe { gate.acquire_slowly_traced(wait_mode) };
            match how.entry {
                throughput::Entry::Free => {}
                throughput::Entry::Stolen | throughput::Entry::TopWaiter => *entry = Entry::Polled,
                throughput::Entry::HandedOff => *entry = Entry::HandedOff,
            }
            taken
        }
    }

    #[cfg(not(loom))]
    unsafe fn unlock_gate_traced(gate: &ListedGate, is_whole: bool) -> Released {
        // SAFETY: the same contract.
        let released = unsafe {
            if is_whole {
                gate.unlock_raw_traced()
            } else {
                gate.unlock_inconsistent_traced()
            }
        };
        released.into()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mutex::WaitWake;

    /// Readers must not enter past a gate that its last owner has reserved for a writer.
    #[test]
    fn a_gate_that_is_reserved_is_not_free() {
        let gate = Robust::<Throughput<Shared>>::new();
        assert!(Part::is_free(&gate));
        gate.node().word.store(WAITERS, Ordering::Relaxed);
        assert!(!Part::is_free(&gate));
        let seat = Robust::<WaitWake<Shared>>::new();
        seat.node().word.store(WAITERS, Ordering::Relaxed);
        assert!(Part::is_free(&seat));
    }
}
