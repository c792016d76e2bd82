//! What containers stand on: the heap of the region that they were made for.
//!
//! A container knows its region's *home* (see [`homes`]) and nothing else; a handle would mean nothing
//! to another process. So each operation that needs the heap finds the calling thread's attachment
//! by that, which is a comparison for a thread that uses one region.
//!
//! **Blocks and links.** A block is private to the task that allocated it, and freed if the task
//! dies, until it is linked. Where the word that links it lies in the region, the heap's intent
//! record makes linking and sharing one step. Where it lies elsewhere (in a container that is still
//! on a task's stack), nobody could look at the word after the task's death: the block is shared
//! first, and a kill before the container has reached the region leaks it. It cannot be otherwise:
//! a container moves into the region by a plain copy, of which the heap learns nothing, so
//! its blocks must be safe to find at any moment.
//!
//! **Outside.** By the same plain copy a container can get onto a stack, or into another region than its
//! own, and its region may go before it. So each method *holds* the region first ([`hold`]), which takes
//! nothing if the container lies in it, and what lends a reference *lends* the container's block ([`lend`]),
//! which keeps the region mapped until the block goes. Where the region is not mapped, both panic.
#![allow(unsafe_code)]

use super::heap::{AllocError, Heap, TaskRef};
use super::{AttachError, Inner, Region, homes};
use crate::atomic::{AtomicUsize, Ordering, compiler_fence};
use crate::task::Me;
use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};
use std::sync::Arc;

/// Why a container could not get memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The thread cannot become a task of the container's region.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The region has no room.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// More elements than a container can count (2³² − 2).
    #[error("a container has at most 2^32 - 2 elements")]
    TooLong,
    /// The container is outside of its region, which this process has not attached, or no longer.
    #[error("the container's region is not mapped in this process")]
    NotMapped,
}

/// What a container had no room for, given back.
pub struct PushError<T> {
    /// What was to go in.
    pub value: T,
    /// Why it did not.
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

/// How a container names its region.
pub(super) fn home(region: &Region) -> usize {
    region.inner.home
}

/// The calling task in the heap of one region.
pub(super) struct Ground<'r> {
    region: &'r Inner,
    task: TaskRef<'r>,
}

/// Runs `step` on the ground of the region at `home`. It must not run code of the user's, which
/// could end the thread's part in the region.
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
    // SAFETY: an attachment's context is its region, which it keeps; `step` does not detach.
    let region: &Inner = unsafe { attachment.context.cast().as_ref() };
    if region.home != home {
        return Err(StorageError::NotMapped);
    }
    let task = region.task_of(&attachment);
    me.lean(|| {
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
    me.lean(|| {
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

    /// A block that is private to the calling task.
    pub(super) fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, StorageError> {
        Ok(self.region.heap.alloc(&self.task, layout)?)
    }

    /// Frees a block that no word leads to.
    ///
    /// # Safety
    /// It belongs to the caller, and nobody uses it any more.
    pub(super) unsafe fn free(&self, block: NonNull<u8>) {
        crate::hook::freed(|| self.region.heap.addresses_of(block));
        // SAFETY: by the caller's contract.
        unsafe { self.region.heap.free(&self.task, block) };
        homes::freed(self.region.home, block.addr().get());
    }

    /// Stores `value` in `location`, by which `new` becomes reachable (and is shared from then on)
    /// and `old` ceases to be (and is freed), as if in one step.
    ///
    /// # Safety
    /// Only the calling task stores to `location` meanwhile, by its own right or by that of a robust
    /// lock; both blocks belong to the container of `location`, and nobody uses `old` afterwards.
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
            // SAFETY: by the caller's contract. See the module comment for the order.
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
        // SAFETY: by the caller's contract; a robust lock of this region settles the heap of a
        // dead holder before it passes on.
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

/// A store that a kill must find after all that precedes it, and before all that follows.
#[inline]
pub(super) fn commit(word: &AtomicUsize, value: usize) {
    compiler_fence(Ordering::SeqCst);
    // Relaxed: other tasks see it through the lock that gives them the container.
    word.store(value, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// A word of a container. Relaxed: the lock that gives the container orders it.
#[inline]
pub(super) fn read(word: &AtomicUsize) -> usize {
    word.load(Ordering::Relaxed)
}

/// What a word of a container leads to.
#[inline]
pub(super) fn pointer<T>(address: usize) -> Option<NonNull<T>> {
    NonNull::new(ptr::with_exposed_provenance_mut(address))
}

/// What a word of the region itself leads to, within it.
pub(super) fn reach_within(word: &AtomicUsize) -> Option<NonNull<u8>> {
    pointer(read(word))
}

/// Keeps the region of a container mapped while one of its methods runs, the user's code included.
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

/// As [`hold`]; `None` if the container has a block that is not mapped here: it can only be leaked.
#[inline(never)]
pub(super) fn try_hold(home: usize, word: &AtomicUsize) -> Option<Hold> {
    if homes::is_inside(home, ptr::from_ref(word).addr()) {
        return Some(Hold(None));
    }
    let region = homes::find(home);
    (region.is_some() || read(word) == 0).then_some(Hold(region))
}

/// A region that stays mapped.
#[must_use]
pub(super) struct Hold(
    #[expect(dead_code, reason = "what counts is that it is there")] Option<Arc<Inner>>,
);

/// Keeps the region of a container mapped for as long as anybody can borrow from it.
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
        // It is inside, and there was no room to note where the region is.
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

/// Drops a value in place and says so in `stage`, even if the drop panics: the bits of `part` are
/// cleared once the value is gone. Killed in between, the drop is repeated, which `TornSafe` allows:
/// an interrupted drop leaves a valid value.
///
/// # Safety
/// `stage` says whether the value at `place` is there; nobody else uses it.
pub(super) unsafe fn drop_part<T>(stage: &AtomicUsize, part: usize, place: *mut T) {
    struct Gone<'a>(&'a AtomicUsize, usize);
    impl Drop for Gone<'_> {
        fn drop(&mut self) {
            commit(self.0, read(self.0) & !self.1);
        }
    }
    if read(stage) & part != 0 {
        let _gone = Gone(stage, part);
        // SAFETY: by the caller's contract.
        unsafe { place.drop_in_place() };
    }
}
