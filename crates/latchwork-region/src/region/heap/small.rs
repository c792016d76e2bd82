//! Small blocks: spans of one size class, each owned by one task.
//!
//! A task allocates from the *current* span of a class; its other spans with free blocks are in a list, and full
//! spans in none. A task frees into its own span by one plain store to `alloc`, and into another task's span by setting
//! the `remote` bit and notifying the owner by a hint; the owner *collects* such blocks later (`free`). A span without
//! owner, an *orphan*, is adopted by the first task that needs it. A task that ran out of memory searches all its spans.

#![allow(unsafe_code)]

use core::ptr::NonNull;

use super::free::{Freed, class_and_bit};
use super::free_spans::set_near;
use super::{AllocError, Bit, CLASSES, Class, Desc, Heap, SPAN_BYTES, State, TaskRef, misuse};
use crate::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

impl Heap {
    // Throughout: only a span's owner accesses `alloc` and the caches in the descriptor, so Relaxed suffices; a later
    // owner sees them by the acquire of the state.

    /// The fast path of allocation: a free bit in the cursor's word.
    #[inline(always)]
    pub(super) fn alloc_from_current(
        &self,
        task: &TaskRef<'_>,
        class: usize,
    ) -> Option<NonNull<u8>> {
        let current = task.heap.bins[class].current.load(Relaxed);
        if current == 0 {
            return None;
        }
        let (span, class) = (current - 1, &CLASSES[class]);
        let (desc, bits) = (self.desc(span), self.bits(span, class));
        let word = desc.cursor.load(Relaxed);
        let taken = bits.alloc(word).load(Relaxed);
        if taken == u64::MAX {
            return None;
        }
        let bit = taken.trailing_ones();
        bits.alloc(word).store(taken | 1 << bit, Relaxed);
        kill_point!();
        desc.used.store(desc.used.load(Relaxed) + 1, Relaxed);
        let offset = class.first + (word * 64 + bit) * class.size;
        // SAFETY: the block is in the span.
        Some(unsafe { self.address_of_span(span).add(offset as usize) })
    }

    pub(super) fn alloc_small(
        &self,
        task: &TaskRef<'_>,
        class: usize,
        requested: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        let mut drained = false;
        loop {
            if let Some(block) = self.alloc_from_current(task, class) {
                return Ok(block);
            }
            if self.advance_cursor(task, class) {
                continue;
            }
            if !drained {
                drained = true;
                self.drain_pending(task);
                continue;
            }
            let span = self
                .pop_listed(task, class)
                .or_else(|| self.adopt_orphan(task, class))
                .map_or_else(|| self.claim_small(task, class, requested), Ok);
            let span = match span {
                Ok(span) => span,
                // When memory ran out, `reclaim` has collected in all spans of the task.
                Err(_) if self.advance_cursor(task, class) => continue,
                Err(error) => self.pop_listed(task, class).ok_or(error)?,
            };
            self.make_current(task, class, span);
        }
    }

    /// Points the current span's cursor to a word with a free block. Returns whether there is one.
    fn advance_cursor(&self, task: &TaskRef<'_>, class: usize) -> bool {
        let current = task.heap.bins[class].current.load(Relaxed);
        current != 0 && self.find_free_word(current - 1, &CLASSES[class])
    }

    fn find_free_word(&self, span: u32, class: &'static Class) -> bool {
        let (desc, bits) = (self.desc(span), self.bits(span, class));
        if desc.used.load(Relaxed) >= class.count {
            return false;
        }
        let free = (0..class.words).find(|&word| bits.alloc(word).load(Relaxed) != u64::MAX);
        if let Some(word) = free {
            desc.cursor.store(word, Relaxed);
        }
        free.is_some()
    }

    fn make_current(&self, task: &TaskRef<'_>, class: usize, span: u32) {
        let bin = &task.heap.bins[class];
        let old = bin.current.load(Relaxed);
        if old != 0 {
            self.desc(old - 1).membership.store(Desc::NOWHERE, Relaxed);
            kill_point!();
        }
        self.desc(span).membership.store(Desc::CURRENT, Relaxed);
        kill_point!();
        bin.current.store(span + 1, Relaxed);
        kill_point!();
        if old != 0 {
            // It is full except for blocks that were collected since the last search.
            self.settle(task, old - 1);
        }
    }

    fn claim_small(
        &self,
        task: &TaskRef<'_>,
        class: usize,
        requested: usize,
    ) -> Result<u32, AllocError> {
        let span = self.obtain(task, State::init(task.owner), requested)?;
        step!();
        let c = &CLASSES[class];
        let (desc, bits) = (self.desc(span), self.bits(span, c));
        for word in 0..c.words {
            bits.alloc(word).store(c.tail(word), Relaxed);
            bits.shared(word).store(0, Relaxed);
            bits.remote(word).store(0, Relaxed);
            kill_point!();
        }
        desc.cursor.store(0, Relaxed);
        desc.used.store(0, Relaxed);
        desc.membership.store(Desc::NOWHERE, Relaxed);
        step!();
        let state = State::small(class, Some(task.owner));
        // Release pairs with the acquire in `state`: a task that sees the span as small sees its bitmaps.
        self.entry(span).store(state.0, Release);
        step!();
        Ok(span)
    }

    /// The fast path of freeing: a private block of the task's own, whose span keeps its place. In all other cases it
    /// returns `false` and has freed nothing (but may have moved the cursor, which is a cache).
    ///
    /// # Safety
    ///
    /// The block is not used any more.
    #[inline(always)]
    pub(in crate::region) unsafe fn free_quick(
        &self,
        task: &TaskRef<'_>,
        block: NonNull<u8>,
    ) -> bool {
        let address = block.addr().get();
        let Some(offset) = self.offset_of(address) else {
            return false;
        };
        let span = (offset / SPAN_BYTES) as u32;
        let state = self.state(span);
        let Some(class) = CLASSES.get(state.class()) else {
            return false;
        };
        let Some(index) = class.index_of((address % SPAN_BYTES) as u32) else {
            return false;
        };
        let (desc, bits) = (self.desc(span), self.bits(span, class));
        let (at, used) = (desc.membership.load(Relaxed), desc.used.load(Relaxed));
        if !state.is_small_of(task.owner)
            || at != Desc::CURRENT && (at != Desc::LISTED || used == 1)
        {
            return false;
        }
        let (word, bit) = (index / 64, index % 64);
        if desc.cursor.load(Relaxed) != word {
            desc.cursor.store(word, Relaxed);
            kill_point!();
        }
        step!();
        // Read again: the following instructions then do not wait for the computation of `word`, which the branch
        // above has predicted.
        let word = desc.cursor.load(Relaxed);
        let taken = bits.alloc(word).load(Relaxed);
        // Relaxed: only the caller has the block, so no other task sets its bits now.
        let others = bits.shared(word).load(Relaxed) | bits.remote(word).load(Relaxed);
        if (taken & !others) >> bit & 1 == 0 {
            return false;
        }
        step!();
        bits.alloc(word).store(taken & !(1 << bit), Relaxed);
        step!();
        desc.used.store(used.wrapping_sub(1), Relaxed);
        kill_point!();
        true
    }

    pub(super) fn free_own_commit(
        &self,
        task: &TaskRef<'_>,
        span: u32,
        class: usize,
        address: usize,
    ) -> Freed {
        let (class, bit) = class_and_bit(class, address);
        let Bit { word, mask } = bit;
        let (desc, bits) = (self.desc(span), self.bits(span, class));
        let taken = bits.alloc(word).load(Relaxed);
        let remote = bits.remote(word).load(Relaxed);
        if taken & !remote & mask == 0 {
            misuse("double free of", address);
        }
        // Relaxed: only the caller has the block, so no other task sets its bit now.
        let was_shared = bits.shared(word).load(Relaxed) & mask != 0;
        // Only shared blocks are ever unlinked.
        if was_shared && self.defer_if_named(task, span, class, bit) {
            return Freed::Own(span);
        }
        step!();
        bits.alloc(word).store(taken & !mask, Relaxed);
        step!();
        if was_shared {
            // Other tasks may set other bits of the word at any time. A kill before this leaves a free block's bit,
            // which recovery clears.
            bits.shared(word).fetch_and(!mask, Relaxed);
            kill_point!();
        }
        desc.cursor.store(word, Relaxed);
        kill_point!();
        desc.used
            .store(desc.used.load(Relaxed).wrapping_sub(1), Relaxed);
        kill_point!();
        Freed::Own(span)
    }

    /// Releases what the task holds but does not use, when memory has run out.
    pub(super) fn reclaim(&self, task: &TaskRef<'_>) {
        for span in 0..self.committed() {
            let state = self.state(span);
            if !state.is_small_of(task.owner) {
                continue;
            }
            self.collect(span);
            let desc = self.desc(span);
            if desc.membership.load(Relaxed) == Desc::CURRENT && desc.used.load(Relaxed) == 0 {
                task.heap.bins[state.class()].current.store(0, Relaxed);
                kill_point!();
                desc.membership.store(Desc::NOWHERE, Relaxed);
                kill_point!();
            }
            self.settle(task, span);
        }
        // A task that was killed while freeing into an orphan left the block uncollected.
        for span in 0..self.committed() {
            let state = self.state(span);
            if state.is_orphan() && self.has_remote(span) && self.adopt(task, span, state) {
                self.settle(task, span);
            }
        }
    }

    // The lists of a task's spans, and the release of a span that has become empty.

    /// Puts a span of the task's own in its place, unless it is the current one: it is released if it is empty, and
    /// listed if it has free blocks.
    pub(super) fn settle(&self, task: &TaskRef<'_>, span: u32) {
        let desc = self.desc(span);
        let class = self.state(span).class();
        let used = desc.used.load(Relaxed);
        match desc.membership.load(Relaxed) {
            Desc::CURRENT => {}
            at if used == 0 => {
                if at == Desc::LISTED {
                    self.unlink(task, class, span);
                }
                self.release(span);
                set_near(&task.heap.near, span);
            }
            Desc::NOWHERE if used < CLASSES[class].count => self.push_listed(task, class, span),
            _ => {}
        }
    }

    /// Releases a span of the task's own that has no allocated block and is in no list.
    pub(super) fn release(&self, span: u32) {
        step!();
        // Release pairs with the acquire of the next claim.
        self.entry(span).store(State::FREE.0, Release);
        kill_point!();
        self.hint_free(span);
        kill_point!();
    }

    fn push_listed(&self, task: &TaskRef<'_>, class: usize, span: u32) {
        let (bin, desc) = (&task.heap.bins[class], self.desc(span));
        let head = bin.list.load(Relaxed);
        desc.next.store(head, Relaxed);
        desc.prev.store(0, Relaxed);
        kill_point!();
        if head != 0 {
            self.desc(head - 1).prev.store(span + 1, Relaxed);
            kill_point!();
        }
        bin.list.store(span + 1, Relaxed);
        kill_point!();
        desc.membership.store(Desc::LISTED, Relaxed);
        kill_point!();
    }

    fn unlink(&self, task: &TaskRef<'_>, class: usize, span: u32) {
        let desc = self.desc(span);
        let (next, prev) = (desc.next.load(Relaxed), desc.prev.load(Relaxed));
        match prev {
            0 => task.heap.bins[class].list.store(next, Relaxed),
            prev => self.desc(prev - 1).next.store(next, Relaxed),
        }
        kill_point!();
        if next != 0 {
            self.desc(next - 1).prev.store(prev, Relaxed);
            kill_point!();
        }
        desc.membership.store(Desc::NOWHERE, Relaxed);
        kill_point!();
    }

    pub(super) fn pop_listed(&self, task: &TaskRef<'_>, class: usize) -> Option<u32> {
        let head = task.heap.bins[class].list.load(Relaxed);
        let span = head.checked_sub(1)?;
        self.unlink(task, class, span);
        Some(span)
    }

    // Orphan spans, whose owner has died or left.

    /// Makes the task the owner of an orphan span; `false` if another task was faster.
    pub(super) fn adopt(&self, task: &TaskRef<'_>, span: u32, orphan: State) -> bool {
        debug_assert!(orphan.is_orphan());
        let own = orphan.with_owner(Some(task.owner));
        // SeqCst: collecting comes after it (see `free_remote_finish`). It includes the acquire that pairs with the
        // release of the recoverer that orphaned the span.
        if !self.change(span, orphan, own, SeqCst) {
            return false;
        }
        step!();
        // The recoverer's values in the descriptor are valid: the span had no owner since.
        self.collect(span);
        true
    }

    /// Adopts an orphan span of a class that has a free block.
    pub(super) fn adopt_orphan(&self, task: &TaskRef<'_>, class: usize) -> Option<u32> {
        let hint = &self.header().orphan_classes;
        if hint.load(Relaxed) & 1 << class == 0 {
            return None;
        }
        // Cleared before the search, so that a span orphaned during it sets the bit again.
        hint.fetch_and(!(1 << class), AcqRel);
        step!();
        let orphan = State::small(class, None);
        for span in 0..self.committed() {
            if self.entry(span).load(Relaxed) != orphan.0 || !self.adopt(task, span, orphan) {
                continue;
            }
            // There may be more orphans.
            hint.fetch_or(1 << class, AcqRel);
            kill_point!();
            if self.desc(span).used.load(Relaxed) < CLASSES[class].count {
                return Some(span);
            }
        }
        None
    }
}
