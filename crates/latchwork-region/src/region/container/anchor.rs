//! What each container consists of, and what keeps its region mapped: while a method of the container runs, and as long
//! as the container can be borrowed.
#![allow(unsafe_code)]

use super::super::region_id::{self, RegionId};
use super::super::word::{commit, pointer, read};
use super::super::{Inner, StorageError, Unsound, Validator};
use super::{borrowed, heap};
use crate::atomic::{AtomicUsize, Ordering, compiler_fence};
use core::ptr::{self, NonNull};
use std::sync::Arc;

/// A container's region, and the word that leads to its block, if it has one.
#[repr(C)]
pub(in crate::region) struct Anchor {
    pub(in crate::region) region: RegionId,
    pub(in crate::region) word: AtomicUsize,
}

impl Anchor {
    pub(in crate::region) fn new(region: RegionId) -> Self {
        let word = AtomicUsize::new(0);
        Self { region, word }
    }

    /// The address of the block of a container at a place whose bytes may be anything; 0 if it has none.
    ///
    /// # Safety
    /// The place is aligned, in memory of the region, and no task uses it.
    pub(in crate::region) unsafe fn validate(
        place: NonNull<Self>,
        region: &Validator<'_>,
    ) -> Result<usize, Unsound> {
        // SAFETY: the caller's place; every value of the two words is valid.
        let anchor = unsafe { place.as_ref() };
        if anchor.region == region.inner().id {
            return Ok(read(&anchor.word));
        }
        if anchor.region != RegionId::NONE {
            return Err(region.unsound(place, "a container belongs to another region"));
        }
        // A task died as it dropped the container, or as it assigned another one: what it would lead to is leaked, and it
        // is empty.
        commit(&anchor.word, 0);
        Ok(0)
    }

    /// The container's block. The caller keeps the region mapped, by a guard or for a borrow.
    #[inline]
    pub(in crate::region) fn block<T>(&self) -> Option<NonNull<T>> {
        pointer(read(&self.word))
    }

    /// Frees the container's block, if it has one. Fails, and changes nothing, if the thread cannot become a task of
    /// the region.
    ///
    /// # Safety
    /// The block contains nothing that must be dropped, and is not used afterwards.
    pub(in crate::region) unsafe fn free_block(&mut self) -> Result<(), StorageError> {
        let Some(block) = self.block() else {
            return Ok(());
        };
        // SAFETY: `&mut self` is exclusive, and the caller guarantees that the block is not used afterwards.
        unsafe { heap::unlink_and_free(self.region, &self.word, block) }
    }

    /// Whether the container lies in its region, according to the table of mapped regions.
    #[inline]
    fn is_inside(&self) -> bool {
        region_id::is_inside(self.region, ptr::from_ref(&self.word).addr())
    }

    /// Keeps the region mapped while a method of the container runs, including the user's code that it calls.
    ///
    /// # Panics
    /// If the container has a block, and this process has not mapped its region.
    #[inline]
    pub(in crate::region) fn guard(&self) -> MappingGuard {
        if self.is_inside() {
            return MappingGuard(None);
        }
        self.try_guard().unwrap_or_else(|| not_mapped(self.region))
    }

    /// Like [`Self::guard`]; `None` if the container has a block that this process has not mapped: such a container can
    /// only be leaked.
    #[inline(never)]
    pub(in crate::region) fn try_guard(&self) -> Option<MappingGuard> {
        if self.is_inside() {
            return Some(MappingGuard(None));
        }
        let region = borrowed::region_of(self.region);
        (region.is_some() || read(&self.word) == 0).then_some(MappingGuard(region))
    }

    /// Keeps the region mapped for as long as the container can be borrowed.
    ///
    /// # Panics
    /// As for [`Self::guard`].
    #[inline]
    pub(in crate::region) fn keep_mapped(&self) {
        let block = read(&self.word);
        if block != 0 && !self.is_inside() && !borrowed::contains(self.region, block) {
            self.keep_from_outside(block);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_from_outside(&self, block: usize) {
        match borrowed::region_of(self.region) {
            // The container is inside, but its region did not fit in the table of mapped regions.
            Some(region)
                if region
                    .addresses()
                    .contains(&ptr::from_ref(&self.word).addr()) => {}
            Some(region) => borrowed::insert(region, block),
            None => not_mapped(self.region),
        }
    }
}

impl Drop for Anchor {
    /// Comes after the container's own drop, even if that panics, and whether or not it has freed the blocks. The
    /// container leads to no block and belongs to no region from here on: if another one is assigned to its place, a
    /// kill in between leaves no mixture of the two.
    fn drop(&mut self) {
        commit(&self.word, 0);
        // SAFETY: a reference. Volatile: the store is done although the place is never read as this container again.
        unsafe { ptr::from_mut(&mut self.region).write_volatile(RegionId::NONE) };
        compiler_fence(Ordering::SeqCst);
    }
}

/// A region that stays mapped while this exists.
#[must_use]
pub(in crate::region) struct MappingGuard(
    #[expect(dead_code, reason = "it is held, not read")] Option<Arc<Inner>>,
);

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
