//! What containers stand on: the heap of the region that they were made for.
//!
//! A container knows the base address of its region and nothing else; a handle would mean nothing
//! to another process. So each operation that needs the heap finds the calling thread's attachment
//! by that address, which is a comparison for a thread that uses one region.
//!
//! **Blocks and links.** A block is private to the task that allocated it, and freed if the task
//! dies, until it is linked. Where the word that links it lies in the region, the heap's intent
//! record makes linking and sharing one step. Where it lies elsewhere (in a container that is still
//! on a task's stack), nobody could look at the word after the task's death: the block is shared
//! first, and a kill before the container has reached the region leaks it. It cannot be otherwise:
//! a container moves into the region by a plain copy, of which the heap learns nothing, so
//! its blocks must be safe to find at any moment.
//!
//! **Abroad.** By the same plain copy a container can get into another region than its own. To tasks
//! that have both it is as good as ever; others must not follow its pointers. So whoever follows one
//! asks first whether the container's region is one that this process will have mapped until it ends
//! ([`registry::is_home`]).
#![allow(unsafe_code)]

use super::heap::{AllocError, Heap, TaskRef};
use super::{AttachError, Inner, Region, registry};
use crate::atomic::{AtomicUsize, Ordering, compiler_fence};
use crate::task::Me;
use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};

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
    /// The container was moved to another region, and this process has not attached its own.
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

/// How a container names its region, which from here on stays mapped: see `make_lasting`.
pub(super) fn home(region: &Region) -> usize {
    region.inner.make_lasting();
    region.inner.base().addr().get()
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
    let Some(attachment) = me.attachments().find(|attachment| attachment.base == home) else {
        return at_first_use(home, step);
    };
    // SAFETY: an attachment's context is its region, which it keeps; `step` does not detach.
    let region: &Inner = unsafe { attachment.context.cast().as_ref() };
    let task = region.task_of(&attachment);
    step(&Ground {
        region,
        task: task.heap_task(),
    })
}

#[cold]
fn at_first_use<R>(
    home: usize,
    step: impl FnOnce(&Ground<'_>) -> Result<R, StorageError>,
) -> Result<R, StorageError> {
    let region = Inner::containing(home).ok_or(StorageError::NotMapped)?;
    let task = region.task()?;
    step(&Ground {
        region: &region,
        task: task.heap_task(),
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

/// What a word of a container leads to.
///
/// A container can get into another region than its own, whose tasks need not have mapped that one.
///
/// # Panics
/// If there is something, and this process has not mapped the container's region, `home`.
#[inline]
pub(super) fn reach<T>(home: usize, word: &AtomicUsize) -> Option<NonNull<T>> {
    let there = pointer(read(word))?;
    if !registry::is_home(home) {
        not_here(home);
    }
    Some(there)
}

#[cold]
#[inline(never)]
fn not_here(home: usize) -> ! {
    panic!("the container belongs to the region at {home:#x}, which this process has not attached")
}

/// Whether a container can be taken apart here; if not, it is leaked.
pub(super) fn is_here(home: usize, word: &AtomicUsize) -> bool {
    read(word) == 0 || registry::is_home(home)
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
