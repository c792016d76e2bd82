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
use super::{
    AllocError, Bit, CLASSES, Class, Desc, Heap, Owner, SPAN_BYTES, State, TaskRef, misuse,
};
use crate::atomic::AtomicU64;
use crate::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

/// A span's place in its owner's *cache*: a task's current and listed spans.
impl Desc {
    /// The owner removes the span from its cache.
    pub(super) fn leave(&self) {
        self.cached.store(0, Relaxed);
        kill_point!();
        self.membership.store(Self::NOWHERE, Relaxed);
        kill_point!();
    }

    /// Moves the cursor. (`enter` computes the word's address again.)
    #[inline(always)]
    pub(super) fn point_to(&self, word: u32) {
        let moved = i64::from(word) - i64::from(self.cursor.load(Relaxed));
        let address = self.cursor_word.load(Relaxed);
        self.freed.store(0, Relaxed);
        kill_point!();
        self.cursor.store(word, Relaxed);
        kill_point!();
        let address = address.wrapping_add_signed(moved as isize * 8);
        self.cursor_word.store(address, Relaxed);
        kill_point!();
    }

    pub(super) fn cached_as(owner: Owner, class: usize) -> u64 {
        // The lowest 16 bits of an owner are 0.
        owner.raw() | (class as u64 + 1)
    }

    /// The class of a span that the calling task, `owner`, has in its cache.
    ///
    /// Relaxed: only this task stores its own identity here, and it stores 0 before it gives the span up. So it never
    /// reads a stale identity of its own.
    #[inline(always)]
    fn cached_by(&self, owner: Owner) -> Option<&'static Class> {
        // With any other owner, the result exceeds all classes.
        let class = self.cached.load(Relaxed) ^ owner.raw();
        CLASSES.get((class as usize).wrapping_sub(1))
    }

    /// The cursor's words of the bitmaps: `alloc`, `shared`, `remote`.
    ///
    /// # Safety
    ///
    /// The calling task has the span in its cache, and it is of this class.
    #[inline(always)]
    unsafe fn words(&self, class: &Class) -> [&AtomicU64; 3] {
        let alloc = self.cursor_word.load(Relaxed);
        let alloc = core::ptr::with_exposed_provenance::<u8>(alloc);
        [0, class.shared - class.alloc, class.remote - class.alloc].map(|distance| {
            // SAFETY: the task has stored the address of the cursor's word when it took the span into its cache (`enter`),
            // and moved it with the cursor since; the bitmaps of a class have these distances.
            unsafe { &*alloc.add(distance.into()).cast() }
        })
    }
}

impl Heap {
    /// The task takes a span of its own into its cache.
    fn enter(&self, task: &TaskRef<'_>, class: usize, span: u32, membership: u32) {
        let (desc, bits) = (self.desc(span), self.bits(span, &CLASSES[class]));
        desc.freed.store(0, Relaxed);
        kill_point!();
        let word = bits.alloc_address(desc.cursor.load(Relaxed));
        desc.cursor_word.store(word, Relaxed);
        kill_point!();
        desc.membership.store(membership, Relaxed);
        kill_point!();
        let cached = Desc::cached_as(task.owner, class);
        desc.cached.store(cached, Relaxed);
        kill_point!();
    }

    // Throughout: only a span's owner accesses `alloc` and the caches in the descriptor, so Relaxed suffices; a later
    // owner sees them by the acquire of the state. (Each task that frees a block reads `cached`: see `cached_by`.)

    /// The fast path of allocation: the block that was freed last, or a free bit in the cursor's word.
    ///
    /// The block's address is read from the descriptor. Computing it from the bit takes a search and a multiplication, and
    /// a free takes another multiplication; a task that allocates and frees in turn would wait for all three.
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
        let desc = self.desc(span);
        let freed = desc.freed.load(Relaxed);
        // SAFETY: the task's current span of this class is in its cache.
        let [alloc, ..] = unsafe { desc.words(class) };
        let taken = alloc.load(Relaxed);
        let (bit, offset) = if freed == 0 {
            let bit = taken.trailing_ones();
            if bit == 64 {
                return None;
            }
            let index = desc.cursor.load(Relaxed) * 64 + bit;
            (bit, class.first + index * class.size)
        } else {
            desc.freed.store(0, Relaxed);
            kill_point!();
            (desc.freed_bit.load(Relaxed) % 64, freed - 1)
        };
        debug_assert!(taken >> bit & 1 == 0);
        alloc.store(taken | 1 << bit, Relaxed);
        kill_point!();
        desc.used.store(desc.used.load(Relaxed) + 1, Relaxed);
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
            desc.point_to(word);
        }
        free.is_some()
    }

    fn make_current(&self, task: &TaskRef<'_>, class: usize, span: u32) {
        let bin = &task.heap.bins[class];
        let old = bin.current.load(Relaxed);
        if old != 0 {
            self.desc(old - 1).leave();
        }
        self.enter(task, class, span, Desc::CURRENT);
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
        desc.leave();
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
        let desc = self.desc(span);
        let Some(class) = desc.cached_by(task.owner) else {
            return false;
        };
        let Some(index) = class.index_of((address % SPAN_BYTES) as u32) else {
            return false;
        };
        let used = desc.used.load(Relaxed);
        // A listed span that becomes empty is released.
        if desc.membership.load(Relaxed) != Desc::CURRENT && used == 1 {
            return false;
        }
        let (word, bit) = (index / 64, index % 64);
        if desc.cursor.load(Relaxed) != word {
            desc.point_to(word);
        }
        step!();
        // The addresses come from the descriptor, not from `word`, so that the next instructions need not wait for `word`,
        // which the branch above has predicted.
        // SAFETY: `cached_by` has returned this class, so the span is in the task's cache.
        let [alloc, shared, remote] = unsafe { desc.words(class) };
        let taken = alloc.load(Relaxed);
        // Relaxed: only the caller has the block, so no other task sets its bits now.
        let others = shared.load(Relaxed) | remote.load(Relaxed);
        if (taken & !others) >> bit & 1 == 0 {
            return false;
        }
        step!();
        alloc.store(taken & !(1 << bit), Relaxed);
        step!();
        desc.used.store(used.wrapping_sub(1), Relaxed);
        kill_point!();
        desc.freed_bit.store(bit, Relaxed);
        desc.freed.store((address % SPAN_BYTES) as u32 + 1, Relaxed);
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
        desc.point_to(word);
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
                desc.leave();
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
        self.enter(task, class, span, Desc::LISTED);
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
        desc.leave();
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
        // The recoverer's count and cursor in the descriptor are valid: the span had no owner since.
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
