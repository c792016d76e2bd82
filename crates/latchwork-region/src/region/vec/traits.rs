//! The traits that make an array usable as a slice.
#![allow(unsafe_code)]

use super::super::{Relocatable, Shareable};
use super::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::slice;

impl<T> Deref for Vec<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Shareable + Relocatable> DerefMut for Vec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

impl<'a, T> IntoIterator for &'a Vec<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Shareable + Relocatable> IntoIterator for &'a mut Vec<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: PartialEq> PartialEq for Vec<T> {
    fn eq(&self, other: &Self) -> bool {
        // A guard, and no record of a borrow: the container may be on its way into the region.
        let _guards = (self.buffer.guard(), other.buffer.guard());
        // SAFETY: the elements are values as in `as_slice`, and both regions are held.
        unsafe { self.elements() == other.elements() }
    }
}
impl<T: Eq> Eq for Vec<T> {}

impl<T: fmt::Debug> fmt::Debug for Vec<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
