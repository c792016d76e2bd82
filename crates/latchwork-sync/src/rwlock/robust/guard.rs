//! The typed interface of the robust reader/writer lock: lock calls, guards, and errors.
//!
//! Invariants
//! 1. A guard is made from a pinned lock, by the task that acquired it; a [`RobustReadGuard`] and a
//!    [`RobustWriteGuard`] give access to whole data only.
//! 2. Data that a writer left torn is accessible through an [`OwnerDied`] only, which holds the lock to write.
//!
//! A guard records which task acquired its lock. In the child of a fork, which holds nothing, dropping it
//! aborts.
#![allow(unsafe_code)]

use super::{Entered, RobustRwLock, owner_of_guard};
use crate::mutex::{Acquired, LockFailure, Patience, RawError};
use crate::task::{self, Me, TaskError};
use crate::time::Deadline;
use crate::torn_safe::TornSafe;
use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::pin::Pin;

/// Why a robust reader/writer lock was not acquired in the ordinary way.
///
/// The error may hold the lock. Converted by `?` to a [`LockFailure`] or a `Box<dyn Error>`, it does not.
#[non_exhaustive]
pub enum LockError<'a, T: ?Sized, const READERS: usize = 16> {
    /// A writer died, or panicked, inside. The lock is held *to write*, even if the call was to read: repair
    /// the data and call [`OwnerDied::make_consistent`], or drop the guard to give the lock up for ever.
    OwnerDied(OwnerDied<'a, T, READERS>),
    /// A writer died and its successor gave the lock up. No task can acquire it any more.
    NotRecoverable,
    /// Other tasks hold it, or are just entering (`try_read`, `try_write`).
    WouldBlock,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran (`read_interruptible`, `write_interruptible`).
    Interrupted,
    /// The calling task holds the lock already and would wait for itself, or might: a task that reads is
    /// refused a second read lock while others are entering or waiting, or all seats are taken.
    Deadlock,
    /// The calling task holds as many robust locks as the kernel would release at its death.
    TooManyHeld,
    /// The calling thread cannot own robust locks on this system.
    Unavailable(TaskError),
}

impl<T: ?Sized, const READERS: usize> fmt::Display for LockError<'_, T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OwnerDied(_) => "a writer died while it held the lock",
            Self::NotRecoverable => {
                "the lock is not recoverable: a writer died and the data was not repaired"
            }
            Self::WouldBlock => "the lock is held by another task",
            Self::Interrupted => "a signal handler ran",
            Self::TimedOut => "the deadline passed before the lock was free",
            Self::Deadlock => "the calling task holds the lock already",
            Self::TooManyHeld => "the calling task holds too many robust locks",
            Self::Unavailable(error) => return error.fmt(formatter),
        })
    }
}

impl<T: ?Sized, const READERS: usize> fmt::Debug for LockError<'_, T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl<T: ?Sized, const READERS: usize> From<LockError<'_, T, READERS>> for LockFailure {
    /// Releases the lock, if the error holds it; see [`OwnerDied::pass_on`].
    fn from(error: LockError<'_, T, READERS>) -> Self {
        match error {
            LockError::OwnerDied(died) => {
                died.pass_on();
                Self::OwnerDied
            }
            LockError::NotRecoverable => Self::NotRecoverable,
            LockError::WouldBlock => Self::WouldBlock,
            LockError::TimedOut => Self::TimedOut,
            LockError::Interrupted => Self::Interrupted,
            LockError::Deadlock => Self::Deadlock,
            LockError::TooManyHeld => Self::TooManyHeld,
            LockError::Unavailable(error) => Self::Unavailable(error),
        }
    }
}

impl<T: ?Sized, const READERS: usize> From<LockError<'_, T, READERS>> for Box<dyn Error> {
    /// As a [`LockFailure`].
    fn from(error: LockError<'_, T, READERS>) -> Self {
        LockFailure::from(error).into()
    }
}

impl<T: ?Sized, const READERS: usize> From<LockError<'_, T, READERS>>
    for Box<dyn Error + Send + Sync>
{
    /// As a [`LockFailure`].
    fn from(error: LockError<'_, T, READERS>) -> Self {
        LockFailure::from(error).into()
    }
}

pub(super) type ReadResult<'a, T, const READERS: usize> =
    Result<RobustReadGuard<'a, T, READERS>, LockError<'a, T, READERS>>;
pub(super) type WriteResult<'a, T, const READERS: usize> =
    Result<RobustWriteGuard<'a, T, READERS>, LockError<'a, T, READERS>>;

impl<T: ?Sized, const READERS: usize> RobustRwLock<T, READERS> {
    /// Acquires the lock to read. Sleeps while a living writer holds it or waits for it, and while all seats
    /// are taken.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock`, `TimedOut` and `Interrupted` do not occur.
    #[inline]
    pub fn read(self: Pin<&Self>) -> ReadResult<'_, T, READERS> {
        self.read_with(Patience::ENDLESS)
    }

    /// Acquires the lock to read, if that is possible at this moment.
    ///
    /// # Errors
    /// See [`LockError`]; `TimedOut` and `Interrupted` do not occur.
    #[inline]
    pub fn try_read(self: Pin<&Self>) -> ReadResult<'_, T, READERS> {
        self.read_with(Patience::NONE)
    }

    /// Acquires the lock to read, or fails once `deadline` has passed.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` and `Interrupted` do not occur.
    #[inline]
    pub fn read_until(self: Pin<&Self>, deadline: Deadline) -> ReadResult<'_, T, READERS> {
        self.read_with(Patience::until(Some(deadline)))
    }

    /// Acquires the lock to read, or fails after `timeout`.
    ///
    /// # Errors
    /// As for [`Self::read_until`].
    #[cfg(not(loom))]
    pub fn read_for(self: Pin<&Self>, timeout: core::time::Duration) -> ReadResult<'_, T, READERS> {
        self.read_until(Deadline::after(timeout))
    }

    /// Acquires the lock to read. Fails at `deadline`, if there is one, and when a signal handler runs in this
    /// thread while it sleeps; see
    /// [`Mutex::lock_interruptible`](crate::mutex::Mutex#method.lock_interruptible).
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` does not occur.
    #[inline]
    pub fn read_interruptible(
        self: Pin<&Self>,
        deadline: Option<Deadline>,
    ) -> ReadResult<'_, T, READERS> {
        self.read_with(Patience::interruptible(deadline))
    }

    /// Acquires the lock to write. Sleeps while another living task holds it.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock`, `TimedOut` and `Interrupted` do not occur.
    #[inline]
    pub fn write(self: Pin<&Self>) -> WriteResult<'_, T, READERS> {
        self.write_with(Patience::ENDLESS)
    }

    /// Acquires the lock to write, if that is possible at this moment.
    ///
    /// # Errors
    /// See [`LockError`]; `TimedOut` and `Interrupted` do not occur.
    #[inline]
    pub fn try_write(self: Pin<&Self>) -> WriteResult<'_, T, READERS> {
        self.write_with(Patience::NONE)
    }

    /// Acquires the lock to write, or fails once `deadline` has passed.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` and `Interrupted` do not occur.
    #[inline]
    pub fn write_until(self: Pin<&Self>, deadline: Deadline) -> WriteResult<'_, T, READERS> {
        self.write_with(Patience::until(Some(deadline)))
    }

    /// Acquires the lock to write, or fails after `timeout`.
    ///
    /// # Errors
    /// As for [`Self::write_until`].
    #[cfg(not(loom))]
    pub fn write_for(
        self: Pin<&Self>,
        timeout: core::time::Duration,
    ) -> WriteResult<'_, T, READERS> {
        self.write_until(Deadline::after(timeout))
    }

    /// Acquires the lock to write, as [`Self::read_interruptible`] does to read.
    ///
    /// # Errors
    /// As for [`Self::read_interruptible`].
    #[inline]
    pub fn write_interruptible(
        self: Pin<&Self>,
        deadline: Option<Deadline>,
    ) -> WriteResult<'_, T, READERS> {
        self.write_with(Patience::interruptible(deadline))
    }

    /// Makes a lock whose writer died, or that was given up, usable again with new data; torn data is not
    /// dropped. An exclusive reference proves that no task uses the lock.
    pub fn reset(self: Pin<&mut Self>, value: T)
    where
        T: Sized,
    {
        // SAFETY: nothing is moved out; the data is not pinned structurally.
        let this = unsafe { self.get_unchecked_mut() };
        if this.raw.is_torn() {
            let place: *mut T = &raw mut **this.data.get_mut();
            // SAFETY: `&mut self` gives the place to this task; `write` does not drop the bytes there, which
            // may be no value of `T`.
            unsafe { place.write(value) };
            this.raw.make_whole();
        } else {
            **this.data.get_mut() = value;
        }
    }

    #[inline(always)]
    fn read_with(self: Pin<&Self>, patience: Patience) -> ReadResult<'_, T, READERS> {
        // SAFETY: the lock is pinned, and each `Robust` aborts if it is dropped while locked.
        match unsafe { self.raw.read_free() } {
            Some((seat, owner)) => Ok(RobustReadGuard::new(self.get_ref(), seat, owner)),
            None => self.read_slowly(patience),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(self: Pin<&Self>, patience: Patience) -> ReadResult<'_, T, READERS> {
        let lock = self.get_ref();
        // SAFETY: the lock is pinned, and each `Robust` aborts if it is dropped while locked.
        match unsafe { lock.raw.read(patience) } {
            Ok(Entered::Reading(seat)) => Ok(RobustReadGuard::new(lock, seat, myself())),
            Ok(Entered::Torn) => Err(lock.owner_died()),
            Err(error) => Err(error.into()),
        }
    }

    fn write_with(self: Pin<&Self>, patience: Patience) -> WriteResult<'_, T, READERS> {
        let lock = self.get_ref();
        // SAFETY: the lock is pinned, and each `Robust` aborts if it is dropped while locked.
        match unsafe { lock.raw.write(patience) } {
            Ok(Acquired::Clean) => Ok(RobustWriteGuard::new(lock)),
            Ok(Acquired::OwnerDied) => Err(lock.owner_died()),
            Err(error) => Err(error.into()),
        }
    }

    /// The error for a lock that the calling task holds to write.
    fn owner_died(&self) -> LockError<'_, T, READERS> {
        task::after_owner_death(core::ptr::from_ref(self).cast::<u8>().addr());
        LockError::OwnerDied(OwnerDied {
            guard: ManuallyDrop::new(RobustWriteGuard::new(self)),
        })
    }
}

/// The calling task's ID, after it has acquired a lock.
fn myself() -> u32 {
    Me::current_or_none().tid()
}

impl<T: ?Sized, const READERS: usize> From<RawError> for LockError<'_, T, READERS> {
    fn from(error: RawError) -> Self {
        match error {
            RawError::WouldBlock => Self::WouldBlock,
            RawError::TimedOut => Self::TimedOut,
            RawError::Interrupted => Self::Interrupted,
            RawError::NotRecoverable => Self::NotRecoverable,
            RawError::Deadlock => Self::Deadlock,
            RawError::TooManyHeld => Self::TooManyHeld,
            RawError::Unavailable(error) => Self::Unavailable(error),
        }
    }
}

/// The right to read a robust lock's data; dropping it releases the lock.
///
/// Forgetting it keeps writers out until the task ends. In the child of a fork the guard is the parent's:
/// dropping it there aborts.
#[must_use = "the lock is released at once when the guard is not kept"]
pub struct RobustReadGuard<'a, T: ?Sized, const READERS: usize = 16> {
    lock: &'a RobustRwLock<T, READERS>,
    seat: usize,
    /// The task that acquired the lock: after a fork another one than the calling task.
    owner: u32,
    not_send: PhantomData<*const ()>,
}

/// The right to change a robust lock's data; dropping it releases the lock.
///
/// If it is dropped while its thread panics, the next task gets [`LockError::OwnerDied`]. Forgetting it leaves
/// the lock held until the task ends. In the child of a fork the guard is the parent's: dropping it there
/// aborts.
#[must_use = "the lock is released at once when the guard is not kept"]
pub struct RobustWriteGuard<'a, T: ?Sized, const READERS: usize = 16> {
    lock: &'a RobustRwLock<T, READERS>,
    /// The task that acquired the lock: after a fork another one than the calling task.
    owner: u32,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: ?Sized + Sync, const READERS: usize> Sync for RobustReadGuard<'_, T, READERS> {}
// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: ?Sized + Sync, const READERS: usize> Sync for RobustWriteGuard<'_, T, READERS> {}

impl<'a, T: ?Sized, const READERS: usize> RobustReadGuard<'a, T, READERS> {
    #[inline]
    fn new(lock: &'a RobustRwLock<T, READERS>, seat: usize, owner: u32) -> Self {
        Self {
            lock,
            seat,
            owner,
            not_send: PhantomData,
        }
    }
}

impl<'a, T: ?Sized, const READERS: usize> RobustWriteGuard<'a, T, READERS> {
    #[inline]
    fn new(lock: &'a RobustRwLock<T, READERS>) -> Self {
        Self {
            lock,
            owner: myself(),
            not_send: PhantomData,
        }
    }

    /// Becomes a reader. No writer enters in between.
    pub fn downgrade(this: Self) -> RobustReadGuard<'a, T, READERS> {
        let this = ManuallyDrop::new(this);
        // SAFETY: the guard holds the lock to write, and is not dropped.
        let seat = unsafe { this.lock.raw.downgrade(this.owner) };
        RobustReadGuard::new(this.lock, seat, this.owner)
    }
}

impl<T: ?Sized, const READERS: usize> Deref for RobustReadGuard<'_, T, READERS> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard keeps writers out.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized, const READERS: usize> Deref for RobustWriteGuard<'_, T, READERS> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard keeps all others out.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized, const READERS: usize> DerefMut for RobustWriteGuard<'_, T, READERS> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard keeps all others out, and is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized, const READERS: usize> Drop for RobustReadGuard<'_, T, READERS> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the guard owns the seat, and is not used after this.
        unsafe { self.lock.raw.unlock_read(self.seat, self.owner) };
    }
}

impl<T: ?Sized, const READERS: usize> Drop for RobustWriteGuard<'_, T, READERS> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock to write, and is not used after this.
        unsafe { self.lock.raw.unlock_write(self.owner) };
    }
}

impl<T: ?Sized + fmt::Debug, const READERS: usize> fmt::Debug for RobustReadGuard<'_, T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl<T: ?Sized + fmt::Debug, const READERS: usize> fmt::Debug for RobustWriteGuard<'_, T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

/// A robust reader/writer lock acquired to write from a dead writer, with data that may be torn.
///
/// As with [`OwnerDied`](crate::mutex::OwnerDied) of a mutex, [`TornSafe`](crate::torn_safe::TornSafe) data can be
/// read as it is and repaired; any other data must be [replaced](Self::replace) whole, or vouched for. Dropping
/// this guard gives the lock up: from then on every call returns `NotRecoverable`. (If a panic drops it, the
/// lock stays inconsistent, and the next task gets `OwnerDied`.)
#[must_use = "dropping it unrepaired gives the lock up for good"]
pub struct OwnerDied<'a, T: ?Sized, const READERS: usize = 16> {
    guard: ManuallyDrop<RobustWriteGuard<'a, T, READERS>>,
}

impl<'a, T: ?Sized, const READERS: usize> OwnerDied<'a, T, READERS> {
    fn into_guard(self) -> RobustWriteGuard<'a, T, READERS> {
        // In the child of a fork the guard is the parent's.
        owner_of_guard(self.guard.owner);
        let mut this = ManuallyDrop::new(self);
        this.guard.lock.raw.gate().mark_consistent();
        // SAFETY: `this` is never dropped, so the guard is taken once.
        unsafe { ManuallyDrop::take(&mut this.guard) }
    }

    /// Releases the lock with the data as it is: the next task gets [`LockError::OwnerDied`], too.
    pub fn pass_on(self) {
        let this = ManuallyDrop::new(self);
        owner_of_guard(this.guard.owner);
        // SAFETY: this guard owns the gate, and neither it nor the inner guard is dropped. `writing` stays 1.
        unsafe { this.guard.lock.raw.gate().unlock_inconsistent() }
    }

    /// Declares the data whole and becomes an ordinary writer, for any type.
    ///
    /// # Safety
    /// The data is a valid value of `T`, although its last writer stopped between two instructions.
    pub unsafe fn make_consistent_unchecked(self) -> RobustWriteGuard<'a, T, READERS> {
        self.into_guard()
    }
}

impl<'a, T, const READERS: usize> OwnerDied<'a, T, READERS> {
    /// The data as bytes that may or may not be a value.
    pub fn as_uninit(&self) -> &MaybeUninit<T> {
        // SAFETY: the guard holds the lock, and `MaybeUninit` allows any content.
        unsafe { &*self.guard.lock.data.get().cast() }
    }

    /// As [`Self::as_uninit`], for a repair in place.
    ///
    /// # Safety
    /// For a `T` that is [`TornSafe`](crate::torn_safe::TornSafe), every byte written is part of a valid value of
    /// its place: safe code can read it from then on.
    pub unsafe fn as_uninit_mut(&mut self) -> &mut MaybeUninit<T> {
        // SAFETY: the guard holds the lock, is borrowed exclusively, and `MaybeUninit` allows any content.
        unsafe { &mut *self.guard.lock.data.get().cast() }
    }

    /// Replaces the torn data, which is not dropped, and becomes an ordinary writer.
    pub fn replace(self, value: T) -> RobustWriteGuard<'a, T, READERS> {
        owner_of_guard(self.guard.owner);
        let place: *mut T = self.guard.lock.data.get().cast();
        // SAFETY: the guard holds the lock; `write` does not drop the bytes there, which may be no value of
        // `T`.
        unsafe { place.write(value) };
        self.into_guard()
    }
}

impl<'a, T: ?Sized + TornSafe, const READERS: usize> OwnerDied<'a, T, READERS> {
    /// Declares the data repaired and becomes an ordinary writer.
    pub fn make_consistent(self) -> RobustWriteGuard<'a, T, READERS> {
        self.into_guard()
    }
}

impl<T: ?Sized + TornSafe, const READERS: usize> Deref for OwnerDied<'_, T, READERS> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized + TornSafe, const READERS: usize> DerefMut for OwnerDied<'_, T, READERS> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized, const READERS: usize> fmt::Debug for OwnerDied<'_, T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OwnerDied")
    }
}

impl<T: ?Sized, const READERS: usize> Drop for OwnerDied<'_, T, READERS> {
    fn drop(&mut self) {
        owner_of_guard(self.guard.owner);
        let gate = self.guard.lock.raw.gate();
        // SAFETY: this guard owns the gate, and the inner guard is never dropped itself. `writing` stays 1.
        unsafe {
            if std::thread::panicking() {
                gate.unlock_inconsistent();
            } else {
                gate.release_as_lost();
            }
        }
    }
}
