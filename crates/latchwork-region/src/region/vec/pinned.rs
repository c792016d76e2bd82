//! Changing an array in its place.
#![allow(unsafe_code)]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "each method names the one that it calls"
)]

use super::super::container::{editor, forward};
use super::super::{PushError, Relocatable, Shareable, StorageError};
use super::Vec;
use core::ops::DerefMut;
use core::pin::Pin;

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
