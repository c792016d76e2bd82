//! Borrowed blocks: what keeps a region mapped for a container outside it.
//!
//! A container inside its own region is reached through a handle, which keeps the region mapped. A container
//! elsewhere (on a stack, in another region) borrows from no handle. Its methods look up its region and hold an `Arc`
//! of it while they run; a reference that they return (to a slice, an element) must stay valid for as long as the
//! container can be borrowed. So the block that the reference points into is recorded here as *borrowed*, and each
//! record keeps the region mapped until that block is freed: when the container is dropped, or has grown.
//!
//! Invariants
//! 1. Each entry of [`BORROWED`] owns one strong count of the region that contains its block.
//! 2. An entry of [`BORROWED`] is removed only when this process frees its block: nothing borrows from the block then.
//!
//! *Orderings.* A thread that finds a block here has borrowed from it already, or borrows from a container whose block
//! was recorded before.
#![allow(unsafe_code)]

use super::super::region_id::{RegionId, ways};
use super::super::{Inner, registry};
use crate::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The region of this ID, if this process has it mapped.
#[cold]
#[inline(never)]
pub(in crate::region) fn region_of(id: RegionId) -> Option<Arc<Inner>> {
    registry::find(id.base()).filter(|region| region.id == id)
}

/// Borrowed blocks, by [`key_of`].
static BORROWED: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
/// An upper bound of their number.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The key of a block of one region, distinct from blocks of regions that were at this address before.
#[inline]
fn key_of(id: RegionId, block: usize) -> usize {
    block ^ id.number()
}

/// Whether a block is recorded as borrowed. The caller borrows its container.
#[inline]
pub(in crate::region) fn contains(id: RegionId, block: usize) -> bool {
    let key = key_of(id, block);
    let is_this = |entry: &AtomicUsize| entry.load(Ordering::Acquire) == key;
    ways(&BORROWED, key).iter().any(is_this)
}

/// Records a block as borrowed, which keeps its region mapped until the block is freed.
pub(in crate::region) fn insert(region: Arc<Inner>, block: usize) {
    let key = key_of(region.id, block);
    for entry in ways(&BORROWED, key) {
        // The entry's strong count, taken before the entry exists.
        let count = Arc::clone(&region);
        // AcqRel: the Release pairs with the Acquire in `contains`, the Acquire with the Release in `remove`.
        let inserted = entry.compare_exchange(0, key, Ordering::AcqRel, Ordering::Relaxed);
        if inserted.is_ok() {
            COUNT.fetch_add(1, Ordering::Relaxed);
            core::mem::forget(count);
            return;
        }
    }
    region.keep_mapped_forever();
}

/// Called after a block was freed, in a region that the caller keeps mapped.
#[inline]
pub(in crate::region) fn block_freed(id: RegionId, block: usize) {
    // Relaxed: a thread that frees a block has exclusive access to its container, and sees what was recorded for it.
    if COUNT.load(Ordering::Relaxed) != 0 {
        remove(id, block);
    }
}

#[cold]
#[inline(never)]
fn remove(id: RegionId, block: usize) {
    let key = key_of(id, block);
    // Two threads that borrowed the container at the same time may have recorded it twice.
    for entry in ways(&BORROWED, key) {
        let removed = entry.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed);
        if removed.is_ok() {
            COUNT.fetch_sub(1, Ordering::Relaxed);
            if let Some(region) = registry::find(block) {
                // SAFETY: releases the entry's count (invariant 1), of the region that contains the block.
                unsafe { Arc::decrement_strong_count(Arc::as_ptr(&region)) };
            }
        }
    }
}
