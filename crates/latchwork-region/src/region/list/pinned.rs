//! Changing a list in its place.
#![allow(unsafe_code)]

use super::super::container::{editor, forward};
use super::super::{PushError, Relocatable, Shareable};
use super::List;
use core::pin::Pin;

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
