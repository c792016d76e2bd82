//! How a block is freed, depending on its owner and kind; `small` and `large` implement the cases in which the task
//! owns the span. A block in another task's small span is freed by the span's `remote` bitmap, and by a hint that
//! notifies its owner, who collects such blocks.

use core::ptr::NonNull;

use super::free_spans::set_near;
use super::task::PENDING_WORDS;
use super::{Bit, CLASSES, Class, Heap, Kind, Owner, SPAN_BYTES, State, TaskRef, misuse};
use crate::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

/// The work that remains after the store that freed a block.
pub(super) enum Freed {
    /// The caller's own small span has one allocated block less.
    Own(u32),
    /// The owner of a small span has a block to collect.
    Remote(u32),
    /// The caller dismantles a run.
    Large(u32),
    /// Another task's intent names the block, which stays as it is.
    Deferred,
}

/// The class of a small span, and the bit of the block at `address` in it. Ends the process if there is none.
pub(super) fn class_and_bit(class: usize, address: usize) -> (&'static Class, Bit) {
    let Some(class) = CLASSES.get(class) else {
        misuse("corrupt span at", address)
    };
    let Some(bit) = class.bit_of((address % SPAN_BYTES) as u32) else {
        misuse("free of a pointer into", address)
    };
    (class, bit)
}

impl Heap {
    // Throughout: only a span's owner accesses `alloc` and the caches in the descriptor, so Relaxed suffices; a later
    // owner sees them by the acquire of the state.

    #[cold]
    #[inline(never)]
    pub(super) fn free_slow(&self, task: &TaskRef<'_>, block: NonNull<u8>) {
        let freed = self.free_commit(task, block.addr().get());
        self.free_finish(task, freed);
    }

    /// Frees the block at `address` by one store: a recoverer of the task finds the block allocated before it, and
    /// freed after it.
    pub(super) fn free_commit(&self, task: &TaskRef<'_>, address: usize) -> Freed {
        let Some(offset) = self.offset_of(address) else {
            misuse("free of a foreign pointer", address)
        };
        let span = (offset / SPAN_BYTES) as u32;
        loop {
            let state = self.state(span);
            match state.kind() {
                Some(Kind::Small) if state.is_small_of(task.owner) => {
                    return self.free_own_commit(task, span, state.class(), address);
                }
                Some(Kind::Small) if state.is_orphan() => {
                    self.adopt(task, span, state);
                }
                Some(Kind::Small) => return self.free_remote_commit(span, state.class(), address),
                // The recovery of that task frees the block if its location still says so; otherwise the block is lost.
                Some(Kind::Head)
                    if offset.is_multiple_of(SPAN_BYTES)
                        && state.is_shared()
                        && self.is_named_large(task.owner, span) =>
                {
                    return Freed::Deferred;
                }
                Some(Kind::Head) if offset.is_multiple_of(SPAN_BYTES) => {
                    if self.free_large_commit(task, span, state) {
                        return Freed::Large(span);
                    }
                }
                Some(Kind::Free | Kind::Transit | Kind::Hollow) => {
                    misuse("double free of", address)
                }
                _ => misuse("free of a pointer into", address),
            }
        }
    }

    pub(super) fn free_finish(&self, task: &TaskRef<'_>, freed: Freed) {
        match freed {
            Freed::Own(span) => self.settle(task, span),
            Freed::Remote(span) => self.free_remote_finish(task, span),
            Freed::Large(head) => {
                let near = match self.state(head).is_single() {
                    true => &task.heap.near,
                    false => &task.heap.near_run,
                };
                self.dismantle(head);
                set_near(near, head);
            }
            Freed::Deferred => {}
        }
    }

    /// If another task's live intent names a block of the task's own span, frees the block like another task's, by
    /// its `remote` bit: the recovery of that task notifies the owner when the block can be collected. Returns
    /// whether it did so.
    #[inline(never)]
    pub(super) fn defer_if_named(
        &self,
        task: &TaskRef<'_>,
        span: u32,
        class: &'static Class,
        Bit { word, mask }: Bit,
    ) -> bool {
        let held = self.named_blocks(span, class, word, Some(task.owner)) & mask != 0;
        if held {
            // SYNC remote-free: pairs with `collect`.
            self.bits(span, class).remote(word).fetch_or(mask, SeqCst);
            step!();
        }
        held
    }

    pub(super) fn free_remote_commit(&self, span: u32, class: usize, address: usize) -> Freed {
        let (class, Bit { word, mask }) = class_and_bit(class, address);
        let bits = self.bits(span, class);
        // Relaxed: the caller got the block after its allocation.
        if bits.alloc(word).load(Relaxed) & mask == 0 {
            misuse("double free of", address);
        }
        // SYNC remote-free: pairs with `collect`; the caller's accesses to the block are done before its next user
        // begins. SeqCst: see `notify_owner`.
        if bits.remote(word).fetch_or(mask, SeqCst) & mask != 0 {
            misuse("double free of", address);
        }
        step!();
        Freed::Remote(span)
    }

    pub(super) fn free_remote_finish(&self, task: &TaskRef<'_>, span: u32) {
        loop {
            // SeqCst, after the bit was set: a task that becomes the span's owner after this load collects after
            // that, and so sees the bit.
            let state = State(self.entry(span).load(SeqCst));
            match state.owner() {
                _ if state.kind() != Some(Kind::Small) => return,
                Some(owner) if owner == task.owner => return self.refresh(task, span),
                Some(owner) => return self.notify_owner(owner, span),
                None => {
                    if self.adopt(task, span, state) {
                        return self.settle(task, span);
                    }
                }
            }
        }
    }

    /// Notifies the owner of a span that it has blocks to collect.
    ///
    /// No hint is lost between living tasks: the notifier sets the bit in the bitmap, then reads the hint; the owner
    /// swaps the hint, then reads the bitmap, all SeqCst. If the notifier finds the hint set, the owner will see its
    /// bit when it reads the bitmap. A hint that a kill loses is repeated by the next notifier, since it checks both
    /// words each time.
    pub(super) fn notify_owner(&self, owner: Owner, span: u32) {
        let Some(heap) = self.task_heap(owner.slot()) else {
            return;
        };
        let bit = span as usize % (PENDING_WORDS * 64);
        let (word, mask) = (bit / 64, 1 << (bit % 64));
        if heap.pending[word].load(SeqCst) & mask == 0 {
            heap.pending[word].fetch_or(mask, SeqCst);
            kill_point!();
        }
        if heap.pending_words.load(SeqCst) & 1 << word == 0 {
            heap.pending_words.fetch_or(1 << word, SeqCst);
            kill_point!();
        }
    }

    /// Collects in the spans that other tasks have notified the task of.
    pub(super) fn drain_pending(&self, task: &TaskRef<'_>) {
        // Relaxed: a missed hint is found next time.
        if task.heap.pending_words.load(Relaxed) == 0 {
            return;
        }
        let mut words = task.heap.pending_words.swap(0, SeqCst);
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            words &= words - 1;
            kill_point!();
            let mut bits = task.heap.pending[word].swap(0, SeqCst);
            while bits != 0 {
                let first = word as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                for span in (first..self.committed()).step_by(PENDING_WORDS * 64) {
                    if self.state(span).is_small_of(task.owner) {
                        self.refresh(task, span);
                    }
                }
            }
        }
    }

    /// Collects in a span of the task's own, and then settles it.
    fn refresh(&self, task: &TaskRef<'_>, span: u32) {
        self.collect(span);
        self.settle(task, span);
    }

    /// Makes the blocks that other tasks have freed in a span of the task's own free for reuse, except those that a
    /// live intent names (invariant 6). Returns whether any are left.
    ///
    /// If the task is killed between two of the stores, its recoverer collects again, from the `remote` bits, which
    /// are cleared last.
    pub(super) fn collect(&self, span: u32) -> bool {
        let class = &CLASSES[self.state(span).class()];
        let (desc, bits) = (self.desc(span), self.bits(span, class));
        let mut left = false;
        for word in 0..class.words {
            // SYNC remote-free: pairs with `free_remote_commit`.
            let remote = bits.remote(word).load(SeqCst);
            if remote == 0 {
                continue;
            }
            let held = remote & self.named_blocks(span, class, word, None);
            left |= held != 0;
            let freed = remote & !held;
            if freed == 0 {
                continue;
            }
            step!();
            let taken = bits.alloc(word).load(Relaxed);
            bits.alloc(word).store(taken & !freed, Relaxed);
            step!();
            // Relaxed: no task sets the bits of freed blocks.
            bits.shared(word).fetch_and(!freed, Relaxed);
            step!();
            // Release, so that it is not made before the two above.
            bits.remote(word).fetch_and(!freed, AcqRel);
            step!();
            let gone = (taken & freed).count_ones();
            desc.used
                .store(desc.used.load(Relaxed).wrapping_sub(gone), Relaxed);
            desc.point_to(word);
        }
        left
    }

    /// Whether a small span has blocks to collect; only a guess unless the task owns the span.
    pub(super) fn has_remote(&self, span: u32) -> bool {
        let Some(class) = CLASSES.get(self.state(span).class()) else {
            return false;
        };
        let bits = self.bits(span, class);
        (0..class.words).any(|word| bits.remote(word).load(SeqCst) != 0)
    }
}
