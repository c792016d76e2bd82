//! The robust reader/writer lock: the death of a writer is reported to the next task, the death of a
//! reader frees what it held.
//!
//! Not recursive: what would wait for itself reports [`LockError::Deadlock`]. No priority inheritance.
//! Source: the *big-reader lock* of Linux (`brlock`: a writer looks at a place
//! of each reader), made of [`Robust`] mutexes; the gate is a throughput one, which hands over to who has
//! waited for long.
//!
//! | part | held by |
//! | --- | --- |
//! | gate, a robust mutex | a writer, as long as it waits or is inside; a reader for a moment, if it cannot enter past the gate |
//! | seats, [`READERS`](RobustRwLock) robust mutexes | readers, one each; others for a moment |
//! | `writing` | 1 while a writer is inside, or died there; changed by the holder of the gate |
//!
//! The gate is *open* while its word is free and without `OWNER_DIED`.
//!
//! | to | do |
//! | --- | --- |
//! | read, past an open gate | take a free seat; look at the gate; if it is not open, leave the seat |
//! | read, else | take the gate, a seat, and release the gate |
//! | write | take the gate; wait until each seat has been seen free; set `writing` |
//! | stop reading | release the seat |
//! | stop writing | clear `writing`, release the gate |
//! | go on as a reader | take a seat, clear `writing`, release the gate |
//!
//! Invariants
//! 1. A reader is inside if it has a seat, and has found the gate open since, or had the gate itself.
//! 2. While `writing` is 1 the gate is not open, and nobody but the gate's holder is inside.
//! 3. A seat protects no data: whoever takes one from a dead task declares it whole at once.
//!
//! *Why a writer is alone.* A reader past the gate stores its seat's word, then looks at the gate's; a
//! writer stores the gate's word, then looks at the seats'; each with a barrier in between. So the
//! reader sees the gate taken, and goes, or the writer sees the seat taken, and waits. Who takes a seat
//! with the gate in its hands is seen by the next who has the gate.
//!
//! *A kill between any two instructions* leaves robust mutexes, each with all that
//! [`Robust`] promises: its death is found, its sleepers are woken. A dead reader's seat is taken
//! by whoever waits for it or looks for one. Of a dead task's gate `writing` tells what it means. 0: the
//! dead one was not inside (it let itself in as a reader, or waited for readers), and the gate is taken
//! as if it had been released. 1: the data may be torn, and whoever gets the gate is told, a reader,
//! too, which has the lock to write then. (By 2 no reader is inside, so it need not look at the seats.)
//! `writing` is set before the first change and cleared after the last one, as this task's own program
//! order has it, which is what a kill cuts. Nothing is to be recovered but by taking a mutex, so a kill
//! of whoever recovers is one more death.
//!
//! *No wake-up is lost:* each sleep is that of a robust mutex.
//!
//! *Orderings:* a reader's release of its seat (Release) pairs with the writer's look at it (Acquire),
//! a writer's release of the gate with a reader's look at that; barriers as above.
//!
//! *Progress:* writers first: readers that come while one has the gate wait. All who wait, readers and writers,
//! do so at the gate, and its top waiter gets it handed over within its threshold of 5 ms: nobody
//! starves (see [`Throughput`]). Who has the gate waits for those in the seats then, and for
//! nobody that comes later, but the moment that a reader needs to see that the gate is taken. *All seats taken:* one more
//! reader takes the gate, and keeps it until there is a seat. It sleeps on its favourite one, that of
//! its ID, and looks at the others each millisecond.
//!
//! *Reading while reading* takes a second seat, and never waits: where it would, it reports `Deadlock`,
//! for a writer may be waiting for the first one. Writing while reading never waits, either, and reading
//! while writing: each wait looks first whether the calling task has a seat, or the gate.
//!
//! *Hostile events:* as for the robust mutex: EINTR, exec, fork, signal handlers, PID namespaces.
//!
//! *Frozen:* layout of [`Robust`]; a line of 64 bytes for the gate and for each seat.
//!
//! *Cost, free:* to read, two compare-and-swaps in a line that no other reader touches (unless their IDs
//! want the same seat), and a look at the gate; to write, two compare-and-swaps, and a look at each
//! seat. *Checked by:* `tests/loom_robust_rwlock.rs` (a victim that dies at each of its steps; negative
//! twins), `tests/robust_rwlock.rs`, `tests/kill_rwlock.rs` (kills at each instruction, and storms).
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

/// Until when a reader sleeps for its favourite seat, before it looks for another one; and whether that
/// was the end of its patience, too.
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

/// The mutex that writers hold. In a model one of fewer states, with the same promises.
#[cfg(not(loom))]
type Gate = Robust<crate::mutex::Throughput<crate::sharing::Shared>>;
#[cfg(loom)]
type Gate = Robust;

/// In a model whoever waits for a seat waits for the only one.
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

/// Data that many tasks may read at a time, or one may change, each of which may be killed at any
/// instruction.
///
/// 64 bytes and 64 for each of at most `READERS` readers that are inside at a time, beside the data: one
/// more waits for a seat. It must not move while it is in use, hence the pinned methods; see
/// [`Robust`]. Processes share it, in a region or in the user's own mapping.
///
/// The death of a writer, or its panic, is told to the next task by [`LockError::OwnerDied`]; that of a
/// reader is found by whoever waits for it, and nobody need be told. Data that nobody has repaired is
/// not dropped with the lock.
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
    /// Dropped where it is whole.
    data: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: the lock gives the data to one task at a time, or a shared reference to several.
unsafe impl<T: ?Sized + Send, const READERS: usize> Send for RobustRwLock<T, READERS> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync, const READERS: usize> Sync for RobustRwLock<T, READERS> {}

/// The lock without data.
#[repr(C)]
pub(crate) struct RawRobust<const READERS: usize> {
    gate: Gate,
    writing: AtomicU32,
    seats: [Seat; READERS],
}

/// Where one reader sits, in a cache line of its own.
#[repr(C, align(64))]
struct Seat(Robust);

/// How a task that came to read got in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// In this seat.
    Reading(usize),
    /// A writer died inside: with the lock held to write, and data that may be torn.
    Torn,
}

impl Seat {
    const_unless_loom! {
        fn new() -> Self {
            Self(Robust::new())
        }
    }

    /// Takes the seat; its last owner's death changes nothing (invariant 3).
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

    /// Waits until nobody sits here.
    ///
    /// # Safety
    /// As for [`Robust::acquire`].
    unsafe fn see_free(&self, patience: Patience) -> Result<(), RawError> {
        // SAFETY: by the caller's contract; taken just now.
        unsafe {
            self.take(patience)?;
            self.0.unlock_raw();
        }
        Ok(())
    }
}

/// Whether a mutex is free and clean at this moment; then all is seen that its last owner did.
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

    /// Takes a seat past an open gate; which one, and the caller's ID. Anything else is for
    /// [`Self::read`].
    ///
    /// # Safety
    /// The lock stays where it is until it is released or this task has ended.
    #[inline(always)]
    pub(crate) unsafe fn read_free(&self) -> Option<(usize, u32)> {
        if !is_free(&self.gate) {
            return None;
        }
        let index = Me::whoever().tid() as usize % READERS;
        let seat = &self.seats[index].0;
        // SAFETY: by the caller's contract.
        let owner = unsafe { seat.acquire_free() }?;
        if self.is_open_since() {
            return Some((index, owner));
        }
        // SAFETY: taken just now.
        unsafe { seat.unlock_raw() };
        None
    }

    /// Whether a reader that has just taken a seat is inside.
    #[inline(always)]
    fn is_open_since(&self) -> bool {
        // Pairs with the barrier in `write`.
        if unless_fault!(RobustRwLockReaderUnordered, true, false) {
            fence_after_update();
        }
        unless_fault!(RobustRwLockLooksOnce, is_free(&self.gate), true)
    }

    /// Takes a seat that is free at this moment. Beyond the budget.
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

    /// Takes a seat, or waits for one. With the gate in the hand, so that seats only get free.
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
            // SAFETY: as above.
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
                // SAFETY: by the caller's contract; taken just now.
                match unsafe { self.take_free_seat(me) } {
                    Ok(index) if self.is_open_since() => return Ok(Entered::Reading(index)),
                    // SAFETY: as above.
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
        // SAFETY: by the caller's contract; what was taken is released.
        unsafe {
            if self.take_gate(self.gate.acquire(patience)?) {
                return Ok(Entered::Torn);
            }
            let index = self.take_seat(me, patience);
            self.gate.unlock_raw();
            index.map(Entered::Reading)
        }
    }

    /// What a gate that was taken just now means: whether a writer died inside.
    fn take_gate(&self, taken: Acquired) -> bool {
        if taken == Acquired::OwnerDied {
            // Relaxed: changed by holders of the gate only.
            let writing = self.writing.load(Ordering::Relaxed);
            let told = unless_fault!(RobustRwLockTellsAllDeaths, writing, 1);
            if unless_fault!(RobustRwLockHidesDeath, told, 0) != 0 {
                return true;
            }
            self.gate.mark_consistent();
        }
        false
    }

    /// In front of each wait: the calling task does not wait for others while it sits in a seat, for
    /// they may wait for that one.
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
        // SAFETY: by the caller's contract; what was taken is released.
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
            // Pairs with the barrier in `is_open_since`.
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
        // Relaxed: for whoever takes the gate after this task's death, which the kernel orders. The
        // fence keeps the compiler from moving a change of the data ahead.
        self.writing.store(writing, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    fn end_writing(&self) {
        // Release: no change of the data may move behind; see above.
        self.writing.store(0, Ordering::Release);
    }

    /// Releases a seat that `owner` took.
    ///
    /// # Safety
    /// The guard of `owner` holds it, if it is used in the process that it was made in.
    #[inline(always)]
    pub(crate) unsafe fn unlock_read(&self, index: usize, owner: u32) {
        // SAFETY: by the caller's contract.
        unsafe { self.seats[index].0.release_guarded(owner) };
    }

    /// Releases the gate: of data that is whole, unless a panic is under way.
    ///
    /// # Safety
    /// As for [`Self::unlock_read`], of a writer.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self, owner: u32) {
        // Before anything changes: in the child of a fork it is the parent who writes.
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

    /// A writer goes on as a reader: which seat it has.
    ///
    /// # Safety
    /// As for [`Self::unlock_write`].
    pub(crate) unsafe fn downgrade(&self, owner: u32) -> usize {
        let me = owner_of_guard(owner);
        // SAFETY: as for the gate, which is held. Others leave the seats at once (invariant 2).
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
        // Relaxed: nobody else has access, here and below.
        self.writing.load(Ordering::Relaxed) != 0
    }

    /// Makes such a lock usable again.
    fn make_whole(&mut self) {
        self.gate.make_clean();
        self.writing.store(0, Ordering::Relaxed);
    }

    /// The gate, for what only its holder may do with it.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl<T, const READERS: usize> RobustRwLock<T, READERS> {
    const_unless_loom! {
        /// An unlocked one, for threads and processes alike.
        ///
        /// Without room for readers it does not compile.
        #[must_use]
        pub fn new(value: T) -> Self {
            Self { raw: RawRobust::new(), data: UnsafeCell::new(ManuallyDrop::new(value)) }
        }
    }
}

impl<T: ?Sized, const READERS: usize> Drop for RobustRwLock<T, READERS> {
    fn drop(&mut self) {
        if !self.raw.is_torn() {
            // SAFETY: the data is whole, and gone after this.
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
    /// 0, or `EOWNERDEAD`: taken, to write.
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

    /// Releases what the calling task has of it; whether it has anything. A lock that is torn is given
    /// up.
    pub(crate) fn leave(&self) -> bool {
        // Known from now on, if it was taken through another copy of this library.
        let Ok(me) = Me::get().map(Me::tid) else {
            return false;
        };
        let is_mine = |owner| owner == Some(me);
        if is_mine(self.raw.gate.owner()) {
            // SAFETY: the gate is this task's.
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
            // SAFETY: the seat is this task's.
            unsafe { self.raw.unlock_read(index, me) };
        }
        seat.is_some()
    }

    /// Releases what the calling task has written, with its data in an unknown state; false unless it is the writer.
    pub(crate) fn leave_inconsistent(&self) -> bool {
        let gate = &self.raw.gate;
        let is_mine = Me::get().is_ok_and(|me| gate.owner() == Some(me.tid()));
        if is_mine {
            // SAFETY: the gate is this task's. `writing` stays.
            unsafe { gate.unlock_inconsistent() };
        }
        is_mine
    }

    /// Declares the data whole; false unless the calling task was told that it is not.
    pub(crate) fn declare_whole(&self) -> bool {
        let gate = &self.raw.gate;
        let told =
            Me::get().is_ok_and(|me| gate.owner() == Some(me.tid())) && gate.is_told_of_a_death();
        if told {
            // `writing` stays.
            gate.mark_consistent();
        }
        told
    }
}
