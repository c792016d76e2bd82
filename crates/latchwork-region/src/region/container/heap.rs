//! How a container uses the heap of its region: allocating blocks, and linking and freeing them in one step.
#![allow(unsafe_code)]

use super::super::heap::TaskRef;
use super::super::region_id::RegionId;
use super::super::word::{address, commit};
use super::super::{AttachError, Inner, Relocatable, Shareable, StorageError};
use super::borrowed;
use crate::atomic::AtomicUsize;
use crate::task::Me;
use core::alloc::Layout;
use core::ptr::{self, NonNull};

/// The heap of a container's region, with the calling thread as its task.
pub(in crate::region) struct ContainerHeap<'r> {
    pub(in crate::region) region: &'r Inner,
    task: TaskRef<'r>,
}

/// Runs `step` on the heap of the region of this ID. `step` must not run the user's code, which could end the
/// thread's attachment to the region.
#[inline]
pub(in crate::region) fn with_heap<R>(
    id: RegionId,
    step: impl FnOnce(&ContainerHeap<'_>) -> Result<R, StorageError>,
) -> Result<R, StorageError> {
    let me = Me::get().map_err(AttachError::from)?;
    let base = id.base();
    let Some(attachment) = me.attachments().find(|attachment| attachment.base == base) else {
        return with_heap_at_first_use(id, me, step);
    };
    // SAFETY: an attachment's context is its region, which it keeps mapped; `step` does not detach.
    let region: &Inner = unsafe { attachment.context.cast().as_ref() };
    if region.id != id {
        return Err(StorageError::NotMapped);
    }
    let task = region.task_of(&attachment);
    me.rely_on_attachment(|| {
        let task = task.heap_task();
        step(&ContainerHeap { region, task })
    })
}

#[cold]
fn with_heap_at_first_use<R>(
    id: RegionId,
    me: Me,
    step: impl FnOnce(&ContainerHeap<'_>) -> Result<R, StorageError>,
) -> Result<R, StorageError> {
    let region = borrowed::region_of(id).ok_or(StorageError::NotMapped)?;
    let task = region.task()?;
    me.rely_on_attachment(|| {
        let (region, task) = (&*region, task.heap_task());
        step(&ContainerHeap { region, task })
    })
}

impl ContainerHeap<'_> {
    /// Allocates a block that is private to the calling task.
    pub(in crate::region) fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, StorageError> {
        Ok(self.region.heap.alloc(&self.task, layout)?)
    }

    /// Refuses values that may not lie in this region.
    #[inline]
    pub(in crate::region) fn accept<T: Shareable>(&self) -> Result<(), StorageError> {
        if T::NAMES_THREADS && self.region.spans_pid_namespaces() {
            return Err(StorageError::NamesThreads);
        }
        Ok(())
    }

    /// Frees a block that no word leads to.
    ///
    /// # Safety
    /// The block belongs to the caller, and is not used any more.
    pub(in crate::region) unsafe fn free(&self, block: NonNull<u8>) {
        crate::hook::freed(|| self.region.heap.addresses_of(block));
        // SAFETY: the caller guarantees that the block belongs to it and is not used any more.
        unsafe { self.region.heap.free(&self.task, block) };
        borrowed::block_freed(self.region.id, block.addr().get());
    }

    /// Stores `value` in `location`, which makes `new` reachable (and shared from then on) and `old` unreachable (and
    /// frees it), as if in one step.
    ///
    /// # Safety
    /// Only the calling task stores to `location` meanwhile, since it owns `location` or holds the robust lock that
    /// protects it; both blocks belong to the container of `location`, and `old` is not used afterwards.
    pub(in crate::region) unsafe fn link(
        &self,
        location: &AtomicUsize,
        value: usize,
        new: Option<NonNull<u8>>,
        old: Option<NonNull<u8>>,
    ) {
        let heap = &self.region.heap;
        if let Some(old) = old {
            crate::hook::freed(|| heap.addresses_of(old));
        }
        let is_inside = |word: usize| self.region.addresses().contains(&word);
        // SAFETY: the caller guarantees that both blocks are the container's, that `old` is not used afterwards, and
        // that only this task stores to `location`. In the region, a robust lock settles the heap of a dead holder
        // before it passes on. Elsewhere, the documentation of `container` explains the order.
        unsafe {
            if is_inside(ptr::from_ref(location).addr()) {
                heap.replace(&self.task, old, new, location, value);
            } else {
                if let Some(new) = new {
                    heap.keep(new);
                }
                commit(location, value);
                if let Some(old) = old {
                    heap.free(&self.task, old);
                }
            }
        }
        if let Some(old) = old {
            borrowed::block_freed(self.region.id, old.addr().get());
        }
    }
}

/// Allocates a block for what `make` returns, and stores its address in `word`, which makes it reachable. Fails, and
/// calls nothing, if the region has no room or the thread cannot become a task of it.
///
/// # Safety
/// As for [`ContainerHeap::link`]: only the calling task stores to `word`, which leads to no block that is not reachable
/// otherwise. `make` does not run the user's code.
#[inline]
pub(in crate::region) unsafe fn add<T>(
    id: RegionId,
    word: &AtomicUsize,
    make: impl FnOnce() -> T,
) -> Result<NonNull<T>, StorageError> {
    with_heap(id, |heap| {
        let block = heap.alloc(Layout::new::<T>())?;
        // SAFETY: a block of the layout that no other task knows; the caller guarantees the contract of `link`.
        unsafe {
            block.cast().write(make());
            heap.link(word, address(block), Some(block), None);
        }
        Ok(block.cast())
    })
}

/// Stores 0 in `word`, and frees the block that it leads to, as if in one step. Fails, and changes nothing, if the
/// thread cannot become a task of the region.
///
/// # Safety
/// As for [`ContainerHeap::link`]: only the calling task stores to `word`, and the block, which `word` leads to, is not
/// used afterwards.
pub(in crate::region) unsafe fn unlink_and_free(
    id: RegionId,
    word: &AtomicUsize,
    block: NonNull<u8>,
) -> Result<(), StorageError> {
    with_heap(id, |heap| {
        // SAFETY: the caller guarantees the contract of `link`.
        unsafe { heap.link(word, 0, None, Some(block)) };
        Ok(())
    })
}

/// Settles values that a container is about to move: see [`Relocatable::settle`].
///
/// # Safety
/// The caller has exclusive access to that many values from this place on.
#[inline]
pub(in crate::region) unsafe fn settle<T: Relocatable>(first: NonNull<T>, count: usize) {
    if T::SETTLES {
        for index in 0..count {
            // SAFETY: the caller guarantees it.
            unsafe { T::settle(first.add(index).as_ptr()) };
        }
    }
}
