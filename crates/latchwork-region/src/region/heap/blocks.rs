//! Finding the block at an address: its size, and whether it is shared.
#![allow(unsafe_code)]

use super::classes::{CLASSES, SMALL_MAX, class_of_aligned};
use super::error::misuse;
use super::handle::Heap;
use super::layout::SPAN_BYTES;
use super::state::{Kind, State};
use crate::atomic::Ordering::{Relaxed, Release};
use core::alloc::Layout;
use core::ptr::NonNull;

/// An allocated block.
pub(super) enum Block {
    Small {
        span: u32,
        class: usize,
        word: u32,
        mask: u64,
    },
    Large {
        head: u32,
        state: State,
    },
}

impl Heap {
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
        self.size_of_block(block)
            .unwrap_or_else(|| misuse("no allocated block at", block.addr().get()))
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
        Some(match self.find(block.addr().get())? {
            Block::Small { class, .. } => CLASSES[class].size as usize,
            Block::Large { head, state } => self.run_of(head, state) as usize * SPAN_BYTES,
        })
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
                let index = c.index_of((offset % SPAN_BYTES) as u32)?;
                let (word, mask) = (index / 64, 1 << (index % 64));
                let bits = self.bits(span, c);
                // Relaxed: a task that owns the block got its address after its allocation; for other callers the
                // answer is only a guess in any case.
                let live = bits.alloc(word).load(Relaxed) & !bits.remote(word).load(Relaxed);
                (live & mask != 0).then_some(Block::Small {
                    span,
                    class,
                    word,
                    mask,
                })
            }
            Kind::Head if offset.is_multiple_of(SPAN_BYTES) => {
                Some(Block::Large { head: span, state })
            }
            _ => None,
        }
    }

    pub(super) fn is_shared(&self, address: usize) -> bool {
        match self.find(address) {
            Some(Block::Small {
                span,
                class,
                word,
                mask,
            }) => {
                // Relaxed: only the block's holder asks, and only it changes the bit.
                self.bits(span, &CLASSES[class]).shared(word).load(Relaxed) & mask != 0
            }
            Some(Block::Large { state, .. }) => state.is_shared(),
            None => misuse("no allocated block at", address),
        }
    }

    pub(super) fn set_shared(&self, address: usize, shared: bool) {
        match self.find(address) {
            Some(Block::Small {
                span,
                class,
                word,
                mask,
            }) => {
                let bits = self.bits(span, &CLASSES[class]);
                // Release: orders the change after the intent that it belongs to.
                match shared {
                    true => bits.shared(word).fetch_or(mask, Release),
                    false => bits.shared(word).fetch_and(!mask, Release),
                };
            }
            Some(Block::Large { head, .. }) => self.set_large_shared(head, shared),
            None => misuse("no allocated block at", address),
        }
    }
}
