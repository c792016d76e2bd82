//! Changing data with an undo log in its place.
#![allow(unsafe_code)]

use super::super::{Edit, Shareable};
use super::{Transaction, Undo};
use core::fmt;
use core::ops::Deref;
use core::pin::Pin;

/// Changes an [`Undo`] in its place: the result of [`Undo::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change an `Undo`, and derefs to the `Undo`.
pub struct UndoMut<'a, T, const N: usize = 16>(&'a mut Undo<T, N>);

impl<T, const N: usize> Undo<T, N> {
    /// Lends data and log to an editor.
    #[inline]
    pub fn edit(self: Pin<&mut Self>) -> UndoMut<'_, T, N> {
        // SAFETY: the editor does not lend the `&mut Undo`, nor moves it.
        UndoMut(unsafe { self.get_unchecked_mut() })
    }
}

impl<T, const N: usize> Edit for Undo<T, N> {
    type Editor<'a>
        = UndoMut<'a, T, N>
    where
        Self: 'a;

    #[inline]
    fn edit(self: Pin<&mut Self>) -> UndoMut<'_, T, N> {
        self.edit()
    }
}

impl<T, const N: usize> UndoMut<'_, T, N> {
    /// Lends the editor, for [`Self::begin`], which consumes it.
    #[inline]
    pub fn as_mut(&mut self) -> UndoMut<'_, T, N> {
        UndoMut(self.0)
    }

    /// [`Undo::roll_back`].
    #[inline]
    pub fn roll_back(&mut self) -> bool {
        self.0.roll_back()
    }
}

impl<'a, T: Shareable, const N: usize> UndoMut<'a, T, N> {
    /// [`Undo::begin`].
    #[inline]
    pub fn begin(self) -> Transaction<'a, T, N> {
        self.0.begin()
    }

    /// [`Undo::get_mut`], for data that is `Unpin`.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T
    where
        T: Unpin,
    {
        self.0.get_mut()
    }

    /// The data, pinned: how to change containers in the data. Rolls back first. Changes made in this way are not
    /// logged.
    #[inline]
    pub fn get_pin_mut(&mut self) -> Pin<&mut T> {
        // SAFETY: the data moves only with the `Undo`, which is pinned; a `&mut T` is lent only if `T` is `Unpin`.
        unsafe { Pin::new_unchecked(self.0.get_mut()) }
    }
}

impl<T, const N: usize> Deref for UndoMut<'_, T, N> {
    type Target = Undo<T, N>;
    #[inline]
    fn deref(&self) -> &Undo<T, N> {
        self.0
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for UndoMut<'_, T, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
