//! Changing a string in its place.
#![allow(unsafe_code)]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "each method names the one that it calls"
)]

use super::super::{Edit, StorageError};
use super::String;
use core::fmt;
use core::ops::Deref;
use core::pin::Pin;

/// Changes a [`String`] in its place: the result of [`String::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change a `String`, and derefs to the string.
pub struct StringMut<'a>(&'a mut String);

impl String {
    /// Lends the string to an editor.
    #[inline]
    pub fn edit(self: Pin<&mut Self>) -> StringMut<'_> {
        // SAFETY: the editor does not lend the `&mut String`, nor moves the string.
        StringMut(unsafe { self.get_unchecked_mut() })
    }
}

impl Edit for String {
    type Editor<'a> = StringMut<'a>;

    #[inline]
    fn edit(self: Pin<&mut Self>) -> StringMut<'_> {
        self.edit()
    }
}

impl StringMut<'_> {
    /// [`String::push_str`].
    #[inline]
    pub fn push_str(&mut self, content: &str) -> Result<(), StorageError> {
        self.0.push_str(content)
    }

    /// [`String::push`].
    #[inline]
    pub fn push(&mut self, character: char) -> Result<(), StorageError> {
        self.0.push(character)
    }

    /// [`String::pop`].
    #[inline]
    pub fn pop(&mut self) -> Option<char> {
        self.0.pop()
    }

    /// [`String::truncate`].
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// [`String::clear`].
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// [`String::reserve`].
    #[inline]
    pub fn reserve(&mut self, additional: usize) -> Result<(), StorageError> {
        self.0.reserve(additional)
    }

    /// [`String::shrink_to_fit`].
    #[inline]
    pub fn shrink_to_fit(&mut self) -> Result<(), StorageError> {
        self.0.shrink_to_fit()
    }

    /// [`String::repair`].
    #[inline]
    pub fn repair(&mut self) {
        self.0.repair();
    }
}

impl Deref for StringMut<'_> {
    type Target = String;
    #[inline]
    fn deref(&self) -> &String {
        self.0
    }
}

impl fmt::Display for StringMut<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for StringMut<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, formatter)
    }
}
