//! What the heap keeps in a region beside the blocks, and where.
//!
//! All of it is valid when zero, so that creating a heap writes nothing and a
//! kill in mid-creation leaves nothing half made.

use core::mem::offset_of;

use crate::atomic::{AtomicU32, AtomicU64};

/// Bytes in a span: the unit in which the heap divides its memory.
pub const SPAN_BYTES: usize = 64 << 10;

/// Grows whenever the meaning of a field changes.
pub(super) const VERSION: u64 = 2;

/// The heap's own words.
#[repr(C, align(64))]
pub(super) struct Header {
    /// Spans that have memory behind them. Only grows.
    pub(super) committed: AtomicU32,
    /// A guess at the lowest free span.
    pub(super) free_hint: AtomicU32,
    /// A guess at where a free run of several spans may be.
    pub(super) run_hint: AtomicU32,
    /// Spans without memory, or more.
    pub(super) hollow: AtomicU32,
    /// One bit for each class that may have orphan spans.
    pub(super) orphan_classes: AtomicU64,
}

/// What belongs to one span but is not in it.
///
/// Beside the span, not in it, so that the descriptors of all spans do not fall
/// into one set of the cache, and so that blocks of a power of two fill a span.
#[repr(C, align(128))]
pub(super) struct Desc {
    /// Bitmap word in which the owner looks for a free block first. A cache.
    pub(super) cursor: AtomicU32,
    /// Blocks whose `alloc` bit is set. A cache, for the owner.
    pub(super) used: AtomicU32,
    /// Where the owner's cache has the span: see [`place`].
    pub(super) place: AtomicU32,
    /// Neighbours in the owner's list, as index + 1.
    pub(super) next: AtomicU32,
    pub(super) prev: AtomicU32,
    /// Spans in the run that starts here, where its head is not single.
    pub(super) run: AtomicU32,
    /// The bitmaps of classes with at most 64 blocks in a span.
    pub(super) alloc: AtomicU64,
    pub(super) shared: AtomicU64,
    _pad: [u64; 3],
    /// On a cache line of its own: other tasks write it.
    pub(super) remote: AtomicU64,
}

const _: () = assert!(offset_of!(Desc, remote) == 64 && size_of::<Desc>() == 128);

/// Values of [`Desc::place`].
pub(super) mod place {
    /// In no list: full, or just adopted.
    pub(in super::super) const LOOSE: u32 = 0;
    /// The span that its class allocates from.
    pub(in super::super) const CURRENT: u32 = 1;
    /// In its class's list of spans with free blocks.
    pub(in super::super) const LISTED: u32 = 2;
}

/// Where a heap of a given maximum size keeps its own data.
///
/// A pure function of its arguments: the creator of a region places the heap by
/// it, and who attaches computes it again and compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapLayout {
    /// Spans in the data area at its maximum.
    pub max_spans: u32,
    /// Slots in the task table.
    pub slots: u32,
    /// Bytes of metadata, which must be zero at creation, committed as a whole,
    /// and aligned to 128.
    pub meta_bytes: usize,
    pub(super) table: usize,
    pub(super) descs: usize,
    pub(super) retiring: usize,
}

impl HeapLayout {
    /// The alignment of the metadata, in bytes.
    pub const META_ALIGN: usize = align_of::<Desc>();

    /// The layout for a data area of at most `max_bytes` (rounded down to whole
    /// spans) and a task table of `slots`.
    ///
    /// `None` if there is no room for one span, or more than 2³¹ spans.
    pub const fn for_max(max_bytes: usize, slots: u16) -> Option<Self> {
        let spans = max_bytes / SPAN_BYTES;
        if spans == 0 || spans > 1 << 31 {
            return None;
        }
        let retiring = size_of::<Header>();
        let table = (retiring + (slots as usize).div_ceil(64) * 8).next_multiple_of(64);
        let descs = (table + spans * 8).next_multiple_of(Self::META_ALIGN);
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
