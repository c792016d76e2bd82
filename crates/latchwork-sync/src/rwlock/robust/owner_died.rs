//! A lock whose writer died inside, with data that may be torn.
#![allow(unsafe_code)]

use super::guard::RobustWriteGuard;
use crate::edit::Edit;
use crate::mutex::owner_of_guard;
use crate::relocatable::Relocatable;
use crate::torn_safe::{self, TornSafe};
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::pin::Pin;

/// A robust reader/writer lock acquired to write from a dead writer, with data that may be torn.
///
/// As with [`OwnerDied`](crate::mutex::OwnerDied) of a mutex, [`TornSafe`] data can be
/// read as it is and repaired; any other data must be [replaced](Self::replace) whole, or vouched for. Dropping
/// this guard gives the lock up: from then on every call returns `NotRecoverable`. (If a panic drops it, the
/// lock stays inconsistent, and the next task gets `OwnerDied`.)
#[must_use = "dropping it unrepaired gives the lock up for good"]
pub struct OwnerDied<'a, T: ?Sized, const READERS: usize = 16> {
    guard: ManuallyDrop<RobustWriteGuard<'a, T, READERS>>,
}

impl<'a, T: ?Sized, const READERS: usize> OwnerDied<'a, T, READERS> {
    pub(super) fn new(guard: RobustWriteGuard<'a, T, READERS>) -> Self {
        Self {
            guard: ManuallyDrop::new(guard),
        }
    }

    fn into_guard(self) -> RobustWriteGuard<'a, T, READERS> {
        // In the child of a fork the guard is the parent's.
        owner_of_guard(self.guard.owner);
        let mut this = ManuallyDrop::new(self);
        this.guard.lock.raw.gate().mark_consistent();
        // SAFETY: `this` is never dropped, so the guard is taken once.
        unsafe { ManuallyDrop::take(&mut this.guard) }
    }

    /// Releases the lock with the data as it is: the next task gets
    /// [`LockError::OwnerDied`](super::LockError::OwnerDied), too.
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
    /// For a `T` that is [`TornSafe`], every byte written is part of a valid value of
    /// its place: safe code can read it from then on. The caller treats the value as pinned.
    pub unsafe fn as_uninit_mut(&mut self) -> &mut MaybeUninit<T> {
        // SAFETY: the guard holds the lock, is borrowed exclusively, and `MaybeUninit` allows any content.
        unsafe { &mut *self.guard.lock.data.get().cast() }
    }

    /// Replaces the torn data, which is not dropped, and becomes an ordinary writer.
    pub fn replace(self, value: T) -> RobustWriteGuard<'a, T, READERS> {
        owner_of_guard(self.guard.owner);
        let place: *mut T = self.guard.lock.data.get().cast();
        // SAFETY: the guard holds the lock; `overwrite` does not drop the bytes there, which may be no value of
        // `T`.
        unsafe { torn_safe::overwrite(place, value) };
        self.into_guard()
    }
}

impl<'a, T: ?Sized + TornSafe, const READERS: usize> OwnerDied<'a, T, READERS> {
    /// The data, pinned, for a repair before [`Self::make_consistent`]: see [`RobustWriteGuard::as_mut`].
    pub fn as_mut(&mut self) -> Pin<&mut T>
    where
        T: Relocatable,
    {
        self.guard.as_mut()
    }

    /// The editor of the data: see [`RobustWriteGuard::edit`].
    pub fn edit(&mut self) -> T::Editor<'_>
    where
        T: Relocatable + Edit,
    {
        self.guard.edit()
    }

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

impl<T: ?Sized + TornSafe + Unpin, const READERS: usize> DerefMut for OwnerDied<'_, T, READERS> {
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
                gate.release_not_recoverable();
            }
        }
    }
}
