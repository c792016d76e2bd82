//! The ground that containers stand on: the heap of the region that they were made for.
//!
//! A container contains its region's *home* (see [`homes`]) and no handle, which would mean nothing to another
//! process. So each operation that needs the heap finds the calling thread's attachment by the home; that is one
//! comparison for a thread that uses one region.
//!
//! **Blocks and links.** Until a block is linked, it is private to the task that allocated it, and freed if the task
//! dies. If the word that links it lies in the region, the heap's intent record makes linking and sharing one step.
//! If the word lies elsewhere (in a container that is still on a task's stack), no task could read it after the
//! task's death: then the block is shared first, and a kill before the container has reached the region leaks it.
//! This is unavoidable: a container moves into the region by a plain copy, of which the heap is not informed, so its
//! blocks must be safe to find at any moment.
//!
//! **Outside.** By such a plain copy a container can also get onto a stack, or into another region than its own, and
//! its region may be unmapped first. So each method *holds* the region first ([`hold`]), which costs nothing if the
//! container lies in it, and a method that lends a reference *lends* the container's block ([`lend`]), which keeps
//! the region mapped until the block is freed. If the region is not mapped, both panic.
#![allow(unsafe_code)]

use super::heap::{AllocError, Heap, TaskRef};
use super::{AttachError, Inner, Region, homes};
use crate::atomic::{AtomicUsize, Ordering, compiler_fence};
use crate::task::Me;
use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};
use std::sync::Arc;

/// Why a container could not allocate memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The thread cannot become a task of the container's region.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The region or the system has no room.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// More elements than a container can count (2³² − 2).
    #[error("a container has at most 2^32 - 2 elements")]
    TooLong,
    /// The container is outside its region, which this process has not attached, or not any more.
    #[error("the container's region is not mapped in this process")]
    NotMapped,
}

/// The value for which a container had no room, and the reason.
pub struct PushError<T> {
    /// The value.
    pub value: T,
    /// The reason.
    pub error: StorageError,
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PushError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl<T> core::error::Error for PushError<T> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<T> From<PushError<T>> for StorageError {
    /// Drops the value.
    fn from(error: PushError<T>) -> Self {
        error.error
    }
}

/// The number by which a container names its region.
pub(super) fn home(region: &Region) -> usize {
    region.inner.home
}

/// The calling task in the heap of one region.
pub(super) struct Ground<'r> {
    region: &'r Inner,
    task: TaskRef<'r>,
}

/// Runs `step` on the ground of the region of `home`. `step` must not run the user's code, which could end the
/// thread's attachment to the region.
#[inline]
pub(super) fn at<R>(
    home: usize,
    step: impl FnOnce(&Ground<'_>) -> Result<R, StorageError>,
) -> Result<R, StorageError> {
    let me = Me::get().map_err(AttachError::from)?;
    let base = homes::base_of(home);
    let Some(attachment) = me.attachments().find(|attachment| attachment.base == base) else {
        return at_first_use(home, me, step);
    };
    // SAFETY: an attachment's context is its region, which it keeps mapped; `step` does not detach.
    let region: &Inner = unsafe { attachment.context.cast().as_ref() };
    if region.home != home {
        return Err(StorageError::NotMapped);
    }
    let task = region.task_of(&attachment);
    me.rely_on_attachment(|| {
        step(&Ground {
            region,
            task: task.heap_task(),
        })
    })
}

#[cold]
fn at_first_use<R>(
    home: usize,
    me: Me,
    step: impl FnOnce(&Ground<'_>) -> Result<R, StorageError>,
) -> Result<R, StorageError> {
    let region = homes::find(home).ok_or(StorageError::NotMapped)?;
    let task = region.task()?;
    me.rely_on_attachment(|| {
        step(&Ground {
            region: &region,
            task: task.heap_task(),
        })
    })
}

impl Ground<'_> {
    pub(super) fn heap(&self) -> &Heap {
        &self.region.heap
    }

    /// Allocates a block that is private to the calling task.
    pub(super) fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, StorageError> {
        Ok(self.region.heap.alloc(&self.task, layout)?)
    }

    /// Frees a block that no word leads to.
    ///
    /// # Safety
    /// The block belongs to the caller, and is not used any more.
    pub(super) unsafe fn free(&self, block: NonNull<u8>) {
        crate::hook::freed(|| self.region.heap.addresses_of(block));
        // SAFETY: the caller guarantees that the block belongs to it and is not used any more.
        unsafe { self.region.heap.free(&self.task, block) };
        homes::freed(self.region.home, block.addr().get());
    }

    /// Stores `value` in `location`, which makes `new` reachable (and shared from then on) and `old` unreachable (and
    /// frees it), as if in one step.
    ///
    /// # Safety
    /// Only the calling task stores to `location` meanwhile, since it owns `location` or holds the robust lock that
    /// protects it; both blocks belong to the container of `location`, and `old` is not used afterwards.
    pub(super) unsafe fn link(
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
        if !self
            .region
            .addresses()
            .contains(&ptr::from_ref(location).addr())
        {
            // SAFETY: the caller guarantees that both blocks are the container's, and that `old` is not used
            // afterwards. The module's documentation explains the order.
            unsafe {
                if let Some(new) = new {
                    heap.keep(new);
                }
                commit(location, value);
                if let Some(old) = old {
                    heap.free(&self.task, old);
                    homes::freed(self.region.home, old.addr().get());
                }
            }
            return;
        }
        // SAFETY: the caller guarantees that only this task stores to `location`; a robust lock of this region
        // settles the heap of a dead holder before it passes on.
        unsafe {
            match (new, old) {
                (Some(new), Some(old)) => heap.replace(&self.task, old, new, location, value),
                (Some(new), None) => heap.publish(&self.task, new, location, value),
                (None, Some(old)) => heap.retire(&self.task, old, location, value),
                (None, None) => commit(location, value),
            }
        }
        if let Some(old) = old {
            homes::freed(self.region.home, old.addr().get());
        }
    }
}

/// A store whose place in program order is kept: if a kill comes after it, all earlier stores are done; if a kill
/// comes before it, no later store is.
#[inline]
pub(super) fn commit(word: &AtomicUsize, value: usize) {
    compiler_fence(Ordering::SeqCst);
    // Relaxed: other tasks see it through the lock that protects the container.
    word.store(value, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Reads a word of a container. Relaxed: the lock that protects the container orders it.
#[inline]
pub(super) fn read(word: &AtomicUsize) -> usize {
    word.load(Ordering::Relaxed)
}

/// The target of a word of a container.
#[inline]
pub(super) fn pointer<T>(address: usize) -> Option<NonNull<T>> {
    NonNull::new(ptr::with_exposed_provenance_mut(address))
}

/// The target of a word of the region itself, inside the region.
pub(super) fn reach_within(word: &AtomicUsize) -> Option<NonNull<u8>> {
    pointer(read(word))
}

/// Keeps the region of a container mapped while one of its methods runs, including the user's code that it calls.
///
/// # Panics
/// If the container has a block, and this process has not mapped its region.
#[inline]
pub(super) fn hold(home: usize, word: &AtomicUsize) -> Hold {
    if homes::is_inside(home, ptr::from_ref(word).addr()) {
        return Hold(None);
    }
    try_hold(home, word).unwrap_or_else(|| not_here(home))
}

/// Like [`hold`]; `None` if the container has a block that is not mapped here: such a container can only be leaked.
#[inline(never)]
pub(super) fn try_hold(home: usize, word: &AtomicUsize) -> Option<Hold> {
    if homes::is_inside(home, ptr::from_ref(word).addr()) {
        return Some(Hold(None));
    }
    let region = homes::find(home);
    (region.is_some() || read(word) == 0).then_some(Hold(region))
}

/// A region that stays mapped while this exists.
#[must_use]
pub(super) struct Hold(
    #[expect(dead_code, reason = "what counts is that it is there")] Option<Arc<Inner>>,
);

/// Keeps the region of a container mapped for as long as the container can be borrowed.
///
/// # Panics
/// As for [`hold`].
#[inline]
pub(super) fn lend(home: usize, word: &AtomicUsize) {
    let block = read(word);
    let stays = block == 0
        || homes::is_inside(home, ptr::from_ref(word).addr())
        || homes::is_lent(home, block);
    if !stays {
        lend_from_outside(home, word, block);
    }
}

#[cold]
#[inline(never)]
fn lend_from_outside(home: usize, word: &AtomicUsize, block: usize) {
    match homes::find(home) {
        // The container is inside, but its region did not fit in the table of homes.
        Some(region) if region.addresses().contains(&ptr::from_ref(word).addr()) => {}
        Some(region) => homes::lend(region, block),
        None => not_here(home),
    }
}

#[cold]
#[inline(never)]
fn not_here(home: usize) -> ! {
    let base = homes::base_of(home);
    panic!("the container belongs to a region at {base:#x}, which this process has not attached")
}

/// The word that leads to a block.
#[inline]
pub(super) fn address<T>(block: NonNull<T>) -> usize {
    block.as_ptr().expose_provenance()
}

/// Drops a value in place and clears the bits of `part` in `stage` afterwards, even if the drop panics. After a kill
/// in between, the drop is repeated, which `TornSafe` allows: an interrupted drop leaves a valid value.
///
/// # Safety
/// `stage` says whether there is a value at `place`; no other task uses it.
pub(super) unsafe fn drop_part<T>(stage: &AtomicUsize, part: usize, place: *mut T) {
    struct Gone<'a>(&'a AtomicUsize, usize);
    impl Drop for Gone<'_> {
        fn drop(&mut self) {
            commit(self.0, read(self.0) & !self.1);
        }
    }
    if read(stage) & part != 0 {
        let _gone = Gone(stage, part);
        // SAFETY: `stage` says that there is a value, and the caller guarantees that no other task uses it.
        unsafe { place.drop_in_place() };
    }
}
