//! Text and lists of fixed capacity: findings are made where nothing may be allocated.
#![allow(unsafe_code)]

use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Deref;

/// Up to `N` bytes of text; the rest is cut off.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; N],
        length: 0,
    };

    pub(crate) fn new(text: fmt::Arguments<'_>) -> Self {
        let mut this = Self::EMPTY;
        let _ = fmt::write(&mut this, text);
        this
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let text = crate::text::whole_characters(text, N - self.length);
        self.bytes[self.length..][..text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = str;
    fn deref(&self) -> &str {
        // Only whole characters were stored.
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, formatter)
    }
}

/// Up to `N` elements; more are dropped. Zeroed memory is an empty list.
#[derive(Clone, Copy)]
pub struct BoundedList<T: Copy, const N: usize> {
    /// The elements below `count` are initialised.
    things: [MaybeUninit<T>; N],
    count: usize,
}

impl<T: Copy, const N: usize> BoundedList<T, N> {
    /// Appends an element. Returns whether there was room.
    pub(crate) fn push(&mut self, thing: T) -> bool {
        let fits = self.count < N;
        if fits {
            self.things[self.count].write(thing);
            self.count += 1;
        }
        fits
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        // SAFETY: `things` below `count` are initialised.
        let there = |thing: &'_ MaybeUninit<T>| unsafe { &*thing.as_ptr() };
        self.things[..self.count].iter().map(there)
    }

    /// The element at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.iter().nth(index)
    }
}

impl<T: Copy + fmt::Debug, const N: usize> fmt::Debug for BoundedList<T, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}
