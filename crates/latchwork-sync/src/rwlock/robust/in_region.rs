//! Reader/writer locks that are made of region locks: their gate and their seats, their constructor, and their calls
//! through plain references.
#![allow(unsafe_code)]

use super::acquire::{ReadResult, Traced, WriteResult};
use super::guard::{RobustReadGuard, RobustWriteGuard};
use super::lock::RobustRwLock;
use super::parts::{Part, SeatOps};
use super::raw::RawRobust;
use crate::atomic::const_unless_loom;
use crate::mutex::Throughput;
use crate::mutex::in_region::{NotATask, RegionProtocol};
#[cfg(not(loom))]
use crate::mutex::throughput::Counters;
use crate::mutex::throughput::{Counting, Uncounted};
use crate::mutex::{Acquired, InRegion, RawError, WaitMode};
#[cfg(not(loom))]
use crate::rwlock::trace::Released;
use crate::rwlock::trace::{Entry, Event};
use crate::sharing::Shared;
use crate::time::Deadline;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// A robust reader/writer lock for data in a region, made of region locks.
///
/// As [`RobustRwLock`], with the same guards and errors, but it is on no list: it may move while no task uses it, a task can
/// hold any number of such locks, and it need not be pinned unless its data must be. Its words name their owners as
/// tasks of the region, as those of [`InRegion`] do; so it must lie in one, and a thread becomes a task of the region by
/// its first call.
///
/// | method | |
/// | --- | --- |
/// | [`read`](Movable::read), [`write`](Movable::write), [`try_read`](Movable::try_read), … | through `&RegionRwLock<T>`, if `T` is `Unpin` |
/// | the same names | through `Pin<&RegionRwLock<T>>`, for any `T`, such as a container of the region |
///
/// Its gate is a region lock in the throughput form: it is handed off to a task that has waited there for 5 ms as the first
/// in the queue, so a wait is bounded as that of [`RobustRwLock`] is. That time is fixed.
///
/// A thread that ends inside leaves the lock to its process: a writer's death is reported when that dies. In the child of a
/// fork no lock is held; dropping an inherited guard there aborts. Zero is unlocked. A lock that is moved while tasks are
/// inside, or after they died inside, can be [`reset`](RobustRwLock::reset) in its new place, and used for nothing else.
///
/// ```
/// use latchwork::region::RegionOptions;
/// use latchwork::rwlock::{LockError, RegionRwLock};
///
/// let region = RegionOptions::new().create_anonymous()?;
/// let limits = region.object("limits", || RegionRwLock::<_>::in_region([1_u32, 9]))?;
/// match limits.read() {
///     Ok(limits) => assert!(limits[0] <= limits[1]),
///     // A writer died; what it was doing is ours to find out, with the lock held to write.
///     Err(LockError::OwnerDied(died)) => drop(died.replace([1, 9])),
///     Err(error) => panic!("{error}"),
/// }
/// limits.write().unwrap()[0] = 2;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type RegionRwLock<T, const READERS: usize = 16> = RobustRwLock<T, READERS, Uncounted, InRegion>;

type Gate = InRegion<Throughput<Shared>>;

// SAFETY: a robust mutex.
unsafe impl<P: RegionProtocol> Part for InRegion<P> {
    type Owner = u64;
    type Fault = NotATask;

    #[inline(always)]
    fn is_free(&self) -> bool {
        self.is_free_and_whole()
    }

    fn has_sleepers(&self) -> bool {
        self.has_sleepers()
    }

    fn holder(&self) -> Option<u64> {
        self.holder()
    }

    #[inline(always)]
    unsafe fn acquire_free(&self) -> Option<u64> {
        self.acquire_free()
    }

    #[inline]
    unsafe fn acquire(&self, wait_mode: WaitMode) -> Result<Acquired, RawError<NotATask>> {
        match self.acquire_free() {
            Some(_) => Ok(Acquired::Clean),
            None => Ok(self.acquire_slowly(wait_mode)?.0),
        }
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.unlock_raw() };
    }

    unsafe fn unlock_inconsistent(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.unlock_raw_inconsistent() };
    }

    unsafe fn release_not_recoverable(&self) {
        if let Some(owner) = self.holder() {
            self.release_not_recoverable(owner);
        }
    }

    #[inline(always)]
    unsafe fn release_guarded(&self, owner: u64) {
        // SAFETY: by the caller's contract.
        unsafe { self.release_guarded(owner) };
    }

    fn mark_consistent(&self) {
        // SAFETY: only the owner calls this; a task that is not the owner is detected.
        unsafe { self.mark_raw_consistent() };
    }

    fn make_clean(&mut self) {
        self.make_clean();
    }
}

// SAFETY: an identity names one task of the region, and gate and seats lie in the same region.
unsafe impl SeatOps for InRegion {
    type Gate = Gate;

    #[inline]
    fn caller(gate: &Gate) -> Result<u64, RawError<NotATask>> {
        gate.join().map_err(RawError::Refused)
    }

    #[inline]
    fn caller_with_room(gate: &Gate) -> Result<u64, RawError<NotATask>> {
        Self::caller(gate)
    }

    #[inline(always)]
    fn known_caller(gate: &Gate) -> Option<u64> {
        gate.own_identity()
    }

    #[inline(always)]
    fn stamp(gate: &Gate) -> Option<u64> {
        gate.own_identity()
    }

    #[inline]
    fn assert_owner(gate: &Gate, owner: u64) {
        if gate.own_identity() != Some(owner) {
            gate.owner_of_guard(owner);
        }
    }

    /// The slot, counted from 1.
    #[inline(always)]
    fn number(owner: u64) -> usize {
        (owner >> 48) as usize
    }

    /// The slot and its generation.
    fn shown(owner: u64) -> impl fmt::Debug {
        ((owner >> 48).wrapping_sub(1), owner as u32)
    }

    unsafe fn take_gate(
        gate: &Gate,
        wait_mode: WaitMode,
        entry: &mut Entry,
    ) -> Result<Acquired, RawError<NotATask>> {
        #[cfg(loom)]
        {
            let _ = entry;
            Ok(gate.acquire_slowly(wait_mode)?.0)
        }
        #[cfg(not(loom))]
        {
            let (taken, handed_off) =
                gate.acquire_slowly_traced(wait_mode, || *entry = Entry::Polled)?;
            if handed_off {
                *entry = Entry::HandedOff;
            }
            Ok(taken)
        }
    }

    #[cfg(not(loom))]
    unsafe fn unlock_gate_traced(gate: &Gate, is_whole: bool) -> Released {
        // SAFETY: the same contract.
        unsafe { gate.unlock_raw_traced(is_whole) }.into()
    }
}

impl<T, const READERS: usize> RobustRwLock<T, READERS, Uncounted, InRegion> {
    const_unless_loom! {
        /// An unlocked lock for a region: see [`RegionRwLock`].
        ///
        /// A lock without seats (`READERS == 0`) does not compile.
        #[must_use]
        pub fn in_region(value: T) -> Self {
            Self { raw: RawRobust::in_region(), data: UnsafeCell::new(ManuallyDrop::new(value)) }
        }
    }
}

#[cfg(not(loom))]
impl<T, const READERS: usize> RobustRwLock<T, READERS, Counters<Event>, InRegion> {
    /// An unlocked lock for a region that counts what its slow paths do: see [`RobustRwLock::counted`].
    ///
    /// ```
    /// use latchwork::region::RegionOptions;
    /// use latchwork::rwlock::{Event, RobustRwLock};
    ///
    /// let region = RegionOptions::new().create_anonymous()?;
    /// let table = region.object("table", || RobustRwLock::<_, 16, _, _>::in_region_counted(1_u32))?;
    /// assert_eq!(*table.write().unwrap(), 1);
    /// assert_eq!(table.counters().of(Event::Sleep), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn in_region_counted(value: T) -> Self {
        Self {
            raw: RawRobust::in_region_with(Counters::new()),
            data: UnsafeCell::new(ManuallyDrop::new(value)),
        }
    }
}

/// A reader/writer lock of a region as it is used through a plain reference: its data may move.
///
/// Each call is that of the same name through a pinned reference, which says what it does.
#[repr(transparent)]
pub struct Movable<L: ?Sized>(L);

impl<T: ?Sized, const READERS: usize, C: Counting<Event>> Deref
    for RobustRwLock<T, READERS, C, InRegion>
{
    type Target = Movable<Self>;
    #[inline(always)]
    fn deref(&self) -> &Movable<Self> {
        // SAFETY: the type is transparent.
        unsafe { &*(core::ptr::from_ref(self) as *const Movable<Self>) }
    }
}

macro_rules! region_calls {
    (
        $Result:ident $Guard:ident $with:ident $with_trace:ident:
        $enter:ident $enter_traced:ident $try_enter:ident $enter_until:ident $enter_for:ident $enter_interruptible:ident
    ) => {
        #[doc = concat!("See [`RobustRwLock::", stringify!($enter), "`].")]
        ///
        /// # Errors
        /// See [`LockError`](super::LockError); `WouldBlock`, `TimedOut` and `Interrupted` do not occur.
        #[inline]
        pub fn $enter(&self) -> $Result<'_, T, READERS, C, InRegion> {
            self.0.$with(WaitMode::FOREVER)
        }

        #[doc = concat!("See [`RobustRwLock::", stringify!($enter_traced), "`].")]
        ///
        /// # Errors
        #[doc = concat!("As of [`Self::", stringify!($enter), "`].")]
        pub fn $enter_traced(
            &self,
        ) -> Traced<'_, $Guard<'_, T, READERS, C, InRegion>, T, READERS, C, InRegion> {
            self.0.$with_trace(WaitMode::FOREVER)
        }

        #[doc = concat!("See [`RobustRwLock::", stringify!($try_enter), "`].")]
        ///
        /// # Errors
        /// See [`LockError`](super::LockError); `TimedOut` and `Interrupted` do not occur.
        #[inline]
        pub fn $try_enter(&self) -> $Result<'_, T, READERS, C, InRegion> {
            self.0.$with(WaitMode::TRY)
        }

        #[doc = concat!("See [`RobustRwLock::", stringify!($enter_until), "`].")]
        ///
        /// # Errors
        /// See [`LockError`](super::LockError); `WouldBlock` and `Interrupted` do not occur.
        #[inline]
        pub fn $enter_until(&self, deadline: Deadline) -> $Result<'_, T, READERS, C, InRegion> {
            self.0.$with(WaitMode::until(Some(deadline)))
        }

        #[doc = concat!("See [`RobustRwLock::", stringify!($enter_for), "`].")]
        ///
        /// # Errors
        #[doc = concat!("As of [`Self::", stringify!($enter_until), "`].")]
        #[cfg(not(loom))]
        pub fn $enter_for(
            &self,
            timeout: core::time::Duration,
        ) -> $Result<'_, T, READERS, C, InRegion> {
            self.$enter_until(Deadline::after(timeout))
        }

        #[doc = concat!("See [`RobustRwLock::", stringify!($enter_interruptible), "`].")]
        ///
        /// # Errors
        /// See [`LockError`](super::LockError); `WouldBlock` does not occur.
        #[inline]
        pub fn $enter_interruptible(
            &self,
            deadline: Option<Deadline>,
        ) -> $Result<'_, T, READERS, C, InRegion> {
            self.0.$with(WaitMode::interruptible(deadline))
        }
    };
}

impl<T: Unpin + ?Sized, const READERS: usize, C: Counting<Event>>
    Movable<RobustRwLock<T, READERS, C, InRegion>>
{
    region_calls!(
        ReadResult RobustReadGuard read_with read_with_trace:
        read read_traced try_read read_until read_for read_interruptible
    );
    region_calls!(
        WriteResult RobustWriteGuard write_with write_with_trace:
        write write_traced try_write write_until write_for write_interruptible
    );
}
