//! Iteration over a list's elements, and its editor.
#![allow(unsafe_code)]

use super::super::container::{self, editor, forward, read};
use super::super::{PushError, Relocatable, Shareable};
use super::{Link, List};
use core::fmt;
use core::marker::PhantomData;
use core::pin::Pin;

impl<T> List<T> {
    /// The elements in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        self.root.keep_mapped();
        Iter {
            front: self.first(),
            back: self.last(),
            left: self.count(),
            elements: PhantomData,
        }
    }

    /// The elements in order, pinned: none moves before it is dropped, since a value that must not move never leaves
    /// the list. Their robust locks can be used.
    pub fn iter_pin(&self) -> impl DoubleEndedIterator<Item = Pin<&T>> {
        // SAFETY: a node stays at its address until it is dismantled, and the methods that give a `&mut T`, or an
        // element, require `T: Relocatable`.
        let pin = |element| unsafe { Pin::new_unchecked(element) };
        self.iter().map(pin)
    }
}

impl<T: Shareable> List<T> {
    /// The elements in order, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T>
    where
        T: Relocatable,
    {
        self.each_mut()
    }

    /// The caller does not lend a `&mut T` that must not move.
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.root.keep_mapped();
        self.finish_pending();
        let mut next = self.first();
        core::iter::from_fn(move || {
            let node = next?;
            // SAFETY: a node of this list, which has its value and is returned once, and the list is borrowed
            // exclusively.
            unsafe {
                next = container::pointer(read(&(*node.as_ptr()).next));
                Some((*node.as_ptr()).value.assume_init_mut())
            }
        })
    }
}

/// The elements of a [`List`].
pub struct Iter<'a, T> {
    front: Link<T>,
    back: Link<T>,
    left: usize,
    elements: PhantomData<&'a T>,
}

// SAFETY: the iterator gives only shared references to elements.
unsafe impl<T: Sync> Send for Iter<'_, T> {}
// SAFETY: the iterator gives only shared references to elements.
unsafe impl<T: Sync> Sync for Iter<'_, T> {}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: a node of the list, which has its value and stays while the list is borrowed.
        let node = unsafe { self.front?.as_ref() };
        self.front = container::pointer(read(&node.next));
        // SAFETY: the node has its value.
        Some(unsafe { node.value.assume_init_ref() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

impl<T> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: a node of the list, which has its value and stays while the list is borrowed.
        let node = unsafe { self.back?.as_ref() };
        self.back = container::pointer(read(&node.prev));
        // SAFETY: the node has its value.
        Some(unsafe { node.value.assume_init_ref() })
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self).finish()
    }
}

/// Changes a [`List`] in its place: the result of [`List::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change a `List`, and derefs to the list.
pub struct ListMut<'a, T>(&'a mut List<T>);

editor!(ListMut, List<T> => List<T>);

/// Pins an element.
#[inline]
fn pin<T>(element: &mut T) -> Pin<&mut T> {
    // SAFETY: an element stays in its node. A `&mut T` is lent only if `T` is `Unpin`, and an element is taken out only
    // if it is `Relocatable`.
    unsafe { Pin::new_unchecked(element) }
}

impl<T> ListMut<'_, T> {
    forward! { List:
        fn repair(&mut self);
        fn clear(&mut self);
    }
}

impl<T: Shareable> ListMut<'_, T> {
    forward! { List:
        fn push_front(&mut self, value: T) -> Result<(), PushError<T>>;
        fn push_back(&mut self, value: T) -> Result<(), PushError<T>>;
        fn pop_front(&mut self) -> Option<T> where T: Relocatable;
        fn pop_back(&mut self) -> Option<T> where T: Relocatable;
        fn retain(&mut self, keep: impl FnMut(&T) -> bool);
    }

    /// [`List::front_mut`], for elements that are `Unpin`.
    #[inline]
    #[must_use]
    pub fn front_mut(&mut self) -> Option<&mut T>
    where
        T: Unpin,
    {
        self.0.each_mut().next()
    }

    /// [`List::back_mut`], for elements that are `Unpin`.
    #[inline]
    #[must_use]
    pub fn back_mut(&mut self) -> Option<&mut T>
    where
        T: Unpin,
    {
        self.0.last_mut()
    }

    /// [`List::iter_mut`], for elements that are `Unpin`.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T>
    where
        T: Unpin,
    {
        self.0.each_mut()
    }

    /// The first element, pinned.
    #[inline]
    #[must_use]
    pub fn front_pin_mut(&mut self) -> Option<Pin<&mut T>> {
        self.iter_pin_mut().next()
    }

    /// The last element, pinned.
    #[inline]
    #[must_use]
    pub fn back_pin_mut(&mut self) -> Option<Pin<&mut T>> {
        self.0.last_mut().map(pin)
    }

    /// The elements in order, pinned: how to change containers that are elements.
    #[inline]
    pub fn iter_pin_mut(&mut self) -> impl Iterator<Item = Pin<&mut T>> {
        self.0.each_mut().map(pin)
    }
}
