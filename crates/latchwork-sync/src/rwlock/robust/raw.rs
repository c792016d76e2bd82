//! The robust reader/writer lock without data. The argument is in [the parent](super).
#![allow(unsafe_code)]

use super::parts::{Part, SeatLock, SeatOps};
use crate::atomic::{
    AtomicU32, Ordering, compiler_fence, const_unless_loom, fence_after_update, unless_fault,
};
use crate::backoff::{HAND_OVER, pause};
use crate::mutex::throughput::{Counting, Uncounted};
use crate::mutex::{Acquired, InRegion, RawError, Robust, WaitMode, end_of_nap, is_over};
use crate::rwlock::trace::{Acquisition, Entry, Event};
use core::time::Duration;

/// One sleep for a reader's favourite seat, before the reader searches for another one. (In a model a lock has one seat,
/// so a reader never searches for another.)
const NAP: Duration = Duration::from_millis(1);

/// The lock without data.
#[repr(C)]
pub(crate) struct RawRobust<
    const READERS: usize,
    C: Counting<Event> = Uncounted,
    K: SeatLock = Robust,
> {
    pub(super) gate: K::Gate,
    writing: AtomicU32,
    pub(super) counts: C,
    pub(super) seats: [Seat<K>; READERS],
}

/// The slot of one reader, in a cache line of its own.
#[repr(C, align(64))]
pub(super) struct Seat<K>(pub(super) K);

/// Where the free path of a writer has left off.
#[derive(Clone, Copy)]
enum LeftOff {
    BeforeGate,
    /// With the gate, before this seat.
    BeforeSeat(usize),
}

/// How a reader entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// With this seat.
    Reading(usize),
    /// A writer died inside: the task holds the lock to write, and the data may be torn.
    Torn,
}

impl<K: SeatLock> Seat<K> {
    /// Acquires the seat; its last owner's death changes nothing (invariant 3).
    ///
    /// # Safety
    /// As for [`Part::acquire`].
    unsafe fn take(&self, wait_mode: WaitMode) -> Result<(), RawError<K::Fault>> {
        // SAFETY: by the caller's contract.
        if unsafe { self.0.acquire(wait_mode) }? == Acquired::OwnerDied {
            self.0.mark_consistent();
        }
        Ok(())
    }
}

/// A writer's store of the gate comes before its loads of the seats: it pairs with the fence in `gate_stayed_open`.
#[inline(always)]
fn order_gate_before_seats() {
    if unless_fault!(RobustRwLockWriterUnordered, true, false) {
        fence_after_update();
    }
}

/// The constructors, each of one kind.
macro_rules! raw_constructors {
    ($($kind:ty: $new:ident, $with:ident;)*) => {$(
        impl<const READERS: usize> RawRobust<READERS, Uncounted, $kind> {
            const_unless_loom! {
                pub(crate) fn $new() -> Self {
                    Self::$with(Uncounted)
                }
            }
        }

        impl<const READERS: usize, C: Counting<Event>> RawRobust<READERS, C, $kind> {
            const_unless_loom! {
                pub(super) fn $with(counts: C) -> Self {
                    const { assert!(READERS > 0, "a reader/writer lock without room for readers") };
                    #[cfg(not(loom))]
                    let seats = [const { Seat(<$kind>::new()) }; READERS];
                    #[cfg(loom)]
                    let seats = core::array::from_fn(|_| Seat(<$kind>::new()));
                    let gate = <$kind as SeatOps>::Gate::new();
                    Self { gate, writing: AtomicU32::new(0), counts, seats }
                }
            }
        }
    )*};
}
raw_constructors! {
    Robust: new, with;
    InRegion: in_region, in_region_with;
}

impl<const READERS: usize, C: Counting<Event>, K: SeatLock> RawRobust<READERS, C, K> {
    /// Acquires a seat past an open gate; returns the seat and the caller's stamp. All other cases are for [`Self::read`].
    ///
    /// # Safety
    /// The lock stays where it is until it is released or this task has ended.
    #[inline(always)]
    pub(crate) unsafe fn read_free(&self) -> Option<(usize, K::Owner)> {
        if !self.gate.is_free() {
            return None;
        }
        let index = K::known_caller(&self.gate).map_or(0, K::number) % READERS;
        let seat = &self.seats[index].0;
        // SAFETY: by the caller's contract.
        let owner = unsafe { seat.acquire_free() }?;
        if self.gate_stayed_open() {
            return Some((index, owner));
        }
        // SAFETY: this task acquired the seat above.
        unsafe { seat.unlock() };
        None
    }

    /// Whether a reader that has just taken a seat is inside.
    #[inline(always)]
    fn gate_stayed_open(&self) -> bool {
        // This fence pairs with the one in `order_gate_before_seats`.
        if unless_fault!(RobustRwLockReaderUnordered, true, false) {
            fence_after_update();
        }
        unless_fault!(RobustRwLockChecksOnce, self.gate.is_free(), true)
    }

    /// Acquires a seat that is free at this moment, also beyond the task's budget of robust locks.
    ///
    /// # Safety
    /// As for [`Self::read_free`].
    unsafe fn take_free_seat(&self, me: K::Owner) -> Result<usize, RawError<K::Fault>> {
        for step in 0..READERS {
            let index = K::number(me).wrapping_add(step) % READERS;
            // SAFETY: by the caller's contract.
            match unsafe { self.seats[index].take(WaitMode::TRY) } {
                Ok(()) => return Ok(index),
                // (A seat that is not recoverable was lost by a thread that ended as a reader.)
                Err(RawError::WouldBlock | RawError::Deadlock | RawError::NotRecoverable) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RawError::WouldBlock)
    }

    /// Acquires a seat, or waits for one. The caller holds the gate, so no newcomer takes a seat meanwhile.
    ///
    /// # Safety
    /// As for [`Self::read_free`].
    unsafe fn take_seat(
        &self,
        me: K::Owner,
        wait_mode: WaitMode,
    ) -> Result<usize, RawError<K::Fault>> {
        // A nap on each seat in turn: its reader may have died without the kernel's mark, which only a waiter for that very
        // seat finds out.
        let mut seat = K::number(me) % READERS;
        let mut lost = 0;
        loop {
            // SAFETY: by the caller's contract.
            match unsafe { self.take_free_seat(me) } {
                Err(RawError::WouldBlock) if !wait_mode.is_try() => {}
                taken => return taken,
            }
            let nap = end_of_nap(NAP, wait_mode.deadline());
            // SAFETY: by the caller's contract.
            match unsafe { self.seats[seat].take(wait_mode.at_most(nap)) } {
                Err(RawError::TimedOut) if !is_over(wait_mode.deadline()) => lost = 0,
                Err(RawError::NotRecoverable) if lost + 1 < READERS => lost += 1,
                taken => return taken.map(|()| seat),
            }
            seat = (seat + 1) % READERS;
        }
    }

    /// Enters to read where [`Self::read_free`] did not. Also returns how.
    ///
    /// # Safety
    /// As for [`Self::read_free`].
    pub(crate) unsafe fn read(
        &self,
        wait_mode: WaitMode,
    ) -> Result<(Entered, Acquisition), RawError<K::Fault>> {
        // SAFETY: the same contract.
        self.account(false, wait_mode, |entry| unsafe {
            self.read_slowly(wait_mode, entry)
        })
    }

    /// # Safety
    /// As for [`Self::read_free`].
    unsafe fn read_slowly(
        &self,
        wait_mode: WaitMode,
        entry: &mut Entry,
    ) -> Result<Entered, RawError<K::Fault>> {
        let me = K::caller_with_room(&self.gate)?;
        let mut polls = 0;
        loop {
            if self.gate.is_free() {
                // SAFETY: by the caller's contract.
                match unsafe { self.take_free_seat(me) } {
                    Ok(index) if self.gate_stayed_open() => return Ok(Entered::Reading(index)),
                    // SAFETY: this task acquired the seat just now.
                    Ok(index) => unsafe { self.seats[index].0.unlock() },
                    Err(RawError::WouldBlock) => break,
                    Err(error) => return Err(error),
                }
            }
            if polls >= HAND_OVER || wait_mode.is_try() {
                break;
            }
            *entry = Entry::Polled;
            polls += pause(polls);
        }
        self.may_wait(wait_mode)?;
        *entry = Entry::Polled;
        // SAFETY: by the caller's contract; the gate is released after this task acquired it.
        unsafe {
            let taken = match self.gate.acquire_free() {
                Some(_) => Acquired::Clean,
                None => K::take_gate(&self.gate, wait_mode, entry)?,
            };
            if self.finds_torn_data(taken) {
                return Ok(Entered::Torn);
            }
            let index = self.take_seat(me, wait_mode);
            self.gate.unlock();
            index.map(Entered::Reading)
        }
    }

    /// Evaluates a gate that this task has just acquired: whether a writer died inside.
    fn finds_torn_data(&self, taken: Acquired) -> bool {
        if taken == Acquired::OwnerDied {
            // Relaxed: only owners of the gate change it.
            let writing = self.writing.load(Ordering::Relaxed);
            let deaths = unless_fault!(RobustRwLockReportsAllDeaths, writing, 1);
            let reported = crate::atomic::unless_disabled!(RwLockReportsDeadWriter, deaths, 0);
            if unless_fault!(RobustRwLockHidesDeath, reported, 0) != 0 {
                return true;
            }
            self.gate.mark_consistent();
        }
        false
    }

    /// Before each wait: a task that has a seat must not wait for others, since they may wait for that seat.
    #[cold]
    fn may_wait(&self, wait_mode: WaitMode) -> Result<(), RawError<K::Fault>> {
        if wait_mode.is_try() {
            return Ok(());
        }
        let me = Some(K::caller(&self.gate)?);
        let has_seat = self.seats.iter().any(|seat| seat.0.holder() == me);
        if unless_fault!(RobustRwLockForgetsOwnSeat, has_seat, false) {
            return Err(RawError::Deadlock);
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Self::read_free`].
    #[inline]
    pub(crate) unsafe fn write(&self, wait_mode: WaitMode) -> Result<Acquired, RawError<K::Fault>> {
        // SAFETY: by the caller's contract.
        match unsafe { self.write_free() } {
            Ok(()) => Ok(Acquired::Clean),
            // SAFETY: by the caller's contract; the free path has left off there.
            Err(at) => unsafe { self.write_on(wait_mode, at) }.map(|(taken, _)| taken),
        }
    }

    /// As [`Self::write`], and returns how the task entered.
    ///
    /// # Safety
    /// As for [`Self::read_free`].
    pub(crate) unsafe fn write_traced(
        &self,
        wait_mode: WaitMode,
    ) -> Result<(Acquired, Acquisition), RawError<K::Fault>> {
        // SAFETY: by the caller's contract.
        match unsafe { self.write_free() } {
            Ok(()) => Ok((Acquired::Clean, Acquisition::FREE)),
            // SAFETY: by the caller's contract; the free path has left off there.
            Err(at) => unsafe { self.write_on(wait_mode, at) },
        }
    }

    /// Acquires a free gate, and checks that no reader is inside; else returns where it has left off.
    ///
    /// # Safety
    /// As for [`Self::read_free`].
    #[inline(always)]
    unsafe fn write_free(&self) -> Result<(), LeftOff> {
        // SAFETY: by the caller's contract.
        if unsafe { self.gate.acquire_free() }.is_none() {
            return Err(LeftOff::BeforeGate);
        }
        order_gate_before_seats();
        for (index, seat) in self.seats.iter().enumerate() {
            if !seat.0.is_free() {
                return Err(LeftOff::BeforeSeat(index));
            }
        }
        self.begin_writing();
        Ok(())
    }

    /// # Safety
    /// As for [`Self::read_free`]; this task has the gate if it has left off before a seat.
    #[cold]
    #[inline(never)]
    unsafe fn write_on(
        &self,
        wait_mode: WaitMode,
        at: LeftOff,
    ) -> Result<(Acquired, Acquisition), RawError<K::Fault>> {
        // SAFETY: the same contract.
        self.account(true, wait_mode, |entry| unsafe {
            self.write_slowly(wait_mode, at, entry)
        })
    }

    /// # Safety
    /// As for [`Self::write_on`].
    unsafe fn write_slowly(
        &self,
        wait_mode: WaitMode,
        at: LeftOff,
        entry: &mut Entry,
    ) -> Result<Acquired, RawError<K::Fault>> {
        // SAFETY: by the caller's contract; the gate and a seat are released after this task acquired them.
        unsafe {
            let first = match at {
                LeftOff::BeforeSeat(index) => index,
                LeftOff::BeforeGate => {
                    let is_known = K::known_caller(&self.gate).is_some();
                    self.may_wait(wait_mode)?;
                    // A thread's first call comes here although the gate may be free.
                    let taken = if !is_known && self.gate.acquire_free().is_some() {
                        Acquired::Clean
                    } else {
                        K::take_gate(&self.gate, wait_mode, entry)?
                    };
                    if self.finds_torn_data(taken) {
                        return Ok(Acquired::OwnerDied);
                    }
                    order_gate_before_seats();
                    0
                }
            };
            for seat in &self.seats[first..] {
                if seat.0.is_free() {
                    continue;
                }
                if *entry == Entry::Free {
                    *entry = Entry::Polled;
                }
                let waited = self.may_wait(wait_mode);
                match waited.and_then(|()| seat.take(wait_mode)) {
                    Ok(()) => seat.0.unlock(),
                    Err(error) => {
                        self.gate.unlock();
                        return Err(error);
                    }
                }
            }
        }
        self.begin_writing();
        Ok(Acquired::Clean)
    }

    #[inline(always)]
    fn begin_writing(&self) {
        let writing = unless_fault!(RobustRwLockForgetsWriting, 1, 0);
        // Relaxed: it is for the task that acquires the gate after this task's death, which the kernel orders.
        // The fence keeps the compiler from moving a change of the data ahead of the store.
        self.writing.store(writing, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    pub(super) fn end_writing(&self) {
        // Release: no change of the data may move behind the store; see `begin_writing`.
        self.writing.store(0, Ordering::Release);
    }

    /// Releases a seat that `owner` took.
    ///
    /// # Safety
    /// The guard of `owner` holds the seat, if the guard is used in the process that it was made in.
    #[inline(always)]
    pub(crate) unsafe fn unlock_read(&self, index: usize, owner: K::Owner) {
        self.count_unlock(&self.seats[index].0);
        // SAFETY: by the caller's contract.
        unsafe { self.seats[index].0.release_guarded(owner) };
    }

    /// Releases the gate and declares the data whole, unless a panic is under way.
    ///
    /// # Safety
    /// As for [`Self::unlock_read`], of a writer.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self, owner: K::Owner) {
        // Before any change: in the child of a fork the writer is the parent.
        K::assert_owner(&self.gate, owner);
        self.count_unlock(&self.gate);
        // SAFETY: by the caller's contract.
        unsafe {
            if std::thread::panicking() {
                self.gate.unlock_inconsistent();
            } else {
                self.end_writing();
                self.gate.unlock();
            }
        }
    }

    /// The writer becomes a reader; returns its seat.
    ///
    /// # Safety
    /// As for [`Self::unlock_write`].
    pub(crate) unsafe fn downgrade(&self, owner: K::Owner) -> usize {
        K::assert_owner(&self.gate, owner);
        // SAFETY: as for the gate, which is held. Other tasks release the seats at once (invariant 2).
        unsafe {
            let Ok(index) = self.take_seat(owner, WaitMode::FOREVER) else {
                crate::fatal(format_args!("a robust reader/writer lock lost its seats"))
            };
            self.end_writing();
            self.gate.unlock();
            index
        }
    }

    /// Whether a writer died inside, or the lock was given up.
    pub(super) fn is_torn(&mut self) -> bool {
        // Relaxed: `&mut self` excludes other tasks, here and below.
        self.writing.load(Ordering::Relaxed) != 0
    }

    /// Makes a lock usable again that no living task uses.
    pub(super) fn make_whole(&mut self) {
        self.gate.make_clean();
        self.seats.iter_mut().for_each(|seat| seat.0.make_clean());
        self.writing.store(0, Ordering::Relaxed);
    }

    /// The gate, for operations that only its owner may do.
    pub(crate) fn gate(&self) -> &K::Gate {
        &self.gate
    }
}
