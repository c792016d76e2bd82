//! A process's handle on the heap of a region: where its parts lie, the entries to its operations, and why they fail.

#![allow(unsafe_code)]

use super::classes::{MIN_ALIGN, SMALL_MAX, class_of, class_of_aligned};
use super::layout::{Desc, Header, HeapLayout, SPAN_BYTES, place_of};
use super::state::State;
use super::task::{TaskHeap, TaskRef};
use crate::atomic::AtomicU64;
use crate::atomic::Ordering::{self, Acquire, Relaxed, Release};
use core::alloc::Layout;
use core::ptr::NonNull;

/// Provides the memory of a heap. Several tasks may call each method at once.
pub trait Backing: Send + Sync {
    /// Commits at least the given number of spans beyond the caller's reading of [`Heap::committed`], and calls
    /// [`Heap::publish_committed`]; the heap has checked that they fit the maximum. It may find that another task has
    /// already done so.
    ///
    /// # Errors
    /// There is no memory.
    fn grow(&self, heap: &Heap, spans: u32) -> Result<(), GrowError>;
    /// Ensures that `spans` spans from `first` on, which no other task uses, have memory.
    ///
    /// # Errors
    /// There is none. Some of the spans may have memory now.
    fn fill(&self, first: u32, spans: u32) -> Result<(), GrowError>;
    /// Returns the memory of `spans` spans from `first` on, which no other task uses, to the system.
    ///
    /// # Errors
    /// The system refused.
    fn empty(&self, first: u32, spans: u32) -> Result<(), GrowError>;
}

/// The location of the [`TaskHeap`]s of all slots of the task table.
#[derive(Clone, Copy, Debug)]
pub struct TaskHeaps {
    /// The one in slot 0.
    pub first: NonNull<TaskHeap>,
    /// The distance from one to the next, in bytes.
    pub stride: usize,
}

/// A process's handle on the heap of a region.
pub struct Heap {
    pub(super) data: NonNull<u8>,
    pub(super) table: NonNull<AtomicU64>,
    pub(super) descs: NonNull<Desc>,
    pub(super) header: NonNull<Header>,
    pub(super) retiring: NonNull<AtomicU64>,
    pub(super) layout: HeapLayout,
    pub(super) tasks: TaskHeaps,
    pub(super) backing: Box<dyn Backing>,
}

// SAFETY: the pointers lead to shared memory that is accessed only by atomics (blocks belong to the callers), and
// `backing` is Send and Sync.
unsafe impl Send for Heap {}
// SAFETY: as for Send: every access goes through atomics.
unsafe impl Sync for Heap {}

impl Heap {
    /// A handle on the heap with its metadata at `meta` and its data area at `data`.
    ///
    /// # Safety
    ///
    /// As long as the handle exists:
    /// - `meta` is aligned to [`HeapLayout::META_ALIGN`], and `layout.meta_bytes` from it are mapped, were zero when
    ///   the heap was created, and are written only by heaps of this layout;
    /// - `data` is aligned to [`SPAN_BYTES`], `layout.data_bytes()` from it are reserved, and those below
    ///   [`Heap::committed`] can be written;
    /// - `tasks` gives the `TaskHeap` of each of `layout.slots` slots, at the same address in every task.
    pub unsafe fn from_raw(
        meta: NonNull<u8>,
        data: NonNull<u8>,
        layout: HeapLayout,
        tasks: TaskHeaps,
        backing: Box<dyn Backing>,
    ) -> Self {
        debug_assert!(data.addr().get().is_multiple_of(SPAN_BYTES));
        debug_assert!(meta.addr().get().is_multiple_of(HeapLayout::META_ALIGN));
        // SAFETY: the offsets are within `meta_bytes`, and suitably aligned, by construction of the layout.
        unsafe {
            Self {
                data,
                table: meta.add(layout.table).cast(),
                descs: meta.add(layout.descs).cast(),
                header: meta.cast(),
                retiring: meta.add(layout.retiring).cast(),
                layout,
                tasks,
                backing,
            }
        }
    }

    /// Allocates a block, private to `task`, that is not zeroed.
    ///
    /// A block may have size 0. An alignment above 16 can increase the block's size by up to the alignment.
    ///
    /// # Errors
    ///
    /// [`AllocError::Exhausted`] if the region is at its maximum size, and [`AllocError::OutOfMemory`] if the system
    /// has no memory for it to grow.
    #[inline]
    pub fn alloc(&self, task: &TaskRef<'_>, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.alloc_quick(task, layout) {
            Some(block) => Ok(block),
            None => self.alloc_slow(task, layout),
        }
    }

    /// The fast path of [`Self::alloc`]: a small block from the current span, without a search.
    #[inline(always)]
    pub(in crate::region) fn alloc_quick(
        &self,
        task: &TaskRef<'_>,
        layout: Layout,
    ) -> Option<NonNull<u8>> {
        if layout.size() > SMALL_MAX || layout.align() > MIN_ALIGN {
            return None;
        }
        self.alloc_from_current(task, class_of(layout.size()))
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, task: &TaskRef<'_>, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() > SMALL_MAX || layout.align() > SMALL_MAX {
            return self.alloc_large(task, layout);
        }
        let class = class_of_aligned(layout.size(), layout.align());
        self.alloc_small(task, class, layout.size())
    }

    /// Frees a block, whichever task allocated it.
    ///
    /// Aborts the process, with one line on standard error and the heap intact, if `block` is not the address of an
    /// allocated block.
    ///
    /// # Safety
    ///
    /// The block is not used any more.
    #[inline]
    pub unsafe fn free(&self, task: &TaskRef<'_>, block: NonNull<u8>) {
        // SAFETY: the caller guarantees that the block is not used any more.
        if !unsafe { self.free_quick(task, block) } {
            self.free_slow(task, block);
        }
    }

    /// Whether `address` is in the heap's data area.
    pub fn owns(&self, address: NonNull<u8>) -> bool {
        let offset = address.addr().get().wrapping_sub(self.data.addr().get());
        offset < self.committed() as usize * SPAN_BYTES
    }

    /// The number of spans that have memory.
    pub fn committed(&self) -> u32 {
        // Acquire pairs with the release in `publish_committed`: spans below this count have memory.
        self.header().committed.load(Acquire)
    }

    /// Publishes that the first `spans` spans have memory. For [`Backing`].
    pub fn publish_committed(&self, spans: u32) {
        debug_assert!(spans <= self.layout.max_spans);
        for span in self.committed()..spans {
            // An untrusted file could name a later task here.
            self.desc(span).cached.store(0, Relaxed);
        }
        self.header().committed.fetch_max(spans, Release);
    }

    #[inline(always)]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: by the contract of `from_raw` the metadata are mapped and begin with the header.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    pub(super) fn entry(&self, span: u32) -> &AtomicU64 {
        debug_assert!(span < self.layout.max_spans);
        // SAFETY: the table has `max_spans` entries, rounded up to whole blocks, and `place_of` stays within the block of
        // its span. Callers take indices from addresses checked by `offset_of` and from the heap's own lists.
        unsafe { self.table.add(place_of(span as usize)).as_ref() }
    }

    #[inline(always)]
    pub(super) fn desc(&self, span: u32) -> &Desc {
        debug_assert!(span < self.layout.max_spans);
        // SAFETY: there are `max_spans` descriptors, and callers take indices as for `entry`.
        unsafe { self.descs.add(span as usize).as_ref() }
    }

    /// The state of a span. Acquire pairs with the releases that commit a state: a task that sees the state also sees
    /// the descriptor and the bitmaps that belong to it.
    #[inline(always)]
    pub(super) fn state(&self, span: u32) -> State {
        State(self.entry(span).load(Acquire))
    }

    /// Changes the state of a span, unless another task was faster. For the `order` see each caller.
    #[inline]
    pub(super) fn change(&self, span: u32, from: State, to: State, order: Ordering) -> bool {
        let changed = self
            .entry(span)
            .compare_exchange(from.0, to.0, order, Relaxed);
        changed.is_ok()
    }

    #[inline(always)]
    pub(super) fn address_of_span(&self, span: u32) -> NonNull<u8> {
        // SAFETY: the data area has `max_spans` spans.
        unsafe { self.data.add(span as usize * SPAN_BYTES) }
    }

    /// The offset of `address` in the data area, if it is in it.
    #[inline(always)]
    pub(super) fn offset_of(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.data.addr().get());
        (offset < self.layout.data_bytes()).then_some(offset)
    }

    /// The `TaskHeap` in a slot; `None` for a slot that the table does not have.
    pub(super) fn task_heap(&self, slot: u16) -> Option<&TaskHeap> {
        // SAFETY: by the contract of `from_raw` there is a `TaskHeap` for each of `slots` slots.
        (u32::from(slot) < self.layout.slots).then(|| unsafe {
            self.tasks
                .first
                .byte_add(slot as usize * self.tasks.stride)
                .as_ref()
        })
    }
}

/// Why a heap could not allocate a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocError {
    /// The region is at its maximum size, and no room for this block is left.
    #[error("no room for {requested} bytes in a region of at most {max}")]
    Exhausted {
        /// The requested size in bytes.
        requested: usize,
        /// The size of the region's data area at its maximum, in bytes.
        max: usize,
    },
    /// The system has no memory for the region to grow.
    #[error("the system has no memory for the region to grow by {requested} bytes")]
    OutOfMemory {
        /// The requested size in bytes.
        requested: usize,
    },
}

/// Why a region could not grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the system has no memory for the region to grow")]
pub struct GrowError;

/// Ends the process after a misuse that would otherwise corrupt the heap for all tasks.
#[cold]
#[inline(never)]
pub(super) fn misuse(what: &str, address: usize) -> ! {
    crate::fatal(format_args!("{what} {address:#x}"))
}
