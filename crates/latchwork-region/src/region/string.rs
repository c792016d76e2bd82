//! A growable UTF-8 string in a region: a [`Vec`] of bytes that are valid UTF-8 at every instruction.
//!
//! *Commit points.* Appending writes the bytes behind the length, and then stores the length once: the string never
//! contains part of a character. Truncating is one store.
#![allow(unsafe_code)]

use super::container::{editor, forward};
use super::region_id::RegionId;
use super::{
    Region, Relocatable, Shareable, StorageError, TornSafe, Unsound, Validate, Validator, Vec,
    fingerprint_of,
};
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use core::ptr::NonNull;

/// A growable UTF-8 string whose bytes live in a region.
///
/// It derefs to `str`, and a `HashMap<String, _>` is searched by `&str`.
///
/// ```
/// use latchwork::region::{RegionOptions, String};
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let mut greeting = String::from_str_in("grüß ", &region)?;
/// greeting.push_str("Gott")?;
/// assert_eq!(greeting, "grüß Gott");
/// # drop(greeting);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Cost, owner death, fork:* as for [`Vec`]. An append interrupted by a kill has appended everything or nothing.
#[repr(transparent)]
pub struct String {
    bytes: Vec<u8>,
}

// SAFETY: its only field is Shareable.
unsafe impl Shareable for String {
    const FINGERPRINT: u64 = fingerprint_of::<Self>("latchwork::String", &[Vec::<u8>::FINGERPRINT]);
}
// SAFETY: its only field is TornSafe, and each commit is at a character boundary.
unsafe impl TornSafe for String {}
// SAFETY: its only field is Relocatable.
unsafe impl Relocatable for String {}
// SAFETY: its only field is validated, and the bytes are UTF-8.
unsafe impl Validate for String {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the string is transparent; after the first call its bytes are values, in a region that stays mapped.
        let bytes = unsafe {
            Vec::validate(place.cast::<Vec<u8>>(), region)?;
            place.cast::<Vec<u8>>().as_ref().elements()
        };
        core::str::from_utf8(bytes)
            .map(drop)
            .map_err(|_| region.unsound(place, "a string is not UTF-8"))
    }
}

impl String {
    /// An empty string for this region. Takes no memory before the first push.
    #[must_use]
    pub fn new_in(region: &Region) -> Self {
        Self::empty(region.inner().id)
    }

    pub(super) fn empty(region: RegionId) -> Self {
        Self {
            bytes: Vec::empty(region),
        }
    }

    /// A string with this content.
    ///
    /// # Errors
    /// If the region has no room, or the thread cannot become a task of it.
    pub fn from_str_in(content: &str, region: &Region) -> Result<Self, StorageError> {
        let mut this = Self::new_in(region);
        this.push_str(content)?;
        Ok(this)
    }

    /// A copy, in the same region.
    ///
    /// # Errors
    /// As for [`Self::from_str_in`].
    pub fn try_clone(&self) -> Result<Self, StorageError> {
        let mut copy = Self::empty(self.bytes.buffer.region);
        self.with_str(|content| copy.push_str(content))?;
        Ok(copy)
    }

    /// Passes the content to `step`, and keeps the region mapped only until that returns: the string may be on its way
    /// into the region.
    fn with_str<R>(&self, step: impl FnOnce(&str) -> R) -> R {
        let _guard = self.bytes.buffer.guard();
        // SAFETY: only whole `str`s are appended and only whole characters removed, and the region is held.
        step(unsafe { core::str::from_utf8_unchecked(self.bytes.elements()) })
    }

    /// The content.
    #[inline]
    #[must_use]
    pub fn as_str(&self) -> &str {
        // SAFETY: only whole `str`s are appended, and only whole characters removed.
        unsafe { core::str::from_utf8_unchecked(&self.bytes) }
    }

    /// The number of bytes that fit without growing.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes room for at least `additional` more bytes.
    ///
    /// # Errors
    /// As for [`Vec::reserve`].
    pub fn reserve(&mut self, additional: usize) -> Result<(), StorageError> {
        self.bytes.reserve(additional)
    }

    /// Returns the memory that the content does not need to the heap; see [`Vec::shrink_to_fit`].
    ///
    /// # Errors
    /// As for [`Vec::shrink_to_fit`].
    pub fn shrink_to_fit(&mut self) -> Result<(), StorageError> {
        self.bytes.shrink_to_fit()
    }

    /// Appends a string as a whole.
    ///
    /// # Errors
    /// As for [`Vec::reserve`]; then nothing is appended.
    #[inline]
    pub fn push_str(&mut self, content: &str) -> Result<(), StorageError> {
        self.bytes.extend_from_slice(content.as_bytes())
    }

    /// Appends a character.
    ///
    /// # Errors
    /// As for [`Self::push_str`].
    pub fn push(&mut self, character: char) -> Result<(), StorageError> {
        self.push_str(character.encode_utf8(&mut [0; 4]))
    }

    /// Removes and returns the last character.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.with_str(|content| content.chars().next_back())?;
        self.bytes.truncate(self.bytes.len() - last.len_utf8());
        Some(last)
    }

    /// Shortens the string to `len` bytes.
    ///
    /// # Panics
    /// If `len` is in the middle of a character.
    pub fn truncate(&mut self, len: usize) {
        assert!(
            self.with_str(|content| len >= content.len() || content.is_char_boundary(len)),
            "byte {len} is inside a character"
        );
        self.bytes.truncate(len);
    }

    /// Removes all characters. The buffer stays; see [`Self::shrink_to_fit`].
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Exists for symmetry with the other containers: a dead owner leaves nothing unfinished, since every change is
    /// one store.
    pub fn repair(&mut self) {
        self.bytes.repair();
    }
}

impl Deref for String {
    type Target = str;
    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for String {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for String {
    fn borrow(&self) -> &str {
        self
    }
}

impl Hash for String {
    /// Hashes like `str`, since a string can be looked up by a `str`.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.with_str(|content| content.hash(state));
    }
}

impl PartialEq for String {
    fn eq(&self, other: &Self) -> bool {
        self.with_str(|one| other.with_str(|other| one == other))
    }
}
impl Eq for String {}

impl PartialEq<str> for String {
    fn eq(&self, other: &str) -> bool {
        self.with_str(|content| content == other)
    }
}

impl PartialEq<&str> for String {
    fn eq(&self, other: &&str) -> bool {
        self.with_str(|content| content == *other)
    }
}

impl PartialOrd for String {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for String {
    fn cmp(&self, other: &Self) -> Ordering {
        self.with_str(|one| other.with_str(|other| one.cmp(other)))
    }
}

impl fmt::Display for String {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_str(|content| fmt::Display::fmt(content, formatter))
    }
}

impl fmt::Debug for String {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_str(|content| fmt::Debug::fmt(content, formatter))
    }
}

/// Changes a [`String`] in its place: the result of [`String::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change a `String`, and derefs to the string.
pub struct StringMut<'a>(&'a mut String);

editor!(StringMut, String<> => String);

impl StringMut<'_> {
    forward! { String:
        fn push_str(&mut self, content: &str) -> Result<(), StorageError>;
        fn push(&mut self, character: char) -> Result<(), StorageError>;
        fn pop(&mut self) -> Option<char>;
        fn truncate(&mut self, len: usize);
        fn clear(&mut self);
        fn reserve(&mut self, additional: usize) -> Result<(), StorageError>;
        fn shrink_to_fit(&mut self) -> Result<(), StorageError>;
        fn repair(&mut self);
    }
}

impl fmt::Display for StringMut<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
