//! How an array grows and shrinks: by a complete new buffer, which replaces the old one in one step.
#![allow(unsafe_code)]

use super::super::{Relocatable, Shareable, StorageError, container};
use super::{Head, MAX, Vec};
use crate::atomic::AtomicU64;
use core::ptr::NonNull;

impl<T: Shareable + Relocatable> Vec<T> {
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
            let block = heap.alloc(layout)?;
            // The capacity includes the bytes that the heap's size class gives beyond the request.
            let usable = heap.usable_size(block) - Self::OFFSET;
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
        let (first, len) = (self.first(), self.count());
        let double = self.room().saturating_mul(2).min(MAX);
        // SAFETY: the elements move; the old buffer is freed without dropping them.
        let fill = |new: NonNull<T>| unsafe { new.copy_from_nonoverlapping(first, len) };
        self.rebuild(needed.max(double), len, fill)
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
        let (first, len, room) = (self.first(), self.count(), self.room());
        let wanted = len.max(capacity);
        if wanted >= room {
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
            Ok(heap.size_for(smaller) < heap.usable_size(buffer))
        })?;
        if is_smaller {
            // SAFETY: the elements move; the old buffer is freed without dropping them.
            let fill = |new: NonNull<T>| unsafe { new.copy_from_nonoverlapping(first, len) };
            self.rebuild(wanted, len, fill)?;
        }
        Ok(())
    }
}
