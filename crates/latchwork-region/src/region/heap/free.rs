//! How a block is freed, depending on its owner and kind; `small` and `large` implement the cases.

use core::ptr::NonNull;

use super::Heap;
use super::error::misuse;
use super::layout::SPAN_BYTES;
use super::state::Kind;
use super::task::TaskRef;

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

impl Heap {
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
            Freed::Large(head) => self.dismantle(head),
            Freed::Deferred => {}
        }
    }
}
