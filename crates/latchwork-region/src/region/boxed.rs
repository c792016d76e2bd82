//! A task's owning handle on one value in a region.
//!
//! *Commit points.* The block stays private to the task until it is freed or leaked, and nothing else refers to it.
//! So a kill at any instruction leaves a block that the sweep frees (or keeps; see
//! [`Region::on_death`](super::Region::on_death)). [`Box::leak`] shares it, by one store.
#![allow(unsafe_code)]

use super::container;
use super::{Inner, PushError, Region, Relocatable, Shareable, StorageError};
use crate::sys::memory;
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::ptr::NonNull;

/// A value in a region, owned by this handle.
///
/// The handle belongs to the task; it cannot be placed in a region. To pass the value to another task, send the
/// address of [`Self::leak`]'s or [`Self::into_raw`]'s result.
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
/// *Owner death.* If the task that allocated the block (or received it from a queue) dies, the block is freed without
/// dropping the value: what the value owns in the region is leaked. If that task leaves in good order (its thread ends,
/// it [detaches](Region::detach), or it calls `exit`, as the end of `main` does), the block stays until its box is
/// dropped: a box that was forgotten, or that was passed to another thread whose process is killed later, is leaked. In
/// the child of a fork the box still belongs to the parent: the child must forget it.
pub struct Box<'r, T: ?Sized> {
    value: NonNull<T>,
    region: &'r Inner,
    owns: PhantomData<T>,
}

// SAFETY: the box owns its value, and any task may free the block.
unsafe impl<T: Send + ?Sized> Send for Box<'_, T> {}
// SAFETY: a shared box gives only shared references to the value.
unsafe impl<T: Sync + ?Sized> Sync for Box<'_, T> {}

impl<'r, T: Shareable> Box<'r, T> {
    /// Moves a value into a block of the region.
    ///
    /// # Errors
    /// If the region has no room or the thread cannot become a task of it; the error contains the value.
    pub fn new_in(value: T, region: &'r Region) -> Result<Self, PushError<T>> {
        let block = container::with_heap(region.inner().id, |heap| {
            heap.accept::<T>()?;
            heap.alloc(Layout::new::<T>())
        });
        match block.map(NonNull::cast::<T>) {
            Ok(block) => {
                // SAFETY: a block of the right layout that no other task knows.
                unsafe { block.write(value) };
                Ok(Self::owning(block, region.inner()))
            }
            Err(error) => Err(PushError { value, error }),
        }
    }

    /// Makes a box again of a value that [`Self::into_raw`] returned.
    ///
    /// # Safety
    /// The value came from `into_raw` of a box in this region, and nothing else uses it.
    #[must_use]
    pub unsafe fn from_raw(value: NonNull<T>, region: &'r Region) -> Self {
        Self::owning(value, region.inner())
    }
}

impl<'r> Box<'r, [u8]> {
    /// A block of `bytes` zero bytes.
    ///
    /// # Errors
    /// If the region has no room or the thread cannot become a task of it.
    pub fn zeroed_in(bytes: usize, region: &'r Region) -> Result<Self, StorageError> {
        let mut block = Self::unfilled_in(bytes, region)?;
        block.fill(0);
        Ok(block)
    }

    /// A block of `bytes` bytes with arbitrary initial content: zeros, or bytes that a task of the region has freed.
    /// For callers that overwrite them.
    ///
    /// # Errors
    /// As for [`Self::zeroed_in`].
    pub fn unfilled_in(bytes: usize, region: &'r Region) -> Result<Self, StorageError> {
        let layout = Layout::array::<u8>(bytes).map_err(|_| StorageError::TooLong)?;
        let block = container::with_heap(region.inner().id, |heap| heap.alloc(layout))?;
        // SAFETY: a block of that many bytes that no other task knows; and they are initialised.
        unsafe {
            memory::initialise(block, bytes);
            Ok(Self::of_block(block, bytes, region.inner()))
        }
    }

    /// A copy of `bytes` in a block of the region.
    ///
    /// # Errors
    /// As for [`Self::zeroed_in`].
    pub fn copied_in(bytes: &[u8], region: &'r Region) -> Result<Self, StorageError> {
        let mut block = Self::unfilled_in(bytes.len(), region)?;
        block.copy_from_slice(bytes);
        Ok(block)
    }

    /// # Safety
    /// The block is in the region, has that many initialised bytes, and belongs to the caller.
    #[doc(hidden)]
    pub unsafe fn of_block(block: NonNull<u8>, bytes: usize, region: &'r Inner) -> Self {
        Self::owning(NonNull::slice_from_raw_parts(block, bytes), region)
    }

    /// The address and length of the bytes.
    pub(super) fn as_raw(&self) -> NonNull<[u8]> {
        self.value
    }

    /// Whether the box lies in this region.
    #[doc(hidden)]
    pub fn is_in(&self, region: &Inner) -> bool {
        core::ptr::eq(self.region, region)
    }
}

impl<'r, T> Box<'r, T> {
    /// Releases the value with its block, which stays private to the task that allocated it. [`Self::from_raw`] takes
    /// it back.
    #[must_use = "the value is leaked unless `from_raw` takes it back"]
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }

    /// Moves the value out of the region.
    #[must_use]
    pub fn into_inner(self) -> T
    where
        T: Relocatable,
    {
        let this = ManuallyDrop::new(self);
        // SAFETY: the box owns the value, which is not used in the block any more.
        unsafe {
            container::settle(this.value, 1);
            let value = this.value.read();
            this.free();
            value
        }
    }
}

impl<'r, T: ?Sized> Box<'r, T> {
    fn owning(value: NonNull<T>, region: &'r Inner) -> Self {
        Self {
            value,
            region,
            owns: PhantomData,
        }
    }

    /// Gives the value to the region: it outlives the box and the task, and is neither dropped nor moved.
    pub fn leak(self) -> Pin<&'r T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the box owns the block, and `ManuallyDrop` keeps it from freeing the block.
        unsafe {
            this.region.heap.keep(this.value.cast());
            Pin::new_unchecked(this.value.as_ref())
        }
    }

    /// The value, pinned: it does not move before it is dropped, so its robust locks can be used.
    #[must_use]
    pub fn as_pin(&self) -> Pin<&T> {
        // SAFETY: the value stays in its block until it is dropped; `&mut T` is given out, and the value moved out,
        // only if it is `Relocatable`.
        unsafe { Pin::new_unchecked(self) }
    }

    /// # Safety
    /// The value is not used any more.
    unsafe fn free(&self) {
        // A thread that cannot become a task of the region leaks the block.
        let _: Result<(), StorageError> = container::with_heap(self.region.id, |heap| {
            // SAFETY: the caller guarantees that the value is not used any more, and the box owns the block.
            unsafe { heap.free(self.value.cast()) };
            Ok(())
        });
    }
}

impl<T: ?Sized> Deref for Box<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the box owns the value, and the region outlives it.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Relocatable + ?Sized> DerefMut for Box<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the value, the region outlives it, and the box is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized> Drop for Box<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the box owns the value, and is not used after this.
        unsafe {
            self.value.drop_in_place();
            self.free();
        }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Box<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
