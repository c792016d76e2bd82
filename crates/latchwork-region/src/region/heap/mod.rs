//! The heap of a region: it survives a kill of any task at any instruction.
//!
//! **What it is.** An allocator in memory that many tasks (threads and processes) map at one address. A block is
//! *private* to the task that allocated it, and treated as [`OnDeath`] says when that task dies, until it is
//! *shared*: linked into a structure that outlives the task. The heap does not protect against hostile tasks, and is
//! not async-signal-safe: a signal handler must not call it (see [`TaskRef::new`]). Blocks are not zeroed.
//!
//! **Structure.** The data area is an array of 64 KiB *spans*. A table outside it has one state word for each span
//! (`state`: the table of states, and of the tasks that make each transition). A small span holds blocks of one size
//! class and belongs to one task; a large block is a run of spans. Three bitmaps give the state of a small span's
//! blocks:
//!
//! | alloc | shared | remote | the block is                                   | who sets and clears the bit |
//! | ----- | ------ | ------ | ---------------------------------------------- | -------------------- |
//! | 0     | 0      | 0      | free                                           | |
//! | 1     | 0      | 0      | allocated, private to the span's owner         | alloc: only the owner |
//! | 1     | 1      | 0      | allocated, shared                              | shared: any task sets, the owner clears |
//! | 1     | any    | 1      | freed by a task that is not the owner, or named by another task's intent | remote: other tasks set, the owner clears |
//! | 0     | any    | any    | free; the owner was killed while clearing the others | the recoverer clears them |
//!
//! **Invariants.**
//! 1. A span is claimed by one CAS from FREE, and only its owner (or the one recoverer of a dead owner) changes its
//!    state further.
//! 2. Only a span's owner (or its recoverer) writes `alloc`. So allocating and freeing are one plain store each, and
//!    that store is the commit: at every instruction a block is either allocated or free.
//! 3. A span with an allocated block is not released.
//! 4. All fields of a [`TaskHeap`] except the intent, of a descriptor except the bitmaps and the run, and of the
//!    header except `committed`, are caches or hints. Recovery derives everything from the table and the bitmaps.
//! 5. A block that a live intent unlinks does not become free for reuse before the intent is cleared, whichever task
//!    frees it, so that "has it been freed?" has an answer at any time (`intent`).
//!
//! **Kills.** SIGKILL takes effect between two instructions and every earlier store remains, so only the compiler's
//! order matters: `step!` stands between stores whose order recovery relies on. Between living tasks the usual
//! acquire and release orderings apply; each operation states them.
//!
//! **Cost.** Allocating a small block, and freeing one of the task's own: no lock, no atomic read-modify-write, no
//! division. Freeing another task's block: one read-modify-write on the bitmap, and at most one on the owner's hint.
//!
//! **Progress.** No operation waits for another task. A killed task can lose only hints: a span whose hint is lost is
//! found when its owner frees into it, when memory runs out, or when its owner dies.
//!
//! **Fork.** A child has no `TaskRef` until it has a slot of its own.
//!
//! **Checked by.** `tests`: every operation, and recovery, is killed at each point between two shared stores and then
//! recovered; random histories run against a model.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Keeps the compiler from moving a store across a point where recovery after a kill must find all earlier stores
/// done and no later one. In tests, a kill may occur here.
macro_rules! step {
    () => {{
        crate::atomic::compiler_fence(crate::atomic::Ordering::SeqCst);
        #[cfg(test)]
        crate::region::heap::fault::point();
    }};
}

/// Marks a point between two shared stores whose order recovery does not rely on, so that the compiler may choose it.
/// In tests, a kill may occur here.
macro_rules! kill_point {
    () => {{
        #[cfg(test)]
        crate::region::heap::fault::point();
    }};
}

mod claim;
mod classes;
#[cfg(test)]
mod fault;
mod free;
mod intent;
mod large;
mod layout;
mod recover;
mod small;
mod snapshot;
mod state;
mod stats;
mod task;
#[cfg(test)]
mod tests;
mod trim;

pub use classes::FINGERPRINT;
pub use layout::{HeapLayout, SPAN_BYTES};
pub use recover::OnDeath;
pub use snapshot::HeapUse;
pub use stats::{Corruption, HeapStats};
pub use task::{Owner, TaskHeap, TaskRef};

use classes::{CLASSES, MIN_ALIGN, SMALL_MAX, class_of, class_of_aligned};
use layout::{Desc, Header};
use state::{Kind, State};

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
    data: NonNull<u8>,
    table: NonNull<AtomicU64>,
    descs: NonNull<Desc>,
    header: NonNull<Header>,
    retiring: NonNull<AtomicU64>,
    layout: HeapLayout,
    tasks: TaskHeaps,
    backing: Box<dyn Backing>,
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
    pub(super) fn alloc_quick(&self, task: &TaskRef<'_>, layout: Layout) -> Option<NonNull<u8>> {
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

    /// Marks a block as shared: it outlives its owner, whatever [`OnDeath`] policy applies.
    ///
    /// To link a block into a shared structure use [`Heap::publish`], with which a kill at any instant makes the
    /// block neither dangle nor leak. Aborts the process if `block` is not the address of an allocated block.
    ///
    /// # Safety
    ///
    /// The block is not freed meanwhile.
    pub unsafe fn keep(&self, block: NonNull<u8>) {
        self.set_shared(block.addr().get(), true);
    }

    /// The usable size of an allocated block in bytes, at least the requested size.
    ///
    /// Aborts the process if `block` is not the address of an allocated block.
    pub fn usable_size(&self, block: NonNull<u8>) -> usize {
        self.size_of_block(block)
            .unwrap_or_else(|| misuse("no allocated block at", block.addr().get()))
    }

    /// The result of [`Self::usable_size`] for a block of this layout.
    pub(in crate::region) fn size_for(&self, layout: Layout) -> usize {
        if layout.size() > SMALL_MAX || layout.align() > SMALL_MAX {
            return layout.size().next_multiple_of(SPAN_BYTES);
        }
        CLASSES[class_of_aligned(layout.size(), layout.align())].size as usize
    }

    /// Like [`Self::usable_size`]; `None` if there is no allocated block.
    pub(in crate::region) fn size_of_block(&self, block: NonNull<u8>) -> Option<usize> {
        Some(match self.find(block.addr().get())? {
            Found::Small { class, .. } => CLASSES[class].size as usize,
            Found::Large { head, state } => self.run_of(head, state) as usize * SPAN_BYTES,
        })
    }

    /// All addresses of a block.
    pub(in crate::region) fn addresses_of(&self, block: NonNull<u8>) -> core::ops::Range<usize> {
        let start = block.addr().get();
        start..start + self.size_of_block(block).unwrap_or(0)
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
        self.header().committed.fetch_max(spans, Release);
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: by the contract of `from_raw` the metadata are mapped and begin with the header.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    fn entry(&self, span: u32) -> &AtomicU64 {
        debug_assert!(span < self.layout.max_spans);
        // SAFETY: the table has `max_spans` entries, and callers take indices from addresses checked by `offset_of`
        // and from the heap's own lists.
        unsafe { self.table.add(span as usize).as_ref() }
    }

    #[inline(always)]
    fn desc(&self, span: u32) -> &Desc {
        debug_assert!(span < self.layout.max_spans);
        // SAFETY: there are `max_spans` descriptors, and callers take indices as for `entry`.
        unsafe { self.descs.add(span as usize).as_ref() }
    }

    /// The state of a span. Acquire pairs with the releases that commit a state: a task that sees the state also sees
    /// the descriptor and the bitmaps that belong to it.
    #[inline(always)]
    fn state(&self, span: u32) -> State {
        State(self.entry(span).load(Acquire))
    }

    #[inline(always)]
    fn address_of_span(&self, span: u32) -> NonNull<u8> {
        // SAFETY: the data area has `max_spans` spans.
        unsafe { self.data.add(span as usize * SPAN_BYTES) }
    }

    /// The offset of `address` in the data area, if it is in it.
    #[inline(always)]
    fn offset_of(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.data.addr().get());
        (offset < self.layout.data_bytes()).then_some(offset)
    }

    /// The `TaskHeap` in a slot; `None` for a slot that the table does not have.
    fn task_heap(&self, slot: u16) -> Option<&TaskHeap> {
        // SAFETY: by the contract of `from_raw` there is a `TaskHeap` for each of `slots` slots.
        (u32::from(slot) < self.layout.slots).then(|| unsafe {
            self.tasks
                .first
                .byte_add(slot as usize * self.tasks.stride)
                .as_ref()
        })
    }

    /// The allocated block at `address`.
    fn find(&self, address: usize) -> Option<Found> {
        let offset = self.offset_of(address)?;
        let span = (offset / SPAN_BYTES) as u32;
        let state = self.state(span);
        match state.kind()? {
            Kind::Small => {
                let class = state.class();
                let c = CLASSES.get(class)?;
                let index = c.index_of((offset % SPAN_BYTES) as u32)?;
                let (word, mask) = (index / 64, 1 << (index % 64));
                let bits = self.bits(span, c);
                // Relaxed: a task that owns the block got its address after its allocation; for other callers the
                // answer is only a guess in any case.
                let live = bits.alloc(word).load(Relaxed) & !bits.remote(word).load(Relaxed);
                (live & mask != 0).then_some(Found::Small {
                    span,
                    class,
                    word,
                    mask,
                })
            }
            Kind::Head if offset.is_multiple_of(SPAN_BYTES) => {
                Some(Found::Large { head: span, state })
            }
            _ => None,
        }
    }

    fn is_shared(&self, address: usize) -> bool {
        match self.find(address) {
            Some(Found::Small {
                span,
                class,
                word,
                mask,
            }) => {
                // Relaxed: only the block's holder asks, and only it changes the bit.
                self.bits(span, &CLASSES[class]).shared(word).load(Relaxed) & mask != 0
            }
            Some(Found::Large { state, .. }) => state.is_shared(),
            None => misuse("no allocated block at", address),
        }
    }

    fn set_shared(&self, address: usize, shared: bool) {
        match self.find(address) {
            Some(Found::Small {
                span,
                class,
                word,
                mask,
            }) => {
                let bits = self.bits(span, &CLASSES[class]);
                // Release: orders the change after the intent that it belongs to.
                match shared {
                    true => bits.shared(word).fetch_or(mask, Release),
                    false => bits.shared(word).fetch_and(!mask, Release),
                };
            }
            Some(Found::Large { head, .. }) => self.set_large_shared(head, shared),
            None => misuse("no allocated block at", address),
        }
    }
}

/// An allocated block.
enum Found {
    Small {
        span: u32,
        class: usize,
        word: u32,
        mask: u64,
    },
    Large {
        head: u32,
        state: State,
    },
}

/// Ends the process after a misuse that would otherwise corrupt the heap for all tasks.
#[cold]
#[inline(never)]
fn misuse(what: &str, address: usize) -> ! {
    crate::fatal(format_args!("{what} {address:#x}"))
}
