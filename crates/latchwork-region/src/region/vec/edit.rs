//! Inserting and removing elements inside an array.
#![allow(unsafe_code)]

use super::super::{PushError, Relocatable, Shareable, StorageError};
use super::Vec;

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
        // SAFETY: a value, which is no element any more once the state has changed.
        let value = unsafe { self.first().add(index).read() };
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
        // SAFETY: a value. It belongs to the caller once the copy without it has replaced the buffer.
        let value = core::mem::ManuallyDrop::new(unsafe { first.add(index).read() });
        // SAFETY: the other elements move; the old buffer is freed without dropping them.
        self.rebuild(self.room(), len - 1, |new| unsafe {
            new.copy_from_nonoverlapping(first, index);
            new.add(index)
                .copy_from_nonoverlapping(first.add(index + 1), len - 1 - index);
        })?;
        Ok(core::mem::ManuallyDrop::into_inner(value))
    }
}
