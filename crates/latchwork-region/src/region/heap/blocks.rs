//! The bitmaps of a small span, and finding the block at an address: its size, and whether it is shared.
#![allow(unsafe_code)]

use super::classes::{SMALL_MAX, class_of_aligned};
use super::{Bit, CLASSES, Class, Heap, Kind, SPAN_BYTES, State, misuse};
use crate::atomic::AtomicU64;
use crate::atomic::Ordering::{Relaxed, Release};
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// The bitmaps of a span, in its descriptor or in the span itself.
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

    /// The address of a word of `alloc`, from which those of the other bitmaps can be reached.
    pub(super) fn alloc_address(&self, word: u32) -> usize {
        // The provenance of `base` covers all bitmaps of the span.
        self.base.as_ptr().expose_provenance() + usize::from(self.class.alloc) + word as usize * 8
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

/// An allocated block.
pub(super) enum Block {
    Small { span: u32, class: usize, bit: Bit },
    Large { head: u32, state: State },
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

    /// Marks a block as shared: it outlives its owner under every [`OnDeath`](super::OnDeath) policy.
    ///
    /// To link a block into a shared structure use [`Heap::publish`], with which a kill at any instruction makes the
    /// block neither dangle nor leak. Aborts the process if `block` is not the address of an allocated block.
    ///
    /// # Safety
    ///
    /// The block is not freed meanwhile.
    pub unsafe fn keep(&self, block: NonNull<u8>) {
        self.set_shared(block.addr().get(), true);
    }

    /// The usable size of an allocated block in bytes, at least the requested size.
    ///
    /// Aborts the process if `block` is not the address of an allocated block.
    pub fn usable_size(&self, block: NonNull<u8>) -> usize {
        self.bytes_in(self.found(block.addr().get()))
    }

    /// The result of [`Self::usable_size`] for a block of this layout.
    pub(in crate::region) fn size_for(&self, layout: Layout) -> usize {
        if layout.size() > SMALL_MAX || layout.align() > SMALL_MAX {
            return layout.size().next_multiple_of(SPAN_BYTES);
        }
        CLASSES[class_of_aligned(layout.size(), layout.align())].size as usize
    }

    /// Like [`Self::usable_size`]; `None` if there is no allocated block.
    pub(in crate::region) fn size_of_block(&self, block: NonNull<u8>) -> Option<usize> {
        Some(self.bytes_in(self.find(block.addr().get())?))
    }

    fn bytes_in(&self, block: Block) -> usize {
        match block {
            Block::Small { class, .. } => CLASSES[class].size as usize,
            Block::Large { head, state } => self.run_of(head, state) as usize * SPAN_BYTES,
        }
    }

    /// All addresses of a block.
    pub(in crate::region) fn addresses_of(&self, block: NonNull<u8>) -> core::ops::Range<usize> {
        let start = block.addr().get();
        start..start + self.size_of_block(block).unwrap_or(0)
    }

    /// The allocated block at `address`.
    pub(super) fn find(&self, address: usize) -> Option<Block> {
        let offset = self.offset_of(address)?;
        let span = (offset / SPAN_BYTES) as u32;
        let state = self.state(span);
        match state.kind()? {
            Kind::Small => {
                let class = state.class();
                let c = CLASSES.get(class)?;
                let bit = c.bit_of((offset % SPAN_BYTES) as u32)?;
                let bits = self.bits(span, c);
                // Relaxed: a task that owns the block got its address after its allocation; for other callers the
                // answer is only a guess in any case.
                let live =
                    bits.alloc(bit.word).load(Relaxed) & !bits.remote(bit.word).load(Relaxed);
                (live & bit.mask != 0).then_some(Block::Small { span, class, bit })
            }
            Kind::Head if offset.is_multiple_of(SPAN_BYTES) => {
                Some(Block::Large { head: span, state })
            }
            _ => None,
        }
    }

    fn found(&self, address: usize) -> Block {
        self.find(address)
            .unwrap_or_else(|| misuse("no allocated block at", address))
    }

    pub(super) fn is_shared(&self, address: usize) -> bool {
        match self.found(address) {
            Block::Small { span, class, bit } => {
                let bits = self.bits(span, &CLASSES[class]);
                // Relaxed: only the block's holder asks, and only it changes the bit.
                bits.shared(bit.word).load(Relaxed) & bit.mask != 0
            }
            Block::Large { state, .. } => state.is_shared(),
        }
    }

    pub(super) fn set_shared(&self, address: usize, shared: bool) {
        match self.found(address) {
            Block::Small { span, class, bit } => {
                let bits = self.bits(span, &CLASSES[class]);
                // Release: orders the change after the intent that it belongs to.
                match shared {
                    true => bits.shared(bit.word).fetch_or(bit.mask, Release),
                    false => bits.shared(bit.word).fetch_and(!bit.mask, Release),
                };
            }
            Block::Large { head, .. } => self.set_large_shared(head, shared),
        }
    }
}
