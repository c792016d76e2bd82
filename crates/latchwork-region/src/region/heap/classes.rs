//! Size classes of small blocks.
//!
//! Sixteen-byte steps up to 128 B, then four classes for each doubling, up to 32 KiB: a block is at most 25 % larger
//! than the request (except for requests below 64 B). The table is a constant of the program, not data of the region,
//! so that the fast paths need not check it; a region's fingerprint must cover [`FINGERPRINT`], which changes with it.

use core::mem::offset_of;

use super::layout::{CLASS_COUNT, Desc, SPAN_BYTES};
use super::task::TaskHeap;

/// The largest small block, in bytes.
pub(super) const SMALL_MAX: usize = 32 << 10;

/// The alignment in bytes that every class guarantees.
pub(super) const MIN_ALIGN: usize = 16;

/// The constants of one class. The alignment makes the access to a class in the table a shift.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Class {
    /// Block size in bytes. Blocks are aligned to its largest power of two.
    pub(super) size: u32,
    /// ⌈2³² / size⌉: see [`Class::index_of`].
    reciprocal: u32,
    /// Offset of block 0 in the span.
    pub(super) first: u32,
    /// Blocks in a span.
    pub(super) count: u32,
    /// 64-bit words in each of a span's three bitmaps.
    pub(super) words: u32,
    /// Offsets of the bitmaps, from the descriptor (`inline`) or from the span.
    pub(super) alloc: u16,
    pub(super) shared: u16,
    pub(super) remote: u16,
    /// Whether one word for each bitmap is enough; then they are in the descriptor.
    pub(super) inline: bool,
}

/// A bit of a bitmap: the index of its word, and its mask there.
#[derive(Clone, Copy)]
pub(super) struct Bit {
    pub(super) word: u32,
    pub(super) mask: u64,
}

impl Class {
    const fn new(size: u32) -> Self {
        let span = SPAN_BYTES as u32;
        let reciprocal = (1u64 << 32).div_ceil(size as u64) as u32;
        let class = Self {
            size,
            reciprocal,
            first: 0,
            count: span / size,
            words: 1,
            alloc: offset_of!(Desc, alloc) as u16,
            shared: offset_of!(Desc, shared) as u16,
            remote: offset_of!(Desc, remote) as u16,
            inline: true,
        };
        if class.count <= 64 {
            return class;
        }
        // The bitmaps are sized as if they took no room, which costs at most one word. `remote`, which other tasks
        // write, has cache lines of its own.
        let words = class.count.div_ceil(64);
        let remote = (2 * words * 8).next_multiple_of(64);
        let align = 1 << size.trailing_zeros();
        let first = (remote + words * 8)
            .next_multiple_of(64)
            .next_multiple_of(align);
        Self {
            first,
            count: (span - first) / size,
            words,
            alloc: 0,
            shared: (words * 8) as u16,
            remote: remote as u16,
            inline: false,
            ..class
        }
    }

    /// The index of the block that starts at `offset` in the span, or `None` if no block starts there.
    ///
    /// For offsets below 2¹⁶ and sizes below 2¹⁶ the upper half of the product is the exact quotient, and the lower
    /// half is below the reciprocal if and only if the remainder is 0 (Lemire, Kaser, Kurz 2019).
    #[inline(always)]
    pub(super) fn index_of(&self, offset: u32) -> Option<u32> {
        let product = u64::from(offset.wrapping_sub(self.first)) * u64::from(self.reciprocal);
        let index = (product >> 32) as u32;
        let starts = (product as u32) < self.reciprocal;
        (starts && offset >= self.first && index < self.count).then_some(index)
    }

    /// The bit in each bitmap for the block that starts at `offset` in the span.
    #[inline(always)]
    pub(super) fn bit_of(&self, offset: u32) -> Option<Bit> {
        let index = self.index_of(offset)?;
        let (word, mask) = (index / 64, 1 << (index % 64));
        Some(Bit { word, mask })
    }

    /// The bits of bitmap word `word` that stand for no block. They are always set in `alloc`, so that a search for a
    /// free block needs no bound.
    pub(super) const fn tail(&self, word: u32) -> u64 {
        let blocks = self.count.saturating_sub(word * 64);
        if blocks >= 64 { 0 } else { u64::MAX << blocks }
    }
}

const fn size_of_class(class: usize) -> u32 {
    if class < 8 {
        return 16 * (class as u32 + 1);
    }
    let base = 128 << ((class - 8) / 4);
    base + base / 4 * ((class as u32 - 8) % 4 + 1)
}

/// All classes, by ascending size.
pub(super) static CLASSES: [Class; CLASS_COUNT] = {
    let mut classes = [Class::new(16); CLASS_COUNT];
    let mut class = 0;
    while class < CLASS_COUNT {
        classes[class] = Class::new(size_of_class(class));
        class += 1;
    }
    classes
};

/// A number that differs between builds with incompatible heaps.
pub const FINGERPRINT: u64 = {
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ super::layout::VERSION;
    let mut class = 0;
    while class < CLASS_COUNT {
        let c = Class::new(size_of_class(class));
        let facts = (c.size as u64) << 32 | (c.first as u64) << 16 | c.count as u64;
        hash = (hash ^ facts).wrapping_mul(0x0000_0100_0000_01b3);
        class += 1;
    }
    hash ^ (size_of::<Desc>() as u64) << 48 ^ size_of::<TaskHeap>() as u64
};

/// The smallest class for `size` bytes, which must not exceed [`SMALL_MAX`].
#[inline(always)]
pub(super) const fn class_of(size: usize) -> usize {
    if size <= 128 {
        return size.saturating_sub(1) / 16;
    }
    let last = size - 1;
    let log2 = last.ilog2() as usize;
    8 + (log2 - 7) * 4 + ((last >> (log2 - 2)) & 3)
}

/// The smallest class for `size` bytes aligned to `align`; neither may exceed [`SMALL_MAX`].
pub(super) fn class_of_aligned(size: usize, align: usize) -> usize {
    let mut class = class_of(size.max(align));
    // Ends at the next power of two at the latest.
    while !(CLASSES[class].size as usize).is_multiple_of(align) {
        class += 1;
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_is_the_smallest_that_fits() {
        for size in 0..=SMALL_MAX {
            let class = class_of(size);
            assert!(CLASSES[class].size as usize >= size, "{size}");
            assert!(
                class == 0 || (CLASSES[class - 1].size as usize) < size,
                "{size}"
            );
        }
    }

    #[test]
    fn waste_is_at_most_a_quarter() {
        for size in 64..=SMALL_MAX {
            let block = CLASSES[class_of(size)].size as usize;
            assert!((block - size) * 4 <= block, "{size} in {block}");
        }
    }

    #[test]
    fn every_block_is_found_and_no_interior_pointer_is() {
        for c in &CLASSES {
            let mut blocks = 0;
            for offset in 0..SPAN_BYTES as u32 {
                if let Some(index) = c.index_of(offset) {
                    assert_eq!(index, blocks);
                    assert_eq!(offset, c.first + index * c.size);
                    assert!(offset + c.size <= SPAN_BYTES as u32);
                    assert_eq!(offset % (1 << c.size.trailing_zeros()), 0);
                    blocks += 1;
                }
            }
            assert_eq!(blocks, c.count);
            assert!(c.count <= c.words * 64);
            let tail: u32 = (0..c.words).map(|w| c.tail(w).count_ones()).sum();
            assert_eq!(tail, c.words * 64 - c.count);
        }
    }

    #[test]
    fn aligned_class_holds_the_alignment() {
        for shift in 0..=15 {
            let align = 1usize << shift;
            for size in [1, 100, 129, 5000, 20_000, SMALL_MAX] {
                let c = &CLASSES[class_of_aligned(size, align)];
                assert!(c.size as usize >= size && (c.size as usize).is_multiple_of(align));
                assert_eq!(c.first as usize % align, 0);
            }
        }
    }
}
