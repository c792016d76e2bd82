//! Changing an array in its place.
#![allow(unsafe_code)]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "each method names the one that it calls"
)]

use super::super::{Edit, PushError, Relocatable, Shareable, StorageError};
use super::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;

/// Changes a [`Vec`] in its place: the result of [`Vec::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change a `Vec`, and derefs to the slice, mutable if the elements are `Unpin`.
pub struct VecMut<'a, T>(&'a mut Vec<T>);

impl<T> Vec<T> {
    /// Lends the array to an editor.
    #[inline]
    pub fn edit(self: Pin<&mut Self>) -> VecMut<'_, T> {
        // SAFETY: the editor does not lend the `&mut Vec`, nor moves the array.
        VecMut(unsafe { self.get_unchecked_mut() })
    }
}

impl<T> Edit for Vec<T> {
    type Editor<'a>
        = VecMut<'a, T>
    where
        Self: 'a;

    #[inline]
    fn edit(self: Pin<&mut Self>) -> VecMut<'_, T> {
        self.edit()
    }
}

impl<T> VecMut<'_, T> {
    /// [`Vec::capacity`].
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// [`Vec::repair`].
    #[inline]
    pub fn repair(&mut self) {
        self.0.repair();
    }

    /// [`Vec::truncate`].
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// [`Vec::clear`].
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T: Shareable + Relocatable> VecMut<'_, T> {
    /// [`Vec::push`].
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), PushError<T>> {
        self.0.push(value)
    }

    /// [`Vec::pop`].
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// [`Vec::insert`].
    #[inline]
    pub fn insert(&mut self, index: usize, value: T) -> Result<(), PushError<T>> {
        self.0.insert(index, value)
    }

    /// [`Vec::remove`].
    #[inline]
    pub fn remove(&mut self, index: usize) -> Result<T, StorageError> {
        self.0.remove(index)
    }

    /// [`Vec::swap_remove`].
    #[inline]
    pub fn swap_remove(&mut self, index: usize) -> T {
        self.0.swap_remove(index)
    }

    /// [`Vec::reserve`].
    #[inline]
    pub fn reserve(&mut self, additional: usize) -> Result<(), StorageError> {
        self.0.reserve(additional)
    }

    /// [`Vec::shrink_to_fit`].
    #[inline]
    pub fn shrink_to_fit(&mut self) -> Result<(), StorageError> {
        self.0.shrink_to_fit()
    }

    /// [`Vec::shrink_to`].
    #[inline]
    pub fn shrink_to(&mut self, capacity: usize) -> Result<(), StorageError> {
        self.0.shrink_to(capacity)
    }

    /// [`Vec::as_mut_slice`], for elements that are `Unpin`. For others: [`Self::iter_pin_mut`].
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T]
    where
        T: Unpin,
    {
        self.0.as_mut_slice()
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
    /// [`Vec::extend_from_slice`].
    #[inline]
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<(), StorageError> {
        self.0.extend_from_slice(values)
    }
}

impl<T> Deref for VecMut<'_, T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        self.0
    }
}

impl<T: Shareable + Relocatable + Unpin> DerefMut for VecMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for VecMut<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
