//! Heap blocks that pass from task to task through a word of the region.
//!
//! A robust lock protects the word, so that a dead holder's heap is settled before the next holder reads the word (or one
//! process alone changes the word, and others read it after they have swept): whenever a task is killed, each step here has
//! happened or has not.
#![allow(unsafe_code)]

use super::heap::AllocError;
use super::word::{address, pointer, read};
use super::{Inner, Task, boxed::Box};
use crate::atomic::AtomicUsize;
use crate::sys::memory;
use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

impl Inner {
    /// Stores the address of a private block in `word`; the block is shared from then on.
    ///
    /// # Safety
    /// The word lies in the region, and is protected by a robust lock that `task` holds, or no other process stores to it
    /// until `task` has returned or was swept; the block belongs to the caller.
    pub unsafe fn publish_block(&self, task: Task<'_>, block: NonNull<u8>, word: &AtomicUsize) {
        let task = task.heap_task();
        // SAFETY: the caller guarantees the contract of `publish`: a protected word, and a block of its own.
        unsafe { self.heap.publish(&task, block, word, address(block)) };
    }

    /// Frees the block at the address in `word`, and stores 0 there.
    ///
    /// # Safety
    /// As for [`Self::publish_block`], which stored the address; and the block is not used any more.
    pub unsafe fn retire_block(&self, task: Task<'_>, word: &AtomicUsize) {
        if let Some(block) = pointer(read(word)) {
            crate::hook::freed(|| self.heap.addresses_of(block));
            // SAFETY: the caller guarantees the contract of `retire`: a protected word, and a block that is not used
            // any more.
            unsafe { self.heap.retire(&task.heap_task(), block, word, 0) };
        }
    }

    /// Frees a block that `word` leads to, and stores the address of the next one there: a block of a list.
    ///
    /// # Safety
    /// As for [`Self::retire_block`].
    pub unsafe fn unlink_block(
        &self,
        task: Task<'_>,
        block: NonNull<u8>,
        word: &AtomicUsize,
        next: usize,
    ) {
        crate::hook::freed(|| self.heap.addresses_of(block));
        // SAFETY: the caller guarantees the contract of `retire`: a protected word, and a block that is not used any more.
        unsafe { self.heap.retire(&task.heap_task(), block, word, next) };
    }

    /// Makes the block at the address in `word` private to `task`, and stores 0 there. Returns `false`, and changes
    /// nothing, if that is impossible: for a small block in another task's span.
    ///
    /// # Safety
    /// As for [`Self::retire_block`].
    pub unsafe fn take_block(&self, task: Task<'_>, word: &AtomicUsize) -> bool {
        pointer(read(word)).is_some_and(|block| {
            // SAFETY: the caller guarantees the contract of `take`: a protected word, and a block that only the task
            // will use.
            unsafe { self.heap.take(&task.heap_task(), block, word, 0) }
        })
    }

    /// Allocates a block of initialised bytes, of arbitrary values, that is private to the task.
    pub fn alloc_block(&self, task: Task<'_>, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let block = self.heap.alloc(&task.heap_task(), layout)?;
        // SAFETY: the task's own block, which is mapped.
        unsafe { memory::initialise(block, layout.size()) };
        Ok(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// The block belongs to the caller.
    pub unsafe fn free_block(&self, task: Task<'_>, block: NonNull<u8>) {
        // SAFETY: the caller guarantees that the block belongs to it.
        unsafe { self.heap.free(&task.heap_task(), block) };
    }

    /// Whether there is a block of at least `bytes` bytes at this address.
    pub fn has_block_at(&self, address: usize, bytes: usize) -> bool {
        self.block(pointer(address), bytes).is_some()
    }

    /// Releases the block of a box of bytes of this region. Returns its address and length.
    pub fn block_of(&self, bytes: Box<'_, [u8]>) -> (NonNull<u8>, usize) {
        let bytes = ManuallyDrop::new(bytes).as_raw();
        (bytes.cast(), bytes.len())
    }
}
