//! The bitmaps of a small span: the word of each bitmap, in the descriptor or in the span.

#![allow(unsafe_code)]

use super::Heap;
use super::classes::Class;
use crate::atomic::AtomicU64;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// The bitmaps of a span.
pub(super) struct Bits<'a> {
    base: NonNull<u8>,
    class: &'static Class,
    _heap: PhantomData<&'a Heap>,
}

impl Bits<'_> {
    #[inline(always)]
    fn word(&self, bitmap: u16, word: u32) -> &AtomicU64 {
        debug_assert!(word < self.class.words);
        // SAFETY: each bitmap has `words` words, at this offset from `base`.
        unsafe {
            self.base
                .add(bitmap as usize + word as usize * 8)
                .cast()
                .as_ref()
        }
    }

    #[inline(always)]
    pub(super) fn alloc(&self, word: u32) -> &AtomicU64 {
        self.word(self.class.alloc, word)
    }

    #[inline(always)]
    pub(super) fn shared(&self, word: u32) -> &AtomicU64 {
        self.word(self.class.shared, word)
    }

    #[inline(always)]
    pub(super) fn remote(&self, word: u32) -> &AtomicU64 {
        self.word(self.class.remote, word)
    }
}

impl Heap {
    #[inline(always)]
    pub(super) fn bits(&self, span: u32, class: &'static Class) -> Bits<'_> {
        let base = if class.inline {
            NonNull::from(self.desc(span)).cast()
        } else {
            self.address_of_span(span)
        };
        Bits {
            base,
            class,
            _heap: PhantomData,
        }
    }
}
