//! Inserting and removing elements inside an array; how it grows and shrinks, by a complete new buffer that replaces the
//! old one in one step; and its editor.
#![allow(unsafe_code)]

use super::super::container::{self, editor, forward};
use super::super::{PushError, Relocatable, Shareable, StorageError};
use super::{Head, MAX, Vec};
use crate::atomic::AtomicU64;
use core::mem::ManuallyDrop;
use core::ops::DerefMut;
use core::pin::Pin;
use core::ptr::NonNull;

impl<T: Shareable + Relocatable> Vec<T> {
    /// Removes and returns an element, and moves the last one to its place, in O(1).
    ///
    /// # Panics
    /// If there is no element `index`.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let _guard = self.buffer.guard();
        self.finish_pending();
        let len = self.count();
        assert!(index < len, "index {index} out of range for length {len}");
        // SAFETY: a value, which is no element any more once the state has changed; and the one that moves there.
        let value = unsafe {
            container::settle(self.first().add(index), 1);
            container::settle(self.first().add(len - 1), 1);
            self.first().add(index).read()
        };
        if index + 1 == len {
            self.set_state(index as u64);
        } else {
            self.set_state((index as u64 + 1) << 32 | len as u64);
            self.fill_hole();
        }
        value
    }

    /// Inserts an element before `index`. Copies the array, O(n): moving its tail in place could leave elements twice
    /// if the task is killed.
    ///
    /// # Errors
    /// As for [`Self::push`].
    ///
    /// # Panics
    /// If `index` is greater than the length.
    pub fn insert(&mut self, index: usize, value: T) -> Result<(), PushError<T>> {
        let _guard = self.buffer.guard();
        self.finish_pending();
        let (first, len) = (self.first(), self.count());
        assert!(index <= len, "index {index} out of range for length {len}");
        if index == len {
            return self.push(value);
        }
        let mut value = Some(value);
        let capacity = (len + 1).max(self.room());
        // SAFETY: the elements.
        unsafe { container::settle(first, len) };
        // SAFETY: the elements move around the new one; the old buffer is freed without dropping them.
        let result = self.rebuild(capacity, len + 1, |new| unsafe {
            new.copy_from_nonoverlapping(first, index);
            if let Some(value) = value.take() {
                new.add(index).write(value);
            }
            new.add(index + 1)
                .copy_from_nonoverlapping(first.add(index), len - index);
        });
        match (result, value) {
            (Err(error), Some(value)) => Err(PushError { value, error }),
            _ => Ok(()),
        }
    }

    /// Removes and returns an element, and closes the gap. Copies the array, O(n), as [`Self::insert`] does;
    /// [`Self::swap_remove`] does not.
    ///
    /// # Errors
    /// If the region has no room for the copy. Then nothing has changed.
    ///
    /// # Panics
    /// If there is no element `index`.
    pub fn remove(&mut self, index: usize) -> Result<T, StorageError> {
        let _guard = self.buffer.guard();
        self.finish_pending();
        let (first, len) = (self.first(), self.count());
        assert!(index < len, "index {index} out of range for length {len}");
        // SAFETY: the elements.
        unsafe { container::settle(first, len) };
        // SAFETY: a value. It belongs to the caller once the copy without it has replaced the buffer.
        let value = ManuallyDrop::new(unsafe { first.add(index).read() });
        // SAFETY: the other elements move; the old buffer is freed without dropping them.
        self.rebuild(self.room(), len - 1, |new| unsafe {
            new.copy_from_nonoverlapping(first, index);
            new.add(index)
                .copy_from_nonoverlapping(first.add(index + 1), len - 1 - index);
        })?;
        Ok(ManuallyDrop::into_inner(value))
    }

    /// Builds a buffer with room for `capacity` elements, of which `fill` writes the first `len`, and replaces the
    /// old buffer by it. `fill` has moved the old buffer's elements out.
    pub(super) fn rebuild(
        &mut self,
        capacity: usize,
        len: usize,
        fill: impl FnOnce(NonNull<T>),
    ) -> Result<(), StorageError> {
        let layout = Self::layout(capacity).ok_or(StorageError::TooLong)?;
        container::with_heap(self.buffer.region, |heap| {
            heap.accept::<T>()?;
            let block = heap.alloc(layout)?;
            // The capacity includes the bytes that the heap's size class gives beyond the request.
            let usable = heap.region.heap.usable_size(block) - Self::OFFSET;
            let capacity = usable.checked_div(size_of::<T>()).unwrap_or(MAX).min(MAX);
            // SAFETY: a block of at least the layout's size that no other task knows.
            unsafe {
                block.cast().write(Head {
                    capacity,
                    state: AtomicU64::new(len as u64),
                });
                fill(block.add(Self::OFFSET).cast());
            }
            let (word, old) = (&self.buffer.word, self.buffer.block());
            // SAFETY: `&mut self`: the caller has exclusive access to this container.
            unsafe { heap.link(word, container::address(block), Some(block), old) };
            Ok(())
        })
    }

    /// Moves the elements to a buffer with room for `capacity`.
    fn move_to(&mut self, capacity: usize) -> Result<(), StorageError> {
        let (first, len) = (self.first(), self.count());
        // SAFETY: the elements.
        unsafe { container::settle(first, len) };
        // SAFETY: the elements move; the old buffer is freed without dropping them.
        let fill = |new: NonNull<T>| unsafe { new.copy_from_nonoverlapping(first, len) };
        self.rebuild(capacity, len, fill)
    }

    /// Makes room for at least `additional` more elements.
    ///
    /// # Errors
    /// If the region has no room, or the thread cannot become a task of it. Then nothing has changed.
    pub fn reserve(&mut self, additional: usize) -> Result<(), StorageError> {
        let _guard = self.buffer.guard();
        self.finish_pending();
        let len = self.count();
        let needed = len.checked_add(additional).ok_or(StorageError::TooLong)?;
        if needed <= self.room() {
            return Ok(());
        }
        self.grow(needed)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn grow(&mut self, needed: usize) -> Result<(), StorageError> {
        let double = self.room().saturating_mul(2).min(MAX);
        self.move_to(needed.max(double))
    }

    /// Returns the memory that the elements do not need to the heap, in one step: all of it if there are no elements.
    /// ([`Region::trim`](super::super::Region::trim) returns the heap's free memory to the system.)
    ///
    /// # Errors
    /// If the region has no room for the smaller buffer beside the old one. Then nothing has changed.
    pub fn shrink_to_fit(&mut self) -> Result<(), StorageError> {
        self.shrink_to(0)
    }

    /// Like [`Self::shrink_to_fit`], but keeps room for `capacity` elements.
    ///
    /// # Errors
    /// As for [`Self::shrink_to_fit`].
    pub fn shrink_to(&mut self, capacity: usize) -> Result<(), StorageError> {
        let _guard = self.buffer.guard();
        self.finish_pending();
        let wanted = self.count().max(capacity);
        if wanted >= self.room() {
            return Ok(());
        }
        if wanted == 0 {
            // SAFETY: the buffer contains no element.
            return unsafe { self.buffer.free_block() };
        }
        let (Some(smaller), Some(buffer)) = (Self::layout(wanted), self.buffer.block()) else {
            return Ok(());
        };
        let is_smaller = container::with_heap(self.buffer.region, |heap| {
            Ok(heap.region.heap.size_for(smaller) < heap.region.heap.usable_size(buffer))
        })?;
        if is_smaller {
            self.move_to(wanted)?;
        }
        Ok(())
    }
}

/// Changes a [`Vec`] in its place: the result of [`Vec::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change a `Vec`, and derefs to the slice, mutable if the elements are `Unpin`.
pub struct VecMut<'a, T>(&'a mut Vec<T>);

editor!(VecMut, Vec<T> => [T]);

impl<T> VecMut<'_, T> {
    /// [`Vec::capacity`].
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    forward! { Vec:
        fn repair(&mut self);
        fn truncate(&mut self, len: usize);
        fn clear(&mut self);
    }
}

impl<T: Shareable + Relocatable> VecMut<'_, T> {
    forward! { Vec:
        fn push(&mut self, value: T) -> Result<(), PushError<T>>;
        fn pop(&mut self) -> Option<T>;
        fn insert(&mut self, index: usize, value: T) -> Result<(), PushError<T>>;
        fn remove(&mut self, index: usize) -> Result<T, StorageError>;
        fn swap_remove(&mut self, index: usize) -> T;
        fn reserve(&mut self, additional: usize) -> Result<(), StorageError>;
        fn shrink_to_fit(&mut self) -> Result<(), StorageError>;
        fn shrink_to(&mut self, capacity: usize) -> Result<(), StorageError>;

        /// For elements that are `Unpin`. For others: [`Self::iter_pin_mut`].
        #[must_use]
        fn as_mut_slice(&mut self) -> &mut [T] where T: Unpin;
    }

    /// An element, pinned: how to change a container that is an element.
    #[inline]
    #[must_use]
    pub fn get_pin_mut(&mut self, index: usize) -> Option<Pin<&mut T>> {
        let element = self.0.as_mut_slice().get_mut(index)?;
        // SAFETY: a `&mut T` is lent only if `T` is `Unpin`; the array may move an element, which is `Relocatable`.
        Some(unsafe { Pin::new_unchecked(element) })
    }

    /// The elements in order, pinned: how to change containers that are elements.
    #[inline]
    pub fn iter_pin_mut(
        &mut self,
    ) -> impl DoubleEndedIterator<Item = Pin<&mut T>> + ExactSizeIterator {
        // SAFETY: as in `get_pin_mut`.
        let pin = |element| unsafe { Pin::new_unchecked(element) };
        self.0.as_mut_slice().iter_mut().map(pin)
    }
}

impl<T: Shareable + Relocatable + Copy> VecMut<'_, T> {
    forward! { Vec:
        fn extend_from_slice(&mut self, values: &[T]) -> Result<(), StorageError>;
    }
}

impl<T: Shareable + Relocatable + Unpin> DerefMut for VecMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.0
    }
}
