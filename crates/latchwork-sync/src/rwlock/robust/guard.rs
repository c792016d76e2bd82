//! The guards of the robust reader/writer lock.
//!
//! Invariants
//! 1. A guard is made by the task that acquired the lock, which is pinned, or may move and so may its data; a [`RobustReadGuard`] and a
//!    [`RobustWriteGuard`] give access to whole data only.
//! 2. Data that a writer left torn is accessible through an [`OwnerDied`](super::OwnerDied) only, which holds the lock to write.
#![allow(unsafe_code)]

use super::lock::RobustRwLock;
use super::parts::SeatLock;
use crate::edit::Edit;
use crate::mutex::throughput::{Counting, Uncounted};
use crate::mutex::{Robust, edits_in_place};
use crate::relocatable::Relocatable;
use crate::rwlock::trace::Event;
#[cfg(not(loom))]
use crate::rwlock::trace::Released;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::DerefMut;
use core::pin::Pin;

/// The right to read a robust lock's data; dropping it releases the lock.
///
/// Forgetting it keeps writers out until the process ends. In the child of a fork the guard is the parent's:
/// dropping it there aborts.
#[must_use = "the lock is released at once when the guard is not kept"]
pub struct RobustReadGuard<
    'a,
    T: ?Sized,
    const READERS: usize = 16,
    C: Counting<Event> = Uncounted,
    K: SeatLock = Robust,
> {
    pub(super) lock: &'a RobustRwLock<T, READERS, C, K>,
    seat: usize,
    /// The task that acquired the lock: after a fork another one than the calling task.
    pub(super) owner: K::Owner,
    not_send: PhantomData<*const ()>,
}

/// The right to change a robust lock's data; dropping it releases the lock.
///
/// As with [`RobustGuard`](crate::mutex::RobustGuard), data that is not `Unpin` is changed through
/// [`edit`](Self::edit) or [`as_mut`](Self::as_mut).
///
/// If it is dropped while its thread panics, the next task gets [`LockError::OwnerDied`](super::LockError::OwnerDied).
/// Forgetting it leaves the lock held until the process ends. In the child of a fork the guard is the parent's:
/// dropping it there aborts.
#[must_use = "the lock is released at once when the guard is not kept"]
pub struct RobustWriteGuard<
    'a,
    T: ?Sized,
    const READERS: usize = 16,
    C: Counting<Event> = Uncounted,
    K: SeatLock = Robust,
> {
    pub(super) lock: &'a RobustRwLock<T, READERS, C, K>,
    /// The task that acquired the lock: after a fork another one than the calling task.
    pub(super) owner: K::Owner,
    not_send: PhantomData<*const ()>,
}

lend!({const READERS: usize, C: Counting<Event>, K: SeatLock} RobustReadGuard<'_, T, READERS, C, K>);
lend!({const READERS: usize, C: Counting<Event>, K: SeatLock} RobustWriteGuard<'_, T, READERS, C, K>);

edits_in_place!(
    {const READERS: usize, C: Counting<Event>, K: SeatLock} RobustWriteGuard<'_, T, READERS, C, K>, lock
);

impl<'a, T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock>
    RobustReadGuard<'a, T, READERS, C, K>
{
    #[inline]
    pub(super) fn new(
        lock: &'a RobustRwLock<T, READERS, C, K>,
        seat: usize,
        owner: K::Owner,
    ) -> Self {
        Self {
            lock,
            seat,
            owner,
            not_send: PhantomData,
        }
    }

    /// Releases the lock, and returns what that did for the tasks that wait. In the child of a fork it aborts, as a drop
    /// does.
    ///
    /// ```
    /// use core::pin::pin;
    /// use latchwork::rwlock::{Released, RobustReadGuard, RobustRwLock};
    ///
    /// let table = pin!(RobustRwLock::<_>::new(1));
    /// let held = table.as_ref().read().unwrap();
    /// assert_eq!(RobustReadGuard::unlock_traced(held), Released::NoSleeper);
    /// ```
    #[cfg(not(loom))]
    pub fn unlock_traced(this: Self) -> Released {
        let this = ManuallyDrop::new(this);
        // SAFETY: the guard owns the seat, and is not used after this.
        unsafe { this.lock.raw.unlock_read_traced(this.seat, this.owner) }
    }
}

impl<'a, T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock>
    RobustWriteGuard<'a, T, READERS, C, K>
{
    #[inline]
    pub(super) fn new(lock: &'a RobustRwLock<T, READERS, C, K>, owner: K::Owner) -> Self {
        Self {
            lock,
            owner,
            not_send: PhantomData,
        }
    }

    /// Releases the lock, and returns what that did for the tasks that wait. While the thread panics, the data counts as
    /// torn, as after a drop. In the child of a fork it aborts, as a drop does.
    ///
    /// ```
    /// use core::pin::pin;
    /// use latchwork::rwlock::{Released, RobustRwLock, RobustWriteGuard};
    ///
    /// let table = pin!(RobustRwLock::<_>::new(1));
    /// let held = table.as_ref().write().unwrap();
    /// assert_eq!(RobustWriteGuard::unlock_traced(held), Released::NoSleeper);
    /// ```
    #[cfg(not(loom))]
    pub fn unlock_traced(this: Self) -> Released {
        let this = ManuallyDrop::new(this);
        // SAFETY: the guard holds the lock to write, and is not used after this.
        unsafe { this.lock.raw.unlock_write_traced(this.owner) }
    }

    /// Becomes a reader. No writer enters in between.
    pub fn downgrade(this: Self) -> RobustReadGuard<'a, T, READERS, C, K> {
        let this = ManuallyDrop::new(this);
        // SAFETY: the guard holds the lock to write, and is not dropped.
        let seat = unsafe { this.lock.raw.downgrade(this.owner) };
        RobustReadGuard::new(this.lock, seat, this.owner)
    }
}

impl<T: ?Sized + Unpin, const READERS: usize, C: Counting<Event>, K: SeatLock> DerefMut
    for RobustWriteGuard<'_, T, READERS, C, K>
{
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard keeps all others out, and is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock> Drop
    for RobustReadGuard<'_, T, READERS, C, K>
{
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the guard owns the seat, and is not used after this.
        unsafe { self.lock.raw.unlock_read(self.seat, self.owner) };
    }
}

impl<T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock> Drop
    for RobustWriteGuard<'_, T, READERS, C, K>
{
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock to write, and is not used after this.
        unsafe { self.lock.raw.unlock_write(self.owner) };
    }
}
