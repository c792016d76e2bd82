//! A task's own data in the heap: a cache of its spans, and one intent record.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::num::NonZero;

use super::layout::CLASS_COUNT;
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A task's identity: its slot in the task table and the slot's generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(NonZero<u64>);

impl Owner {
    /// The task in `slot` of this `generation`, which is never 0 for a task.
    #[inline]
    pub const fn new(slot: u16, generation: NonZero<u32>) -> Self {
        match NonZero::new((generation.get() as u64) << 32 | (slot as u64) << 16) {
            Some(raw) => Self(raw),
            None => unreachable!(),
        }
    }

    /// The slot in the task table.
    pub const fn slot(self) -> u16 {
        (self.0.get() >> 16) as u16
    }

    /// The generation of the slot.
    pub const fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// The identity as a number, which is never 0.
    #[inline(always)]
    #[doc(hidden)]
    pub const fn raw(self) -> u64 {
        self.0.get()
    }

    /// The reverse of [`Self::raw`].
    #[inline(always)]
    #[doc(hidden)]
    pub fn from_raw(raw: u64) -> Option<Self> {
        NonZero::new(raw).map(Self)
    }
}

/// One class in a task's cache. Spans are named by index + 1.
#[repr(C)]
pub(super) struct Bin {
    /// The span from which the task allocates.
    pub(super) current: AtomicU32,
    /// The first span of the list of further spans with free blocks.
    pub(super) list: AtomicU32,
}

/// The step that a task is about to make, so that its recoverer can finish or undo it. Valid while `flags` is not 0;
/// `flags` is stored last and cleared first.
#[repr(C)]
pub(super) struct Intent {
    pub(super) flags: AtomicU64,
    /// Address of the word to be changed, and its value before and after.
    pub(super) location: AtomicUsize,
    pub(super) before: AtomicUsize,
    pub(super) after: AtomicUsize,
    /// Address of the block that becomes reachable, or 0.
    pub(super) linked: AtomicUsize,
    /// Address of the block that ceases to be reachable, or 0.
    pub(super) unlinked: AtomicUsize,
}

/// The number of words in which other tasks notify the owner of spans.
pub(super) const PENDING_WORDS: usize = 16;

/// A task's part of the heap. It lives in the task's slot of the task table.
///
/// Zero is a valid, empty one. Everything except the intent is a cache that recovery does not read.
#[repr(C, align(64))]
pub struct TaskHeap {
    pub(super) bins: [Bin; CLASS_COUNT],
    pub(super) intent: Intent,
    /// The single span that the task freed last, as index + 1; 0 if there is none, or if the task has tried to claim it
    /// since. A hint.
    pub(super) near: AtomicU32,
    /// The same for the head of a run of several spans.
    pub(super) near_run: AtomicU32,
    /// One bit for each word of `pending` that is not 0.
    pub(super) pending_words: AtomicU64,
    /// The bit for span `i` is at `i % 1024`. It is set if the span has remotely freed blocks, or was handed to this
    /// task.
    pub(super) pending: [AtomicU64; PENDING_WORDS],
}

impl TaskHeap {
    /// Empties the cache of a dead task for the next task in the slot.
    pub(in crate::region) fn reset(&self) {
        // Relaxed: the slot reaches its next task by the task table's release.
        for bin in &self.bins {
            bin.current.store(0, Relaxed);
            bin.list.store(0, Relaxed);
        }
        self.near.store(0, Relaxed);
        self.near_run.store(0, Relaxed);
        self.pending_words.store(0, Relaxed);
        for word in &self.pending {
            word.store(0, Relaxed);
        }
    }
}

impl TaskHeap {
    /// Empties the record of a slot in which no task has died: for a region of doubtful origin. The next task in the slot
    /// would trust the cache, and its recoverer the intent.
    pub(in crate::region) fn forget(&self) {
        self.reset();
        self.intent.flags.store(0, Relaxed);
    }
}

impl Default for TaskHeap {
    /// An empty cache, without intent.
    fn default() -> Self {
        // SAFETY: atomics and integers, for which zero is valid.
        unsafe { core::mem::zeroed() }
    }
}

/// The calling task, as seen by the heap.
///
/// It is not `Send`: a task is one thread.
#[derive(Clone, Copy)]
pub struct TaskRef<'a> {
    pub(super) owner: Owner,
    pub(super) heap: &'a TaskHeap,
    _thread: PhantomData<*const ()>,
}

impl<'a> TaskRef<'a> {
    /// The handle of the calling task.
    ///
    /// # Safety
    ///
    /// The caller is the task `owner` (or acts for it while it does not run), and `heap` is the `TaskHeap` in its
    /// slot. Calls into the heap on behalf of one owner do not overlap; so a signal handler that interrupts such a
    /// call must not make one.
    #[inline(always)]
    pub unsafe fn new(owner: Owner, heap: &'a TaskHeap) -> Self {
        Self {
            owner,
            heap,
            _thread: PhantomData,
        }
    }
}
