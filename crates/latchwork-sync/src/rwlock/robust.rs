//! The robust reader/writer lock: a writer's death is reported to the next task, a reader's death releases what
//! it held.
//!
//! Not recursive: a task that would wait for itself gets [`LockError::Deadlock`]. No priority inheritance.
//! Source: the *big-reader lock* of Linux (`brlock`: a writer checks a slot of each reader), built from
//! [`Robust`] mutexes. The *gate* is a queueing mutex in front of the lock that writers hold, of the throughput
//! protocol, which hands over to a waiter that has waited for long. A *seat* is the slot of one reader.
//!
//! | part | held by |
//! | --- | --- |
//! | gate, a robust mutex | a writer, while it waits or is inside; a reader for a moment, if it cannot enter past the gate |
//! | seats, [`READERS`](RobustRwLock) robust mutexes | readers, one each; other tasks for a moment |
//! | `writing` | 1 while a writer is inside, or has died there; changed by the gate's owner |
//!
//! The gate is *open* while its word is free and without `OWNER_DIED`.
//!
//! | operation | steps |
//! | --- | --- |
//! | read, past an open gate | acquire a free seat; check the gate; if it is not open, release the seat |
//! | read, otherwise | acquire the gate, acquire a seat, release the gate |
//! | write | acquire the gate; wait until each seat has been seen free; set `writing` |
//! | stop reading | release the seat |
//! | stop writing | clear `writing`, release the gate |
//! | downgrade | acquire a seat, clear `writing`, release the gate |
//!
//! Invariants
//! 1. A reader is inside if it has a seat, and has seen the gate open since, or had the gate itself.
//! 2. While `writing` is 1 the gate is not open, and only the gate's owner is inside.
//! 3. A seat protects no data: a task that acquires one from a dead owner declares it consistent at once.
//!
//! *Why a writer is alone.* A reader that enters past the gate stores its seat's word, then loads the gate's. A
//! writer stores the gate's word, then loads the seats'. Each has a barrier in between. So the reader sees the
//! gate locked and leaves its seat, or the writer sees the seat locked and waits. A seat acquired by the gate's
//! owner is visible to the next owner of the gate.
//!
//! *A kill between any two instructions* leaves robust mutexes, each with all the guarantees of [`Robust`]: its
//! owner's death is detected, its sleepers are woken. A dead reader's seat is acquired by a task that waits for
//! it or looks for a free one. After the death of a gate's owner, `writing` says what the death means. 0: the
//! dead task was not inside (it was entering as a reader, or waited for readers), and the gate is acquired as
//! if it had been released. 1: the data may be torn. The next owner of the gate gets the report, even if it
//! came to read; it then holds the lock to write. (By 2 no reader is inside, so it need not check the seats.)
//! `writing` is set before the first change of the data and cleared after the last one in the program order of
//! its own task, and a kill cuts that order at one point. The only recovery is to acquire a mutex, so a kill of
//! the recovering task is one more owner death.
//!
//! *No wake-up is lost:* each sleep is that of a robust mutex.
//!
//! *Orderings:* a reader's release of its seat (Release) pairs with the writer's load of it (Acquire), a
//! writer's release of the gate with a reader's load of the gate; barriers as above.
//!
//! *Progress:* writers first: readers that come while a writer has the gate wait. All waiters, readers and
//! writers, queue at the gate, and its first waiter gets it handed over within the threshold of 5 ms: no task
//! starves (see [`Throughput`]). The gate's owner then waits for the readers in the seats. It waits for no
//! reader that comes later, except for the moment in which such a reader finds the gate locked. *All seats
//! taken:* one more reader acquires the gate and keeps it until there is a seat. It sleeps on its favourite
//! seat, which its ID selects, and checks the others each millisecond.
//!
//! *Reading while reading* takes a second seat and never waits. Where it would have to, it reports `Deadlock`,
//! since a writer may be waiting for the first seat. Writing while reading and reading while writing never
//! wait, either: before each wait a task checks whether it has a seat or the gate itself.
//!
//! *Hostile events:* as for the robust mutex: EINTR, exec, fork, signal handlers, PID namespaces.
//!
//! *Frozen:* layout of [`Robust`]; a line of 64 bytes for the gate and for each seat.
//!
//! *Cost, free:* to read, two compare-and-swaps in a cache line that no other reader touches (unless their IDs
//! select the same seat), and a load of the gate; to write, two compare-and-swaps, and a load of each seat.
//! *Checked by:* `tests/loom_robust_rwlock.rs` (a victim that dies at each of its steps; negative twins),
//! `tests/robust_rwlock.rs`, `tests/kill_rwlock.rs` (kills at each instruction, and storms).
#![allow(unsafe_code)]

mod guard;
mod unpinned;

pub use guard::{LockError, OwnerDied, RobustReadGuard, RobustWriteGuard};

use crate::atomic::{
    AtomicU32, Ordering, compiler_fence, const_unless_loom, fence_after_update, unless_fault,
};
use crate::backoff::{HAND_OVER, pause};
use crate::mutex::{Acquired, Patience, RawError, Robust, RobustProtocol, WAITERS, owner_of_guard};
use crate::task::Me;
use crate::time::Deadline;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::ManuallyDrop;

/// The end of one sleep for a reader's favourite seat, before the reader looks for another one; and whether the
/// reader's own deadline has passed with it.
#[cfg(not(loom))]
mod nap {
    use super::{Deadline, Patience};

    pub(super) fn end() -> Option<Deadline> {
        Some(Deadline::after(core::time::Duration::from_millis(1)))
    }

    pub(super) fn was_the_last(patience: Patience) -> bool {
        patience.deadline().is_some_and(Deadline::has_passed)
    }
}

/// The queueing mutex that writers hold. Models use one with fewer states and the same guarantees.
#[cfg(not(loom))]
type Gate = Robust<crate::mutex::Throughput<crate::sharing::Shared>>;
#[cfg(loom)]
type Gate = Robust;

/// In a model a lock has one seat, so a reader never looks for another.
#[cfg(loom)]
mod nap {
    use super::{Deadline, Patience};

    pub(super) fn end() -> Option<Deadline> {
        None
    }

    pub(super) fn was_the_last(_: Patience) -> bool {
        true
    }
}

/// Data that many tasks may read at a time, or one may change, each of which may be killed at any instruction.
///
/// 64 bytes, and 64 for each of at most `READERS` readers that are inside at a time, beside the data; one more
/// reader waits. The lock must not move while it is in use, hence the pinned methods; see [`Robust`]. Processes
/// share it in a region or in a mapping of their own.
///
/// The death of a writer, or its panic, is reported to the next task by [`LockError::OwnerDied`]. That of a
/// reader is detected by a task that waits for it, and needs no report. Data that no task has repaired is not
/// dropped with the lock.
///
/// ```
/// use core::pin::Pin;
/// use latchwork::rwlock::{LockError, RobustRwLock};
///
/// static LIMITS: RobustRwLock<[u32; 2]> = RobustRwLock::new([1, 9]);
/// let limits = Pin::static_ref(&LIMITS);
/// match limits.read() {
///     Ok(limits) => assert!(limits[0] <= limits[1]),
///     // A writer died; what it was doing is ours to find out, with the lock held to write.
///     Err(LockError::OwnerDied(died)) => {
///         let repaired = died.replace([1, 9]);
///         assert_eq!(repaired[0], 1);
///     }
///     Err(error) => panic!("{error}"),
/// }
/// ```
#[repr(C)]
pub struct RobustRwLock<T: ?Sized, const READERS: usize = 16> {
    raw: RawRobust<READERS>,
    /// Dropped if it is not torn.
    data: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: a writer has the data alone, and it may be on any thread: hence `T: Send`.
unsafe impl<T: ?Sized + Send, const READERS: usize> Send for RobustRwLock<T, READERS> {}
// SAFETY: readers on several threads share `&T` (`T: Sync`); a writer on any thread has `&mut T` (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync, const READERS: usize> Sync for RobustRwLock<T, READERS> {}

/// The lock without data.
#[repr(C)]
pub(crate) struct RawRobust<const READERS: usize> {
    gate: Gate,
    writing: AtomicU32,
    seats: [Seat; READERS],
}

/// The slot of one reader, in a cache line of its own.
#[repr(C, align(64))]
struct Seat(Robust);

/// How a reader entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// With this seat.
    Reading(usize),
    /// A writer died inside: the task holds the lock to write, and the data may be torn.
    Torn,
}

impl Seat {
    const_unless_loom! {
        fn new() -> Self {
            Self(Robust::new())
        }
    }

    /// Acquires the seat; its last owner's death changes nothing (invariant 3).
    ///
    /// # Safety
    /// As for [`Robust::acquire`].
    unsafe fn take(&self, patience: Patience) -> Result<(), RawError> {
        // SAFETY: by the caller's contract.
        if unsafe { self.0.acquire(patience) }? == Acquired::OwnerDied {
            self.0.mark_consistent();
        }
        Ok(())
    }

    /// Waits until the seat is free.
    ///
    /// # Safety
    /// As for [`Robust::acquire`].
    unsafe fn see_free(&self, patience: Patience) -> Result<(), RawError> {
        // SAFETY: by the caller's contract; `take` has acquired the seat that `unlock_raw` releases.
        unsafe {
            self.take(patience)?;
            self.0.unlock_raw();
        }
        Ok(())
    }
}

/// Whether a mutex is free and clean at this moment; if so, all that its last owner did is visible.
#[inline]
fn is_free<P: RobustProtocol>(lock: &Robust<P>) -> bool {
    // Acquire: pairs with the Release of the last owner.
    lock.node().word.load(Ordering::Acquire) & !WAITERS == 0
}

impl<const READERS: usize> RawRobust<READERS> {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            const { assert!(READERS > 0, "a reader/writer lock without room for readers") };
            #[cfg(not(loom))]
            let seats = [const { Seat::new() }; READERS];
            #[cfg(loom)]
            let seats = core::array::from_fn(|_| Seat::new());
            Self { gate: Gate::new(), writing: AtomicU32::new(0), seats }
        }
    }

    /// Acquires a seat past an open gate; returns the seat and the caller's ID. All other cases are for
    /// [`Self::read`].
    ///
    /// # Safety
    /// The lock stays where it is until it is released or this task has ended.
    #[inline(always)]
    pub(crate) unsafe fn read_free(&self) -> Option<(usize, u32)> {
        if !is_free(&self.gate) {
            return None;
        }
        let index = Me::current_or_none().tid() as usize % READERS;
        let seat = &self.seats[index].0;
        // SAFETY: by the caller's contract.
        let owner = unsafe { seat.acquire_free() }?;
        if self.is_open_since() {
            return Some((index, owner));
        }
        // SAFETY: this task acquired the seat above.
        unsafe { seat.unlock_raw() };
        None
    }

    /// Whether a reader that has just taken a seat is inside.
    #[inline(always)]
    fn is_open_since(&self) -> bool {
        // This fence pairs with the one in `write`.
        if unless_fault!(RobustRwLockReaderUnordered, true, false) {
            fence_after_update();
        }
        unless_fault!(RobustRwLockLooksOnce, is_free(&self.gate), true)
    }

    /// Acquires a seat that is free at this moment, also beyond the task's budget of robust locks.
    ///
    /// # Safety
    /// As for [`Self::read_free`].
    unsafe fn take_free_seat(&self, me: Me) -> Result<usize, RawError> {
        for step in 0..READERS {
            let index = (me.tid() as usize + step) % READERS;
            // SAFETY: by the caller's contract.
            match unsafe { self.seats[index].take(Patience::NONE) } {
                Ok(()) => return Ok(index),
                Err(RawError::WouldBlock | RawError::Deadlock) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RawError::WouldBlock)
    }

    /// Acquires a seat, or waits for one. The caller holds the gate, so no newcomer takes a seat meanwhile.
    ///
    /// # Safety
    /// As for [`Self::read_free`].
    unsafe fn take_seat(&self, me: Me, patience: Patience) -> Result<usize, RawError> {
        let favourite = me.tid() as usize % READERS;
        loop {
            // SAFETY: by the caller's contract.
            match unsafe { self.take_free_seat(me) } {
                Err(RawError::WouldBlock) if !patience.is_none() => {}
                taken => return taken,
            }
            // SAFETY: by the caller's contract.
            match unsafe { self.seats[favourite].take(patience.at_most(nap::end())) } {
                Err(RawError::TimedOut) if !nap::was_the_last(patience) => {}
                taken => return taken.map(|()| favourite),
            }
        }
    }

    /// # Safety
    /// As for [`Self::read_free`].
    pub(crate) unsafe fn read(&self, patience: Patience) -> Result<Entered, RawError> {
        let me = Me::get().map_err(RawError::Unavailable)?;
        if me.budget() <= 0 && me.recount() <= 0 {
            return Err(RawError::TooManyHeld);
        }
        let mut polls = 0;
        loop {
            if is_free(&self.gate) {
                // SAFETY: by the caller's contract.
                match unsafe { self.take_free_seat(me) } {
                    Ok(index) if self.is_open_since() => return Ok(Entered::Reading(index)),
                    // SAFETY: this task acquired the seat just now.
                    Ok(index) => unsafe { self.seats[index].0.unlock_raw() },
                    Err(RawError::WouldBlock) => break,
                    Err(error) => return Err(error),
                }
            }
            if polls == HAND_OVER || patience.is_none() {
                break;
            }
            pause(polls);
            polls += 1;
        }
        self.may_wait(patience)?;
        // SAFETY: by the caller's contract; the gate is released after this task acquired it.
        unsafe {
            if self.take_gate(self.gate.acquire(patience)?) {
                return Ok(Entered::Torn);
            }
            let index = self.take_seat(me, patience);
            self.gate.unlock_raw();
            index.map(Entered::Reading)
        }
    }

    /// Evaluates a gate that this task has just acquired: whether a writer died inside.
    fn take_gate(&self, taken: Acquired) -> bool {
        if taken == Acquired::OwnerDied {
            // Relaxed: only owners of the gate change it.
            let writing = self.writing.load(Ordering::Relaxed);
            let told = unless_fault!(RobustRwLockTellsAllDeaths, writing, 1);
            if unless_fault!(RobustRwLockHidesDeath, told, 0) != 0 {
                return true;
            }
            self.gate.mark_consistent();
        }
        false
    }

    /// Before each wait: a task that has a seat must not wait for others, since they may wait for that seat.
    #[cold]
    fn may_wait(&self, patience: Patience) -> Result<(), RawError> {
        if patience.is_none() {
            return Ok(());
        }
        let me = Some(Me::get().map_err(RawError::Unavailable)?.tid());
        let sits = self.seats.iter().any(|seat| seat.0.owner() == me);
        if unless_fault!(RobustRwLockForgetsOwnSeat, sits, false) {
            return Err(RawError::Deadlock);
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Self::read_free`].
    #[inline]
    pub(crate) unsafe fn write(&self, patience: Patience) -> Result<Acquired, RawError> {
        // SAFETY: by the caller's contract; the gate is released after this task acquired it.
        unsafe {
            let taken = match self.gate.acquire_free() {
                Some(_) => Acquired::Clean,
                None => {
                    self.may_wait(patience)?;
                    self.gate.acquire_in_budget(patience)?
                }
            };
            if self.take_gate(taken) {
                return Ok(Acquired::OwnerDied);
            }
            // This fence pairs with the one in `is_open_since`.
            if unless_fault!(RobustRwLockWriterUnordered, true, false) {
                fence_after_update();
            }
            for seat in &self.seats {
                if is_free(&seat.0) {
                    continue;
                }
                let waited = self.may_wait(patience);
                if let Err(error) = waited.and_then(|()| seat.see_free(patience)) {
                    self.gate.unlock_raw();
                    return Err(error);
                }
            }
        }
        self.begin_writing();
        Ok(Acquired::Clean)
    }

    fn begin_writing(&self) {
        let writing = unless_fault!(RobustRwLockForgetsWriting, 1, 0);
        // Relaxed: it is for the task that acquires the gate after this task's death, which the kernel orders.
        // The fence keeps the compiler from moving a change of the data ahead of the store.
        self.writing.store(writing, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    fn end_writing(&self) {
        // Release: no change of the data may move behind the store; see `begin_writing`.
        self.writing.store(0, Ordering::Release);
    }

    /// Releases a seat that `owner` took.
    ///
    /// # Safety
    /// The guard of `owner` holds the seat, if the guard is used in the process that it was made in.
    #[inline(always)]
    pub(crate) unsafe fn unlock_read(&self, index: usize, owner: u32) {
        // SAFETY: by the caller's contract.
        unsafe { self.seats[index].0.release_guarded(owner) };
    }

    /// Releases the gate and declares the data whole, unless a panic is under way.
    ///
    /// # Safety
    /// As for [`Self::unlock_read`], of a writer.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self, owner: u32) {
        // Before any change: in the child of a fork the writer is the parent.
        owner_of_guard(owner);
        // SAFETY: by the caller's contract.
        unsafe {
            if std::thread::panicking() {
                self.gate.unlock_inconsistent();
            } else {
                self.end_writing();
                self.gate.unlock_raw();
            }
        }
    }

    /// The writer becomes a reader; returns its seat.
    ///
    /// # Safety
    /// As for [`Self::unlock_write`].
    pub(crate) unsafe fn downgrade(&self, owner: u32) -> usize {
        let me = owner_of_guard(owner);
        // SAFETY: as for the gate, which is held. Other tasks release the seats at once (invariant 2).
        unsafe {
            let Ok(index) = self.take_seat(me, Patience::ENDLESS) else {
                crate::fatal(format_args!("a robust reader/writer lock lost its seats"))
            };
            self.end_writing();
            self.gate.unlock_raw();
            index
        }
    }

    /// Whether a writer died inside, or the lock was given up.
    fn is_torn(&mut self) -> bool {
        // Relaxed: `&mut self` excludes other tasks, here and below.
        self.writing.load(Ordering::Relaxed) != 0
    }

    /// Makes such a lock usable again.
    fn make_whole(&mut self) {
        self.gate.make_clean();
        self.writing.store(0, Ordering::Relaxed);
    }

    /// The gate, for operations that only its owner may do.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl<T, const READERS: usize> RobustRwLock<T, READERS> {
    const_unless_loom! {
        /// An unlocked lock, for threads and processes alike.
        ///
        /// A lock without seats (`READERS == 0`) does not compile.
        #[must_use]
        pub fn new(value: T) -> Self {
            Self { raw: RawRobust::new(), data: UnsafeCell::new(ManuallyDrop::new(value)) }
        }
    }
}

impl<T: ?Sized, const READERS: usize> Drop for RobustRwLock<T, READERS> {
    fn drop(&mut self) {
        if !self.raw.is_torn() {
            // SAFETY: the data is not torn, and is not used after this.
            unsafe { ManuallyDrop::drop(self.data.get_mut()) };
        }
    }
}

impl<T: ?Sized, const READERS: usize> fmt::Debug for RobustRwLock<T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seats = self.raw.seats.iter();
        formatter
            .debug_struct("RobustRwLock")
            .field("writer", &self.raw.gate.owner())
            .field("readers", &seats.filter_map(|seat| seat.0.owner()).count())
            .finish_non_exhaustive()
    }
}

/// Without guards: see [`foreign`](crate::foreign).
#[cfg(all(feature = "foreign", not(loom)))]
impl<const READERS: usize> RobustRwLock<(), READERS> {
    /// Returns 0, or `EOWNERDEAD`, with the lock acquired to write.
    ///
    /// # Safety
    /// The lock is pinned.
    pub(crate) unsafe fn enter(
        &self,
        writes: bool,
        patience: Patience,
    ) -> Result<libc::c_int, RawError> {
        // SAFETY: by the caller's contract.
        let torn = unsafe {
            if writes {
                self.raw.write(patience)? == Acquired::OwnerDied
            } else {
                self.raw.read_free().is_none() && self.raw.read(patience)? == Entered::Torn
            }
        };
        if torn {
            crate::task::after_owner_death(core::ptr::from_ref(self).cast::<u8>().addr());
        }
        Ok(if torn { libc::EOWNERDEAD } else { 0 })
    }

    /// Releases whatever the calling task holds of the lock; returns whether it held anything. A torn lock is
    /// given up.
    pub(crate) fn leave(&self) -> bool {
        // `Me::get` registers the thread here, if it acquired the lock through another copy of this library.
        let Ok(me) = Me::get().map(Me::tid) else {
            return false;
        };
        let is_mine = |owner| owner == Some(me);
        if is_mine(self.raw.gate.owner()) {
            // SAFETY: the calling task owns the gate.
            unsafe {
                if self.raw.gate.is_told_of_a_death() {
                    self.raw.gate.release_as_lost();
                } else {
                    self.raw.unlock_write(me);
                }
            }
            return true;
        }
        let seat = self
            .raw
            .seats
            .iter()
            .position(|seat| is_mine(seat.0.owner()));
        if let Some(index) = seat {
            // SAFETY: the calling task owns the seat.
            unsafe { self.raw.unlock_read(index, me) };
        }
        seat.is_some()
    }

    /// Releases the lock with its data in an unknown state; returns false unless the calling task is the
    /// writer.
    pub(crate) fn leave_inconsistent(&self) -> bool {
        let gate = &self.raw.gate;
        let is_mine = Me::get().is_ok_and(|me| gate.owner() == Some(me.tid()));
        if is_mine {
            // SAFETY: the calling task owns the gate. `writing` stays 1.
            unsafe { gate.unlock_inconsistent() };
        }
        is_mine
    }

    /// Declares the data whole; returns false unless the calling task holds the lock with a death reported.
    pub(crate) fn declare_whole(&self) -> bool {
        let gate = &self.raw.gate;
        let told =
            Me::get().is_ok_and(|me| gate.owner() == Some(me.tid())) && gate.is_told_of_a_death();
        if told {
            // `writing` stays 1.
            gate.mark_consistent();
        }
        told
    }
}
