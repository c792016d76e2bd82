//! A task's own handle on one value in a region.
//!
//! *Commit points.* The block is private to the task from allocation to the end, so a kill at any
//! instruction leaves a block that the sweep frees (or keeps; see
//! [`Region::on_death`](super::Region::on_death)). Nothing else refers to it. [`Box::leak`] shares
//! it, by one store.
#![allow(unsafe_code)]

use super::ground::{self, PushError, StorageError};
use super::{Inner, Region, Shareable};
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::ptr::NonNull;

/// A value in a region that belongs to this handle.
///
/// The handle itself is the task's; it cannot be placed in a region. To hand the value over, send
/// the address of [`Self::leak`]'s or [`Self::into_raw`]'s result.
///
/// ```
/// use latchwork::region::{Box, RegionOptions};
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let mut message = Box::new_in([0u8; 64], &region)?;
/// message[0] = 1;
/// # drop(message);
/// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
/// ```
///
/// *Cost.* Two words, and a block of the heap.
///
/// *Owner death.* If the task dies, its block is freed without dropping the value: what the value
/// owns in the region is leaked. In the child of a fork the box is the parent's: forget it there.
pub struct Box<'r, T> {
    value: NonNull<T>,
    region: &'r Inner,
    owns: PhantomData<T>,
}

// SAFETY: it owns its value; any task may free the block.
unsafe impl<T: Send> Send for Box<'_, T> {}
// SAFETY: as its value.
unsafe impl<T: Sync> Sync for Box<'_, T> {}

impl<'r, T: Shareable> Box<'r, T> {
    /// Moves a value into a block of the region.
    ///
    /// # Errors
    /// With the value, if the region has no room or the thread cannot become a task of it.
    pub fn new_in(value: T, region: &'r Region) -> Result<Self, PushError<T>> {
        let block = ground::at(region.inner.base().addr().get(), |ground| {
            ground.alloc(Layout::new::<T>())
        });
        match block {
            Ok(block) => {
                // SAFETY: a block of the right layout that nobody else knows.
                unsafe { block.cast::<T>().write(value) };
                Ok(Self {
                    value: block.cast(),
                    region: region.inner(),
                    owns: PhantomData,
                })
            }
            Err(error) => Err(PushError { value, error }),
        }
    }

    /// The box of a value that [`Self::into_raw`] gave away.
    ///
    /// # Safety
    /// The value came from `into_raw` of a box in this region, and nobody else uses it.
    #[must_use]
    pub unsafe fn from_raw(value: NonNull<T>, region: &'r Region) -> Self {
        Self {
            value,
            region: region.inner(),
            owns: PhantomData,
        }
    }
}

impl<'r, T> Box<'r, T> {
    /// Gives the value away, with its block, which stays private to the task that allocated it.
    /// [`Self::from_raw`] takes it back.
    #[must_use = "the value is leaked when nobody takes it back"]
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }

    /// Gives the value to the region: it outlives the box and the task, and is neither dropped nor
    /// moved.
    pub fn leak(self) -> Pin<&'r T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the box owns the block, and never frees it after this.
        unsafe {
            this.region.heap.keep(this.value.cast());
            Pin::new_unchecked(this.value.as_ref())
        }
    }

    /// The value, pinned: it does not move before it is dropped. Its robust locks can be used.
    #[must_use]
    pub fn as_pin(&self) -> Pin<&T> {
        // SAFETY: the value stays in its block until it is dropped; `&mut T` is given out, and the
        // value taken, only for an `Unpin` one.
        unsafe { Pin::new_unchecked(self) }
    }

    /// Takes the value out of the region.
    #[must_use]
    pub fn into_inner(self) -> T
    where
        T: Unpin,
    {
        let this = ManuallyDrop::new(self);
        // SAFETY: the box owns the value, which is not used in the block any more.
        unsafe {
            let value = this.value.read();
            this.free();
            value
        }
    }

    /// # Safety
    /// The value is not used any more.
    unsafe fn free(&self) {
        // A thread that cannot become a task of the region leaks the block.
        let _: Result<(), StorageError> = ground::at(self.region.base().addr().get(), |ground| {
            // SAFETY: by the caller's contract, and the box owns the block.
            unsafe { ground.free(self.value.cast()) };
            Ok(())
        });
    }
}

impl<T> Deref for Box<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the box owns the value, and the region outlives it.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Unpin> DerefMut for Box<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and the box is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for Box<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the box owns the value and goes.
        unsafe {
            self.value.drop_in_place();
            self.free();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Box<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
