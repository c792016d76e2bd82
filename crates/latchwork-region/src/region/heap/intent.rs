//! Linking blocks into shared structures, and unlinking them, in one step.
//!
//! A block that becomes reachable by a store to a *location* must change from private to shared at that store, and a
//! block that ceases to be reachable must be freed at that store. Since two or three words change, the task first
//! records its intent in its slot; its recoverer finishes or undoes the step.
//!
//! **Detectability.** The recoverer reads the location. If it holds the value *after*, the step took effect and is
//! finished; if it holds the value *before*, the step did not take effect and is undone. This is sound because no
//! other task changes the location in between: a lock that the dead task held protects it, or it is the dead task's
//! own, and **a dead task's recovery comes before the next holder of its locks continues**. A third value means that
//! this contract was broken; then the linked block is left shared and the unlinked block is left allocated, so that
//! the breach leaks and does not dangle.
//!
//! The order is: intent, shared bit, location, free, end of intent, and then the work that follows a free (the span
//! may be released, its owner is notified). So a block is shared before any task can find it, and
//!
//! **"has the unlinked block been freed?" has an answer** as long as the intent lives, since the block cannot be
//! reused before:
//! - In a small span of the task's own, no other task allocates, and the span is released only after the intent has
//!   ended: its `alloc` bit is the answer.
//! - In the span of another task, the `remote` bit is the answer, and a task that collects leaves the bits of blocks
//!   that live intents name. Before such an intent is valid, its task sets its bit in `retiring`; a collector that
//!   sees the `remote` bit (set after that, with release) also sees that one.
//! - A large block's head stays in TRANSIT until the intent has ended.
//!
//! **If the dead task was not the lock's holder**, but another thread of the holder's process, to which the holder
//! had passed a reference to the protected data: a kill ends both, one after the other. The holder is recovered, the
//! lock passes on, and the next holder may unlink and free the very block that the other thread's intent still names.
//! (The structure looks as if the holder itself had made that thread's change; the thread runs no more instructions.)
//! Therefore no task makes a block free for reuse that another task's live intent names: the owner of a small span
//! marks the block in `remote`, as other tasks do; a large block is left to the recovery that will ask for it.

#![allow(unsafe_code)]

use core::ptr::{self, NonNull};

use super::blocks::Block;
use super::{Bit, CLASSES, Class, Heap, Kind, Owner, SPAN_BYTES, State, TaskHeap, TaskRef, misuse};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{AtomicU64, AtomicUsize, prefetch_to_write};

/// The intent is valid.
const ACTIVE: u64 = 1;
/// The linked block was private, and becomes private again if the step is undone.
const WAS_PRIVATE: u64 = 2;

impl Heap {
    /// Links `block` into a shared structure: stores `value` (usually the block's address) in `location`, and marks the
    /// block as shared, as if in one step.
    ///
    /// If the task is killed, its recovery makes both or neither take effect. Aborts the process if `block` is not
    /// the address of an allocated block.
    ///
    /// # Safety
    ///
    /// - `location` is in the region, and stays valid until the call, or the task's recovery, has returned.
    /// - No other task stores to it meanwhile; so if a lock protects it, the recovery of a dead holder is complete
    ///   before the next holder continues.
    /// - The block is not freed meanwhile.
    pub unsafe fn publish(
        &self,
        task: &TaskRef<'_>,
        block: NonNull<u8>,
        location: &AtomicUsize,
        value: usize,
    ) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.replace(task, None, Some(block), location, value) };
    }

    /// Unlinks `block` from a shared structure: stores `value` in `location`, and frees the block, as if in one step.
    ///
    /// # Safety
    ///
    /// As for [`Heap::publish`], and no task finds or uses the block once `value` is in `location`.
    pub unsafe fn retire(
        &self,
        task: &TaskRef<'_>,
        block: NonNull<u8>,
        location: &AtomicUsize,
        value: usize,
    ) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.replace(task, Some(block), None, location, value) };
    }

    /// Unlinks `block` from a shared structure: stores `value` in `location`, and makes the block private to the
    /// task, as if in one step. If the task is killed, the block is still linked, or is private and treated like the
    /// task's other blocks.
    ///
    /// Only a large block, or one in a span of the task's own, can be private to it: for any other block this returns
    /// `false`, and has changed nothing.
    ///
    /// # Safety
    ///
    /// As for [`Heap::retire`], except that the task may use the block.
    pub unsafe fn take(
        &self,
        task: &TaskRef<'_>,
        block: NonNull<u8>,
        location: &AtomicUsize,
        value: usize,
    ) -> bool {
        let address = block.addr().get();
        if let Some(offset) = self.offset_of(address) {
            // The state is about to be read and then changed: fetch its cache line once, for both.
            prefetch_to_write(ptr::from_ref(self.entry((offset / SPAN_BYTES) as u32)).cast());
        }
        let is_own = self.is_own_small(task, address);
        if !is_own && !matches!(self.find(address), Some(Block::Large { .. })) {
            return false;
        }
        // Until the block is private to the task, its recoverer frees it if the location says so, as it would have to
        // afterwards.
        self.step(task, location, value, (0, address), |heap| {
            match heap.find(address) {
                Some(Block::Large { head, .. }) => heap.own_large(task.owner, head),
                _ => heap.set_shared(address, false),
            }
            step!();
        });
        true
    }

    /// Links `new` and unlinks `old` by one store of `value` to `location`, as a growing container does.
    ///
    /// # Safety
    ///
    /// As for [`Heap::publish`] and [`Heap::retire`].
    pub unsafe fn replace(
        &self,
        task: &TaskRef<'_>,
        old: Option<NonNull<u8>>,
        new: Option<NonNull<u8>>,
        location: &AtomicUsize,
        value: usize,
    ) {
        let [old, new] = [old, new].map(|block| block.map_or(0, |block| block.addr().get()));
        let mut freed = None;
        self.step(task, location, value, (new, old), |heap| {
            freed = (old != 0).then(|| heap.free_commit(task, old));
        });
        if let Some(freed) = freed {
            self.free_finish(task, freed);
        }
    }

    /// Links one block and unlinks another, which `settle` then frees or takes; 0 means none.
    #[inline]
    fn step(
        &self,
        task: &TaskRef<'_>,
        location: &AtomicUsize,
        value: usize,
        (linked, unlinked): (usize, usize),
        settle: impl FnOnce(&Self),
    ) {
        let was_private = linked != 0 && !self.is_shared(linked);
        let named = unlinked != 0 && !self.is_own_small(task, unlinked);
        let intent = &task.heap.intent;
        // Relaxed, except `flags`: no other task reads these fields while `flags` is 0.
        intent
            .location
            .store(ptr::from_ref(location).expose_provenance(), Relaxed);
        // Relaxed: no other task stores to it, by contract.
        intent.before.store(location.load(Relaxed), Relaxed);
        intent.after.store(value, Relaxed);
        intent.linked.store(linked, Relaxed);
        intent.unlinked.store(unlinked, Relaxed);
        step!();
        if named {
            self.set_retiring(task.owner, true);
            step!();
        }
        let flags = ACTIVE | if was_private { WAS_PRIVATE } else { 0 };
        // SYNC intent: pairs with the acquires in `each_retired` and `finish_intent`.
        intent.flags.store(flags, Release);
        step!();
        if was_private {
            self.set_shared(linked, true);
            step!();
        }
        // Release: a task that finds the block through the location sees the block's contents.
        location.store(value, Release);
        step!();
        settle(self);
        step!();
        // SYNC intent: pairs with the acquire in `each_retired`.
        intent.flags.store(0, Release);
        step!();
        if named {
            self.set_retiring(task.owner, false);
            step!();
        }
    }

    fn is_own_small(&self, task: &TaskRef<'_>, address: usize) -> bool {
        match self.find(address) {
            Some(Block::Small { span, .. }) => self.state(span).is_small_of(task.owner),
            Some(Block::Large { .. }) => false,
            None => misuse("double free of", address),
        }
    }

    fn retiring(&self, word: usize) -> &AtomicU64 {
        debug_assert!(word < (self.layout.slots as usize).div_ceil(64));
        // SAFETY: the layout has a bit for each slot, and callers have checked the index.
        unsafe { self.retiring.add(word).as_ref() }
    }

    /// Sets whether a task may have an intent that names a block outside its own small spans. Only that task, or its
    /// recoverer, writes the bit.
    fn set_retiring(&self, owner: Owner, retiring: bool) {
        let (word, mask) = (owner.slot() as usize / 64, 1 << (owner.slot() % 64));
        match retiring {
            true => self.retiring(word).fetch_or(mask, SeqCst),
            false => self.retiring(word).fetch_and(!mask, SeqCst),
        };
    }

    /// Calls `each` with the offsets of the blocks that live intents unlink, except those of `except`.
    fn each_retired(&self, except: Option<Owner>, mut each: impl FnMut(usize)) {
        for index in 0..(self.layout.slots as usize).div_ceil(64) {
            let mut slots = self.retiring(index).load(SeqCst);
            while slots != 0 {
                let slot = index as u32 * 64 + slots.trailing_zeros();
                slots &= slots - 1;
                if except.is_some_and(|owner| u32::from(owner.slot()) == slot) {
                    continue;
                }
                let Some(heap) = self.task_heap(slot as u16) else {
                    continue;
                };
                // SYNC intent: Acquire pairs with the store of `flags`. If the address is already that of the task's
                // next intent, the intent that matters to the caller has ended.
                if heap.intent.flags.load(Acquire) != 0
                    && let Some(offset) = self.offset_of(heap.intent.unlinked.load(Relaxed))
                {
                    each(offset);
                }
            }
        }
    }

    /// The blocks of one bitmap word of a span that live intents unlink, except those of `except`.
    pub(super) fn named_blocks(
        &self,
        span: u32,
        class: &Class,
        word: u32,
        except: Option<Owner>,
    ) -> u64 {
        let mut held = 0;
        self.each_retired(except, |offset| {
            if (offset / SPAN_BYTES) as u32 == span
                && let Some(bit) = class.bit_of((offset % SPAN_BYTES) as u32)
                && bit.word == word
            {
                held |= bit.mask;
            }
        });
        held
    }

    /// Whether a live intent of a task other than `task` unlinks a large block.
    pub(super) fn is_named_large(&self, task: Owner, head: u32) -> bool {
        let mut held = false;
        self.each_retired(Some(task), |offset| {
            held |= offset == head as usize * SPAN_BYTES;
        });
        held
    }

    /// No task has an intent: in a region of doubtful origin that has no task.
    pub(in crate::region) fn forget_intents(&self) {
        for index in 0..(self.layout.slots as usize).div_ceil(64) {
            // Relaxed: a task sees it by its attach.
            self.retiring(index).store(0, Relaxed);
        }
    }

    /// Finishes or undoes the step that `dead` was making. Can be repeated.
    pub(super) fn finish_intent(&self, dead: Owner, heap: &TaskHeap) {
        let intent = &heap.intent;
        // SYNC intent: Acquire pairs with the store of `flags` in `step`.
        let flags = intent.flags.load(Acquire);
        let mut owner = None;
        if flags & ACTIVE != 0 {
            // SAFETY: by the contract of `publish` the location is in the region, and valid until this has returned.
            let location = unsafe {
                AtomicUsize::from_ptr(ptr::with_exposed_provenance_mut(
                    intent.location.load(Relaxed),
                ))
            };
            let (linked, unlinked) = (intent.linked.load(Relaxed), intent.unlinked.load(Relaxed));
            let now = location.load(Acquire);
            if now == intent.after.load(Relaxed) {
                // The block is not shared yet only if the two values are the same.
                if flags & WAS_PRIVATE != 0 && self.find(linked).is_some() {
                    self.set_shared(linked, true);
                    step!();
                }
                if unlinked != 0 {
                    if let Some(block) = NonNull::new(ptr::without_provenance_mut(unlinked)) {
                        crate::hook::freed(|| self.addresses_of(block));
                    }
                    owner = self.free_for_dead(dead, unlinked);
                }
            } else if now == intent.before.load(Relaxed)
                && flags & WAS_PRIVATE != 0
                && self.find(linked).is_some()
            {
                self.set_shared(linked, false);
                step!();
            }
            intent.flags.store(0, Release);
            step!();
        }
        self.set_retiring(dead, false);
        step!();
        if let Some((owner, span)) = owner {
            self.notify_owner(owner, span);
        }
    }

    /// Whether this library could have made the intent of a task: its location is in the region, and its blocks are
    /// in committed spans of the heap. For a region of doubtful origin, before it is swept.
    pub(in crate::region) fn is_plausible(&self, heap: &TaskHeap) -> bool {
        let intent = &heap.intent;
        if intent.flags.load(Acquire) & ACTIVE == 0 {
            return true;
        }
        let location = intent.location.load(Relaxed);
        let region =
            self.tasks.first.addr().get()..self.data.addr().get() + self.layout.data_bytes();
        let is_backed = |offset: usize| offset / SPAN_BYTES < self.committed() as usize;
        let is_block = |block: &AtomicUsize| match block.load(Relaxed) {
            0 => true,
            address => self.offset_of(address).is_some_and(is_backed),
        };
        region.contains(&location)
            && location.is_multiple_of(align_of::<AtomicUsize>())
            && self.offset_of(location).is_none_or(is_backed)
            && is_block(&intent.linked)
            && is_block(&intent.unlinked)
    }

    /// Frees the block at `address` unless it is freed already, on behalf of the intent of a dead task. Returns the
    /// owner that must be notified, if any, and the span.
    fn free_for_dead(&self, dead: Owner, address: usize) -> Option<(Owner, u32)> {
        let offset = self.offset_of(address)?;
        let span = (offset / SPAN_BYTES) as u32;
        loop {
            let state = self.state(span);
            match state.kind()? {
                Kind::Small => {
                    let class = CLASSES.get(state.class())?;
                    let Bit { word, mask } = class.bit_of((offset % SPAN_BYTES) as u32)?;
                    let bits = self.bits(span, class);
                    match state.owner() {
                        Some(owner) if owner == dead => {
                            // Relaxed: a dead owner's bitmap belongs to its recoverer.
                            let taken = bits.alloc(word).load(Relaxed);
                            if bits.remote(word).load(Relaxed) & mask == 0 {
                                bits.alloc(word).store(taken & !mask, Relaxed);
                                step!();
                            }
                            return None;
                        }
                        Some(owner) => {
                            // SYNC remote-free.
                            bits.remote(word).fetch_or(mask, SeqCst);
                            step!();
                            return Some((owner, span));
                        }
                        None => {
                            // The rest of the dead task's recovery frees the block.
                            self.change(span, state, state.with_owner(Some(dead)), AcqRel);
                            step!();
                        }
                    }
                }
                // As in `free_commit`: the recovery of the task whose intent names the block frees it.
                Kind::Head if self.is_named_large(dead, span) => return None,
                Kind::Head => {
                    let transit = State::transit(self.run_of(span, state), dead);
                    self.change(span, state, transit, AcqRel);
                    step!();
                }
                _ => return None,
            }
        }
    }
}
