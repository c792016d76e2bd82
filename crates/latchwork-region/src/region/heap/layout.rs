//! The heap's metadata: all that it keeps in a region apart from the blocks, and where.
//!
//! All of it is valid when zero, so that creating a heap writes nothing, and a kill during creation leaves nothing
//! incomplete.

use core::mem::offset_of;

use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Bytes in a span: the unit in which the heap divides its memory.
pub const SPAN_BYTES: usize = 64 << 10;

/// Incremented whenever the meaning of a field changes.
pub(super) const VERSION: u64 = 4;

/// The number of spans whose states stand in one block of the table.
pub(super) const BLOCK: usize = 512;

/// Where the state of a span stands in the table: those of 64 spans, from a multiple of 64 on, are on 64 cache lines. So
/// tasks that use neighbouring spans do not write to the same line again and again.
#[inline(always)]
pub(super) const fn place_of(span: usize) -> usize {
    span ^ ((span & 7) << 6)
}

/// The number of size classes.
pub(super) const CLASS_COUNT: usize = 40;

/// The words of the heap as a whole.
#[repr(C, align(64))]
pub(super) struct Header {
    /// The number of spans that have memory. It only grows.
    pub(super) committed: AtomicU32,
    /// A hint: the lowest free span.
    pub(super) free_hint: AtomicU32,
    /// A hint: the start of a free run of several spans.
    pub(super) run_hint: AtomicU32,
    /// An upper bound of the number of spans without memory.
    pub(super) hollow: AtomicU32,
    /// One bit for each class that may have orphan spans.
    pub(super) orphan_classes: AtomicU64,
}

/// The descriptor of one span.
///
/// It is stored in a table, not in the span, so that the descriptors of all spans do not map to one set of the cache,
/// and so that blocks of a power of two fill a span.
#[repr(C, align(128))]
pub(super) struct Desc {
    /// The bitmap word in which the owner searches first for a free block. A cache.
    pub(super) cursor: AtomicU32,
    /// The number of blocks whose `alloc` bit is set. A cache, for the owner.
    pub(super) used: AtomicU32,
    /// Where the owner's cache has the span: [`Self::NOWHERE`], [`Self::CURRENT`] or [`Self::LISTED`].
    pub(super) membership: AtomicU32,
    /// Neighbours in the owner's list, as index + 1.
    pub(super) next: AtomicU32,
    pub(super) prev: AtomicU32,
    /// The number of spans in the run that starts here, if that is more than one.
    pub(super) run: AtomicU32,
    /// The bitmaps of classes with at most 64 blocks in a span.
    pub(super) alloc: AtomicU64,
    pub(super) shared: AtomicU64,
    // What the fast paths need; valid while the span is the owner's current one, or listed.
    /// The offset in the span + 1 of the block that the owner freed last, or 0 if it is in use or the cursor has moved.
    pub(super) freed: AtomicU32,
    /// That block's bit in the cursor's word.
    pub(super) freed_bit: AtomicU32,
    /// The owner, and the class + 1; 0 if the span is in no task's cache.
    pub(super) cached: AtomicU64,
    /// The address of the cursor's word of `alloc`.
    pub(super) cursor_word: AtomicUsize,
    /// On a cache line of its own, since other tasks write it.
    pub(super) remote: AtomicU64,
}

impl Desc {
    /// In no list: full, or just adopted.
    pub(super) const NOWHERE: u32 = 0;
    /// The span from which its class allocates.
    pub(super) const CURRENT: u32 = 1;
    /// In its class's list of spans with free blocks.
    pub(super) const LISTED: u32 = 2;
}

const _: () = assert!(offset_of!(Desc, remote) == 64 && size_of::<Desc>() == 128);

/// The layout of the metadata of a heap of a given maximum size.
///
/// A pure function of its arguments: the creator of a region places the heap by it, and an attaching task recomputes
/// it and compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapLayout {
    /// The number of spans in the data area at its maximum.
    pub max_spans: u32,
    /// The number of slots in the task table.
    pub slots: u32,
    /// Bytes of metadata, which must be zero at creation, committed as a whole, and aligned to 128.
    pub meta_bytes: usize,
    pub(super) table: usize,
    pub(super) descs: usize,
    pub(super) retiring: usize,
}

impl HeapLayout {
    /// The alignment of the metadata, in bytes.
    pub const META_ALIGN: usize = align_of::<Desc>();

    /// The layout for a data area of at most `max_bytes` (rounded down to whole spans) and a task table of `slots`.
    ///
    /// `None` if there is no room for one span, or for more than 2³¹ spans.
    pub const fn for_max(max_bytes: usize, slots: u16) -> Option<Self> {
        let spans = max_bytes / SPAN_BYTES;
        if spans == 0 || spans > 1 << 31 {
            return None;
        }
        let retiring = size_of::<Header>();
        let table = (retiring + (slots as usize).div_ceil(64) * 8).next_multiple_of(64);
        let descs = (table + spans.next_multiple_of(BLOCK) * 8).next_multiple_of(Self::META_ALIGN);
        Some(Self {
            max_spans: spans as u32,
            slots: slots as u32,
            meta_bytes: descs + spans * size_of::<Desc>(),
            table,
            descs,
            retiring,
        })
    }

    /// Bytes of the data area at its maximum.
    pub const fn data_bytes(&self) -> usize {
        self.max_spans as usize * SPAN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, place_of};
    use std::collections::BTreeSet;

    #[test]
    fn the_states_of_neighbours_are_on_different_cache_lines() {
        for block in [0, 5 * BLOCK] {
            let places = BTreeSet::from_iter((block..block + BLOCK).map(place_of));
            assert!(places.into_iter().eq(block..block + BLOCK));
        }
        for first in (0..2 * BLOCK).step_by(64) {
            let lines = BTreeSet::from_iter((first..first + 64).map(|span| place_of(span) / 8));
            assert_eq!(lines.len(), 64);
        }
    }
}
