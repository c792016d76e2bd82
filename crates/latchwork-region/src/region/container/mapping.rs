//! What keeps a container's region mapped: while a method of the container runs, and as long as the container can be
//! borrowed.

use super::super::Inner;
use super::super::region_id::{self, RegionId};
use super::super::word::read;
use super::borrowed;
use crate::atomic::AtomicUsize;
use core::ptr;
use std::sync::Arc;

/// Keeps the region of a container mapped while one of its methods runs, including the user's code that it calls.
///
/// # Panics
/// If the container has a block, and this process has not mapped its region.
#[inline]
pub(in crate::region) fn guard(id: RegionId, word: &AtomicUsize) -> MappingGuard {
    if region_id::is_inside(id, ptr::from_ref(word).addr()) {
        return MappingGuard(None);
    }
    try_guard(id, word).unwrap_or_else(|| not_mapped(id))
}

/// Like [`guard`]; `None` if the container has a block that this process has not mapped: such a container can only be
/// leaked.
#[inline(never)]
pub(in crate::region) fn try_guard(id: RegionId, word: &AtomicUsize) -> Option<MappingGuard> {
    if region_id::is_inside(id, ptr::from_ref(word).addr()) {
        return Some(MappingGuard(None));
    }
    let region = borrowed::region_of(id);
    (region.is_some() || read(word) == 0).then_some(MappingGuard(region))
}

/// A region that stays mapped while this exists.
#[must_use]
pub(in crate::region) struct MappingGuard(
    #[expect(dead_code, reason = "it is held, not read")] Option<Arc<Inner>>,
);

/// Keeps the region of a container mapped for as long as the container can be borrowed.
///
/// # Panics
/// As for [`guard`].
#[inline]
pub(in crate::region) fn keep_mapped(id: RegionId, word: &AtomicUsize) {
    let block = read(word);
    let is_kept = block == 0
        || region_id::is_inside(id, ptr::from_ref(word).addr())
        || borrowed::contains(id, block);
    if !is_kept {
        keep_from_outside(id, word, block);
    }
}

#[cold]
#[inline(never)]
fn keep_from_outside(id: RegionId, word: &AtomicUsize, block: usize) {
    match borrowed::region_of(id) {
        // The container is inside, but its region did not fit in the table of mapped regions.
        Some(region) if region.addresses().contains(&ptr::from_ref(word).addr()) => {}
        Some(region) => borrowed::insert(region, block),
        None => not_mapped(id),
    }
}

#[cold]
#[inline(never)]
fn not_mapped(id: RegionId) -> ! {
    assert!(
        id != RegionId::NONE,
        "the container belongs to no region: a kill interrupted its assignment"
    );
    let base = id.base();
    panic!("the container belongs to a region at {base:#x}, which this process has not attached")
}
