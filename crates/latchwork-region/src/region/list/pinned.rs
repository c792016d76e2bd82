//! Changing a list in its place.
#![allow(unsafe_code)]
#![allow(
    clippy::missing_errors_doc,
    reason = "each method names the one that it calls"
)]

use super::super::{Edit, PushError, Relocatable, Shareable};
use super::List;
use core::fmt;
use core::ops::Deref;
use core::pin::Pin;

/// Changes a [`List`] in its place: the result of [`List::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change a `List`, and derefs to the list.
pub struct ListMut<'a, T>(&'a mut List<T>);

impl<T> List<T> {
    /// Lends the list to an editor.
    #[inline]
    pub fn edit(self: Pin<&mut Self>) -> ListMut<'_, T> {
        // SAFETY: the editor does not lend the `&mut List`, nor moves the list.
        ListMut(unsafe { self.get_unchecked_mut() })
    }
}

impl<T> Edit for List<T> {
    type Editor<'a>
        = ListMut<'a, T>
    where
        Self: 'a;

    #[inline]
    fn edit(self: Pin<&mut Self>) -> ListMut<'_, T> {
        self.edit()
    }
}

/// Pins an element.
#[inline]
fn pin<T>(element: &mut T) -> Pin<&mut T> {
    // SAFETY: an element stays in its node. A `&mut T` is lent only if `T` is `Unpin`, and an element is taken out only
    // if it is `Relocatable`.
    unsafe { Pin::new_unchecked(element) }
}

impl<T> ListMut<'_, T> {
    /// [`List::repair`].
    #[inline]
    pub fn repair(&mut self) {
        self.0.repair();
    }

    /// [`List::clear`].
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T: Shareable> ListMut<'_, T> {
    /// [`List::push_front`].
    #[inline]
    pub fn push_front(&mut self, value: T) -> Result<(), PushError<T>> {
        self.0.push_front(value)
    }

    /// [`List::push_back`].
    #[inline]
    pub fn push_back(&mut self, value: T) -> Result<(), PushError<T>> {
        self.0.push_back(value)
    }

    /// [`List::pop_front`].
    #[inline]
    pub fn pop_front(&mut self) -> Option<T>
    where
        T: Relocatable,
    {
        self.0.pop_front()
    }

    /// [`List::pop_back`].
    #[inline]
    pub fn pop_back(&mut self) -> Option<T>
    where
        T: Relocatable,
    {
        self.0.pop_back()
    }

    /// [`List::retain`].
    #[inline]
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
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

impl<T> Deref for ListMut<'_, T> {
    type Target = List<T>;
    #[inline]
    fn deref(&self) -> &List<T> {
        self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for ListMut<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
