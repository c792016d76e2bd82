//! A handle on a region, and what a program does through it.
#![allow(unsafe_code)]

use super::heap::{Corruption, HeapStats};
use super::{AttachError, Inner, ObjectError, Orphans, Shareable};
use crate::atomic::Ordering;
use crate::task::{Me, TaskError};
use core::alloc::Layout as MemoryLayout;
use core::fmt;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use rustix::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

/// A handle on a region, made by [`RegionOptions`](super::RegionOptions); clones refer to the same mapping. The
/// [module](super) has an example.
///
/// The mapping stays until the last handle and the last thread that used the region are gone. Every thread that uses
/// a region becomes a *task* of it at its first use. The thread leaves the region when it ends or, if the process has
/// no handle on the region any more, when it becomes a task of another region; [`Self::detach`] leaves explicitly.
///
/// A container that was taken out of the region, or not yet placed in it, borrows from no handle. Its methods find
/// the region as long as it is mapped, and panic afterwards; a container that is dropped after that is leaked. Once a
/// reference into a container was handed out (a slice, an element, an iterator), the container keeps the region mapped
/// until it is dropped or grows.
///
/// In the child of a fork the mapping persists (it is shared), and the child's thread becomes a task of its own at
/// its first use of a handle. Using only references does not make it a task, and then its death wakes no waiter; see
/// [`Self::join`]. A thread that ends while it owns a semaphore does not leave: its end
/// counts as its death. What lends references to data (a robust lock, a message in flight) stays its process's until that
/// ends.
///
/// A process can have at most 4096 regions mapped, with a descriptor for each. A thread can be a task of at most 128
/// regions at a time, not counting those without a handle.
///
/// ```
/// use latchwork::mutex::Mutex;
/// use latchwork::region::{Region, RegionOptions};
///
/// fn count(region: &Region) -> Result<u64, Box<dyn std::error::Error>> {
///     // Made by the first call, found by the others, in this process or in another one.
///     let count = region.object("count", || Mutex::in_region(0_u64))?;
///     let mut count = count.lock().map_err(|error| error.to_string())?;
///     *count += 1;
///     Ok(*count)
/// }
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// assert_eq!((count(&region)?, count(&region)?), (1, 2));
/// region.detach()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Region {
    pub(super) inner: Arc<Inner>,
}

impl Clone for Region {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inner))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.inner.handles.fetch_sub(1, Ordering::Relaxed);
        self.inner.use_ends();
    }
}

/// Why a thread could not leave a region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// The thread holds locks or semaphores of the region, or has messages in flight.
    #[error(
        "the thread holds {locks} robust locks and semaphores of the region, and has {messages} messages in flight"
    )]
    Holding {
        /// The number of robust locks that the thread holds, and semaphores that it owns.
        locks: usize,
        /// The number of messages that it received and neither finished nor returned.
        messages: usize,
        /// The handle.
        region: Region,
    },
    /// The thread's own record cannot be made.
    #[error(transparent)]
    Task(TaskError),
}

impl Region {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        // Relaxed: see `detach_unused`.
        inner.handles.fetch_add(1, Ordering::Relaxed);
        inner.use_begins();
        Self { inner }
    }

    /// First address of the region, the same in every task.
    #[must_use]
    pub fn base(&self) -> *const u8 {
        self.inner.base().as_ptr()
    }

    /// The maximum size of the heap in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.inner.identity.max_bytes
    }

    /// The label that [`RegionOptions::label`](super::RegionOptions::label) gave, or the region's name.
    #[must_use]
    pub fn label(&self) -> String {
        self.inner.identity.label()
    }

    /// The path of a named region's file; `None` for an anonymous region.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The memory file, to be passed to another process, which attaches it with
    /// [`RegionOptions::attach_file`](super::RegionOptions::attach_file). The caller must neither write nor truncate
    /// it, nor change its lock (`flock`): see [what safety rests on](super#what-safety-rests-on). A copy of the descriptor
    /// has the same lock. If the lock is given up, the region looks unused: another process that attaches it then
    /// resets the slots of tasks that are at work, and `gc` removes its name.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }

    /// Makes the calling thread a task of the region now, instead of at its first use, under a name of at most 32
    /// bytes that `latchwork ps` shows.
    ///
    /// # Errors
    /// [`AttachError::TaskTableFull`], [`AttachError::TooManyAttachments`], [`AttachError::Task`], [`AttachError::Validating`].
    pub fn join(&self, name: &str) -> Result<(), AttachError> {
        self.inner.task()?.slot.set_name(name);
        Ok(())
    }

    /// Ends the calling thread's membership of the region, instead of at its exit, and drops this handle.
    ///
    /// # Errors
    /// [`DetachError::Holding`] if the thread holds robust locks of the region (unmapping them would leave dangling
    /// entries in its robust list), owns semaphores of it, or has messages of its queues in flight.
    pub fn detach(self) -> Result<(), DetachError> {
        let me = Me::get().map_err(DetachError::Task)?;
        let base = self.inner.base().addr().get();
        let attachment = me.attachments().find(|attachment| attachment.base == base);
        // A thread that has used only references holds locks without being a task.
        let (mut locks, mut messages) = (self.inner.locks_held(me), 0);
        if let Some(attachment) = &attachment {
            let slot = self.inner.task_of(attachment).slot;
            locks += slot.wait.standing.held() as usize;
            messages = slot.messages() as usize;
        }
        if locks != 0 || messages != 0 {
            return Err(DetachError::Holding {
                locks,
                messages,
                region: self,
            });
        }
        if let Some(attachment) = attachment {
            // SAFETY: this thread's attachment, which the callback forgets.
            unsafe { (attachment.detach)(attachment.context, attachment.slot) };
        }
        Ok(())
    }

    /// Sets what happens, at the calling task's death, to the blocks that only this task knows. By default they are
    /// freed.
    ///
    /// # Errors
    /// As for [`Self::join`].
    pub fn on_death(&self, orphans: Orphans) -> Result<(), AttachError> {
        let slot = self.inner.task()?.slot;
        // Relaxed: read after this task's death.
        slot.orphans.store(orphans as u8, Ordering::Relaxed);
        Ok(())
    }

    /// Allocates a block for the calling task. The block is freed when the task dies, unless it was kept
    /// ([`Self::on_death`], [`Self::keep`]) or linked by a container. If the task leaves in good order (its thread ends,
    /// it [detaches](Self::detach), or it calls `exit`), the block stays until a task frees it.
    ///
    /// # Errors
    /// [`ObjectError::Alloc`] if the region is full or the system has no memory,
    /// [`ObjectError::Attach`] if the thread cannot become a task.
    #[inline]
    pub fn allocate(&self, layout: MemoryLayout) -> Result<NonNull<u8>, ObjectError> {
        match self.allocate_quick(layout) {
            Some(block) => Ok(block),
            None => self.allocate_slow(layout),
        }
    }

    // Each quick part is a leaf function, so that it need not save registers.

    #[inline(never)]
    fn allocate_quick(&self, layout: MemoryLayout) -> Option<NonNull<u8>> {
        let task = self.inner.first_attached_task()?;
        self.inner.heap.alloc_quick(&task.heap_task(), layout)
    }

    #[cold]
    fn allocate_slow(&self, layout: MemoryLayout) -> Result<NonNull<u8>, ObjectError> {
        let task = self.inner.task()?;
        Ok(self.inner.heap.alloc(&task.heap_task(), layout)?)
    }

    /// Frees a block, whichever task allocated it. Aborts the process, with one line on standard error, if `block` is
    /// not the address of an allocated block.
    ///
    /// # Safety
    /// The block is not used any more.
    ///
    /// # Errors
    /// If the thread cannot become a task.
    #[inline]
    pub unsafe fn deallocate(&self, block: NonNull<u8>) -> Result<(), AttachError> {
        crate::hook::freed(|| self.inner.heap.addresses_of(block));
        // SAFETY: the caller guarantees that the block is not used any more.
        unsafe {
            if self.deallocate_quick(block) {
                return Ok(());
            }
            self.deallocate_slow(block)
        }
    }

    /// # Safety
    /// As for [`Self::deallocate`].
    #[inline(never)]
    unsafe fn deallocate_quick(&self, block: NonNull<u8>) -> bool {
        self.inner.first_attached_task().is_some_and(|task| {
            // SAFETY: the caller guarantees that the block is not used any more.
            unsafe { self.inner.heap.free_quick(&task.heap_task(), block) }
        })
    }

    /// # Safety
    /// As for [`Self::deallocate`].
    #[cold]
    unsafe fn deallocate_slow(&self, block: NonNull<u8>) -> Result<(), AttachError> {
        let task = self.inner.task()?;
        // SAFETY: the caller guarantees that the block is not used any more.
        unsafe { self.inner.heap.free(&task.heap_task(), block) };
        Ok(())
    }

    /// Makes a block outlive the task that allocated it.
    ///
    /// # Safety
    /// The block is not freed meanwhile.
    pub unsafe fn keep(&self, block: NonNull<u8>) {
        // SAFETY: the caller guarantees that the block is not freed meanwhile.
        unsafe { self.inner.heap.keep(block) };
    }

    /// Statistics of the heap at this moment.
    #[must_use]
    pub fn heap_stats(&self) -> HeapStats {
        self.inner.heap.stats()
    }

    /// Checks the heap's invariants, for tests and for regions suspected of damage.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check_heap(&self) -> Result<(), Corruption> {
        self.inner.heap.check()
    }

    /// Pins a named object that the caller has as a plain reference, such as a coproc's argument. Its robust locks
    /// can then be used.
    ///
    /// This is sound since a named object never moves: safe code never gets a `&mut` to it. That is not true of other
    /// values in a region: a value behind a lock, for instance, can be moved by `mem::replace`. For the *parts* of an
    /// object there are [`PinnedFields`](super::PinnedFields) and [`each_pinned`](super::each_pinned); for elements of
    /// containers, [`HashMap::get_pin`](super::HashMap::get_pin), [`List::iter_pin`](super::List::iter_pin) and
    /// [`Box::as_pin`](super::Box::as_pin).
    ///
    /// Searches the directory, O(names).
    ///
    /// # Panics
    /// If `object` is not a whole named object of the region.
    #[must_use]
    pub fn pin<'a, T: Shareable>(&'a self, object: &'a T) -> Pin<&'a T> {
        assert!(
            self.is_object(object),
            "the value at {:#x} is no named object of this region",
            ptr::from_ref(object).addr()
        );
        // SAFETY: a named object of this type. It is given out as a shared, pinned reference only, and dropped in its
        // place, by `remove`, which is unsafe.
        unsafe { Pin::new_unchecked(object) }
    }

    #[doc(hidden)]
    pub fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Region")
            .field("label", &self.label())
            .field("base", &self.base())
            .field("max_bytes", &self.max_bytes())
            .finish_non_exhaustive()
    }
}
