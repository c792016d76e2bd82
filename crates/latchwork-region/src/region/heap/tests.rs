//! Tests of the heap: properties of single operations here; kills in `kill`; random histories against a model in
//! `model`; threads in `threads`.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::blocks::Block;
use super::*;
use crate::atomic::Ordering::Relaxed;

mod cached;
mod kill;
mod misuse;
mod model;
mod near;
mod threads;

const SLOTS: u16 = 128;

/// A substitute for the file of a region.
struct Memory {
    data: NonNull<u8>,
    grows: AtomicBool,
    growth: Mutex<()>,
    /// The spans whose memory was returned.
    hollow: Vec<AtomicBool>,
}

// SAFETY: the data belong to the spans' users; the rest is atomic.
unsafe impl Send for Memory {}
// SAFETY: the data belong to the spans' users; the rest is atomic.
unsafe impl Sync for Memory {}

impl Memory {
    fn of(&self, first: u32, spans: u32) -> &[AtomicBool] {
        &self.hollow[first as usize..][..spans as usize]
    }
}

impl Backing for Arc<Memory> {
    fn grow(&self, heap: &Heap, spans: u32) -> Result<(), GrowError> {
        if !self.grows.load(Relaxed) {
            return Err(GrowError);
        }
        // As a region does, one task at a time.
        let _one = self.growth.lock().unwrap();
        let target = heap.committed() + spans;
        heap.publish_committed(target.min(heap.layout.max_spans));
        Ok(())
    }

    fn fill(&self, first: u32, spans: u32) -> Result<(), GrowError> {
        if !self.grows.load(Relaxed) {
            return Err(GrowError);
        }
        for span in self.of(first, spans) {
            kill_point!();
            span.store(false, Relaxed);
        }
        Ok(())
    }

    fn empty(&self, first: u32, spans: u32) -> Result<(), GrowError> {
        for (index, span) in self.of(first, spans).iter().enumerate() {
            kill_point!();
            span.store(true, Relaxed);
            // SAFETY: a span that only the caller may use.
            unsafe {
                let span = self.data.add((first as usize + index) * SPAN_BYTES);
                span.write_bytes(0, SPAN_BYTES);
            }
        }
        Ok(())
    }
}

/// A heap in memory of this process, with a task table.
struct Region {
    heap: Heap,
    memory: Arc<Memory>,
    tasks: Vec<TaskHeap>,
    meta: (NonNull<u8>, Layout),
    data: (NonNull<u8>, Layout),
}

impl Region {
    /// A region of at most `max` spans that grows by the requested size.
    fn new(max: u32) -> Self {
        Self::with_memory(max, true)
    }

    fn with_memory(max: u32, grows: bool) -> Self {
        let layout = HeapLayout::for_max(max as usize * SPAN_BYTES, SLOTS).unwrap();
        let map = |bytes, align| {
            let layout = Layout::from_size_align(bytes, align).unwrap();
            // SAFETY: the size is not 0.
            (
                NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap(),
                layout,
            )
        };
        let meta = map(layout.meta_bytes, HeapLayout::META_ALIGN);
        let data = map(layout.data_bytes(), SPAN_BYTES);
        let tasks: Vec<_> = (0..SLOTS).map(|_| TaskHeap::default()).collect();
        let table = TaskHeaps {
            first: NonNull::from(&tasks[0]),
            stride: size_of::<TaskHeap>(),
        };
        let memory = Arc::new(Memory {
            data: data.0,
            grows: AtomicBool::new(grows),
            growth: Mutex::new(()),
            hollow: (0..max).map(|_| AtomicBool::new(false)).collect(),
        });
        let backing = Box::new(Arc::clone(&memory));
        // SAFETY: the memory is as the contract requires; `tasks` is never resized.
        let heap = unsafe { Heap::from_raw(meta.0, data.0, layout, table, backing) };
        Self {
            heap,
            memory,
            tasks,
            meta,
            data,
        }
    }

    fn task(&self, owner: Owner) -> TaskRef<'_> {
        // SAFETY: each test runs one task at a time, or each in its own thread.
        unsafe { TaskRef::new(owner, &self.tasks[owner.slot() as usize]) }
    }

    fn alloc(&self, owner: Owner, bytes: usize) -> NonNull<u8> {
        let layout = Layout::from_size_align(bytes, 16).unwrap();
        self.heap.alloc(&self.task(owner), layout).unwrap()
    }

    fn free(&self, owner: Owner, block: NonNull<u8>) {
        // SAFETY: tests free only blocks that they do not use.
        unsafe { self.heap.free(&self.task(owner), block) }
    }

    fn recover(&self, owner: Owner, policy: OnDeath) {
        // SAFETY: tests recover only tasks that they do not run any more.
        unsafe { self.heap.recover(owner, policy) }
    }

    fn is_live(&self, block: NonNull<u8>) -> bool {
        self.heap.find(block.addr().get()).is_some()
    }

    /// Asserts that every span that is in use or free has memory.
    fn assert_backed(&self) {
        for span in 0..self.heap.committed() {
            let hollow = self.memory.hollow[span as usize].load(Relaxed);
            assert!(!hollow || self.heap.is_hollow(span), "span {span}");
        }
    }

    /// Asserts that nothing is allocated, and that all memory is free again once the tasks end.
    fn assert_empty(&self, tasks: &[Owner]) {
        for &owner in tasks {
            self.recover(owner, OnDeath::Free);
        }
        self.heap.check().unwrap();
        let stats = self.heap.stats();
        assert_eq!(stats.allocated_bytes, 0, "{stats:?}");
        assert_eq!(
            stats.free_spans,
            self.heap.committed() as usize,
            "{stats:?}"
        );
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        for (start, layout) in [self.meta, self.data] {
            // SAFETY: allocated in `with_grow` with this layout.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }
}

fn owner(slot: u16) -> Owner {
    Owner::new(slot, NonZero::new(7).unwrap())
}

/// A prime, so that no two words of a filled block are alike, nor can they be mistaken for a sound bitmap.
const PERIOD: usize = 251;

/// Fills a block with a pattern of its own.
fn fill(heap: &Heap, block: NonNull<u8>) {
    // SAFETY: the block is allocated, and only the caller uses it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(block.as_ptr(), heap.usable_size(block)) };
    let first = PERIOD.min(bytes.len());
    for (index, byte) in bytes[..first].iter_mut().enumerate() {
        *byte = pattern(block, index);
    }
    for start in (PERIOD..bytes.len()).step_by(PERIOD) {
        let end = bytes.len().min(start + PERIOD);
        bytes.copy_within(..end - start, start);
    }
}

fn assert_intact(heap: &Heap, block: NonNull<u8>) {
    // SAFETY: the block is allocated, and only the caller uses it.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), heap.usable_size(block)) };
    let first = PERIOD.min(bytes.len());
    let same = (0..first).all(|index| bytes[index] == pattern(block, index))
        // memcmp, which is also fast in debug builds.
        && bytes[first..] == bytes[..bytes.len() - first];
    assert!(same, "{block:p} was overwritten");
}

fn pattern(block: NonNull<u8>, index: usize) -> u8 {
    let place = block.addr().get();
    ((place >> 4) ^ (place >> 12) ^ (place >> 16)).wrapping_add(index * index) as u8
}

const SIZES: [usize; 14] = [
    0,
    1,
    16,
    17,
    100,
    129,
    512,
    900,
    1024,
    5000,
    32 << 10,
    33 << 10,
    64 << 10,
    200 << 10,
];

#[test]
fn blocks_do_not_overlap_and_keep_their_contents() {
    let region = Region::new(256);
    let task = owner(1);
    let blocks: Vec<_> = (0..400)
        .map(|i| {
            let size = SIZES[i % SIZES.len()];
            let block = region.alloc(task, size);
            assert!(region.heap.usable_size(block) >= size);
            assert!(region.heap.owns(block));
            fill(&region.heap, block);
            block
        })
        .collect();
    region.heap.check().unwrap();
    for &block in &blocks {
        assert_intact(&region.heap, block);
    }
    for &block in &blocks {
        region.free(task, block);
    }
    region.heap.check().unwrap();
    assert_eq!(region.heap.stats().allocated_bytes, 0);
    region.assert_empty(&[task]);
}

#[test]
fn blocks_are_aligned_up_to_a_mebibyte() {
    let region = Region::new(256);
    let task = owner(1);
    for shift in 0..=20 {
        for size in [1, 100, 3000, 40_000, 70_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            let block = region.heap.alloc(&region.task(task), layout).unwrap();
            assert!(block.addr().get().is_multiple_of(1 << shift));
            fill(&region.heap, block);
            region.free(task, block);
        }
    }
    region.assert_empty(&[task]);
}

#[test]
fn freed_by_another_task_is_reused_by_its_owner() {
    let region = Region::new(2);
    let (a, b) = (owner(1), owner(100));
    for _ in 0..100 {
        let blocks: Vec<_> = (0..90).map(|_| region.alloc(a, 1000)).collect();
        for block in blocks {
            region.free(b, block);
        }
    }
    region.heap.check().unwrap();
    region.assert_empty(&[a, b]);
}

#[test]
fn exhaustion_is_an_error_until_blocks_are_freed() {
    let region = Region::new(8);
    let task = owner(1);
    let layout = Layout::from_size_align(30_000, 16).unwrap();
    let mut blocks = Vec::new();
    let error = loop {
        match region.heap.alloc(&region.task(task), layout) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert_eq!(blocks.len(), 16);
    assert_eq!(
        error,
        AllocError::Exhausted {
            requested: 30_000,
            max: 8 * SPAN_BYTES
        }
    );
    let all = Layout::from_size_align(8 * SPAN_BYTES, 16).unwrap();
    assert!(region.heap.alloc(&region.task(task), all).is_err());
    for block in blocks {
        region.free(task, block);
    }
    // An empty current span is released before the heap reports an error.
    let block = region.heap.alloc(&region.task(task), all).unwrap();
    region.free(task, block);
    region.assert_empty(&[task]);
}

#[test]
fn trim_returns_unused_memory_and_later_blocks_refill_it() {
    let region = Region::new(64);
    let (a, b) = (owner(1), owner(100));
    let kept: Vec<_> = [64, 30_000, 100 << 10, 64 << 10]
        .map(|bytes| {
            let block = region.alloc(a, bytes);
            fill(&region.heap, block);
            // Another task's block, in between.
            let other = region.alloc(b, bytes);
            (block, other)
        })
        .into();
    for &(_, other) in &kept {
        region.free(a, other);
    }
    let free = region.heap.stats().free_spans;
    // Its own empty spans are trimmed, too.
    let trimmed = region.heap.trim(&region.task(b)) as usize;
    assert!(trimmed >= free && trimmed >= 3, "{trimmed} of {free}");
    let stats = region.heap.stats();
    assert_eq!(stats.trimmed_bytes, trimmed * SPAN_BYTES);
    assert_eq!(region.heap.trim(&region.task(b)), 0);
    region.heap.check().unwrap();
    region.assert_backed();
    kept.iter()
        .for_each(|&(block, _)| assert_intact(&region.heap, block));
    let committed = region.heap.committed();
    let again = [64, 100 << 10, 64 << 10].map(|bytes| {
        let block = region.alloc(b, bytes);
        fill(&region.heap, block);
        region.assert_backed();
        block
    });
    assert_eq!(region.heap.committed(), committed, "it grew instead");
    kept.iter()
        .for_each(|&(block, _)| assert_intact(&region.heap, block));
    again.into_iter().for_each(|block| region.free(a, block));
    kept.into_iter()
        .for_each(|(block, _)| region.free(a, block));
    region.assert_empty(&[a, b]);
}

#[test]
fn allocation_in_a_trimmed_span_fails_without_memory_and_leaves_it_hollow() {
    let region = Region::new(8);
    let task = owner(1);
    let all = region.alloc(task, 8 * SPAN_BYTES);
    region.free(task, all);
    assert_eq!(region.heap.trim(&region.task(task)), 8);
    region.memory.grows.store(false, Relaxed);
    for bytes in [64, SPAN_BYTES, 3 * SPAN_BYTES] {
        let layout = Layout::from_size_align(bytes, 16).unwrap();
        let error = region.heap.alloc(&region.task(task), layout);
        assert!(error.is_err(), "{bytes}");
        assert_eq!(region.heap.stats().trimmed_bytes, 8 * SPAN_BYTES);
    }
    region.heap.check().unwrap();
    region.memory.grows.store(true, Relaxed);
    let all = region.alloc(task, 8 * SPAN_BYTES);
    region.assert_backed();
    fill(&region.heap, all);
    region.free(task, all);
    region.assert_empty(&[task]);
}

#[test]
fn failure_to_grow_is_out_of_memory() {
    let region = Region::with_memory(8, false);
    let layout = Layout::from_size_align(100, 16).unwrap();
    let error = region.heap.alloc(&region.task(owner(1)), layout);
    assert_eq!(error, Err(AllocError::OutOfMemory { requested: 100 }));
    let layout = Layout::from_size_align(100 << 20, 16).unwrap();
    let error = region.heap.alloc(&region.task(owner(1)), layout);
    assert!(matches!(error, Err(AllocError::Exhausted { .. })));
}

#[test]
fn recovery_frees_keeps_or_passes_on_private_blocks() {
    for policy in [OnDeath::Free, OnDeath::Keep, OnDeath::Adopt(owner(2))] {
        let region = Region::new(64);
        let (dead, adopter) = (owner(1), owner(2));
        let mut shared = Vec::new();
        let mut private = Vec::new();
        for size in SIZES {
            let kept = region.alloc(dead, size);
            // SAFETY: the block is not freed meanwhile.
            unsafe { region.heap.keep(kept) };
            shared.push(kept);
            private.push(region.alloc(dead, size));
        }
        let before = region.heap.stats();
        assert_eq!(before.private_blocks, SIZES.len());
        assert_eq!(before.shared_blocks, SIZES.len());
        region.recover(dead, policy);
        region.heap.check().unwrap();
        let after = region.heap.stats();
        let expected = match policy {
            OnDeath::Free => (0, SIZES.len()),
            OnDeath::Keep => (0, 2 * SIZES.len()),
            OnDeath::Adopt(_) => (SIZES.len(), SIZES.len()),
        };
        assert_eq!((after.private_blocks, after.shared_blocks), expected);
        if policy != OnDeath::Free {
            shared.append(&mut private);
        }
        for block in shared {
            region.free(adopter, block);
        }
        region.assert_empty(&[adopter]);
    }
}

#[test]
fn adopter_allocates_in_an_adopted_span() {
    let region = Region::new(1);
    let (dead, adopter) = (owner(1), owner(2));
    let block = region.alloc(dead, 1024);
    region.recover(dead, OnDeath::Adopt(adopter));
    let others: Vec<_> = (0..63).map(|_| region.alloc(adopter, 1024)).collect();
    assert!(!others.contains(&block));
    region.heap.check().unwrap();
}

#[test]
fn any_task_allocates_in_an_orphan_span() {
    let region = Region::new(1);
    let (dead, other) = (owner(1), owner(2));
    region.alloc(dead, 1024);
    region.recover(dead, OnDeath::Keep);
    assert_eq!(region.heap.stats().orphan_spans, 1);
    for _ in 0..63 {
        region.alloc(other, 1024);
    }
    assert_eq!(region.heap.stats().orphan_spans, 0);
}

#[test]
fn freeing_the_last_block_of_an_orphan_span_releases_it() {
    let region = Region::new(1);
    let (dead, other) = (owner(1), owner(2));
    let block = region.alloc(dead, 1024);
    region.recover(dead, OnDeath::Keep);
    region.free(other, block);
    assert_eq!(region.heap.stats().free_spans, 1);
}
