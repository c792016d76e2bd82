//! Heaps and the operations on them, among them the C library's.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::io;
use std::ptr;

/// How many blocks are allocated at once in a batch: more than a cache of a few blocks holds.
pub(crate) const BATCH: usize = 64;

/// What malloc aligns its blocks to, and so every heap here does.
pub(crate) const ALIGNMENT: usize = 16;

/// A heap that all tasks use at the same time.
pub(crate) trait Heap: Send + Sync + 'static {
    /// A block of at least `size` bytes, or null.
    fn allocate(&self, size: usize) -> *mut u8;

    /// Frees a block.
    ///
    /// # Safety
    /// `block` was returned by this heap's `allocate` with this `size`, and is not used any more.
    unsafe fn free(&self, block: *mut u8, size: usize);
}

/// Allocates and frees so many blocks, one after another.
pub(crate) fn pairs(heap: &impl Heap, size: usize, count: u64) -> io::Result<()> {
    for _ in 0..count {
        let block = touched(heap, size)?;
        // SAFETY: the block comes from this heap, and is not used after this.
        unsafe { heap.free(block, size) };
    }
    Ok(())
}

/// Allocates and frees so many blocks, in batches of [`BATCH`] that are freed in reverse.
pub(crate) fn batches(heap: &impl Heap, size: usize, count: u64) -> io::Result<()> {
    let mut blocks = [ptr::null_mut(); BATCH];
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH as u64) as usize;
        for index in 0..batch {
            blocks[index] =
                touched(heap, size).inspect_err(|_| release(heap, size, &blocks[..index]))?;
        }
        release(heap, size, &blocks[..batch]);
        left -= batch as u64;
    }
    Ok(())
}

#[inline]
fn release(heap: &impl Heap, size: usize, blocks: &[*mut u8]) {
    for block in blocks.iter().rev() {
        // SAFETY: `batches` allocated these blocks from this heap, and does not use them again.
        unsafe { heap.free(*block, size) };
    }
}

/// A block whose first byte has been written. The compiler knows malloc and free, and would remove a pair whose block
/// is never accessed.
#[inline]
pub(crate) fn touched(heap: &impl Heap, size: usize) -> io::Result<*mut u8> {
    let block = black_box(heap.allocate(size));
    if block.is_null() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: the block was just allocated, and has at least one byte.
    unsafe { block.write_volatile(1) };
    Ok(block)
}

/// `malloc` and `free`.
pub(crate) struct Malloc;

impl Heap for Malloc {
    #[inline]
    fn allocate(&self, size: usize) -> *mut u8 {
        // SAFETY: malloc takes any size.
        unsafe { libc::malloc(size).cast() }
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, _size: usize) {
        // SAFETY: the caller's contract is that of `free`.
        unsafe { libc::free(block.cast()) }
    }
}
