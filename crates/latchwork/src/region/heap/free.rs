//! Which way a block is freed, by whose it is and what it is; the ways are those of `small` and `large`.

use core::ptr::NonNull;

use super::layout::SPAN_BYTES;
use super::state::Kind;
use super::task::TaskRef;
use super::{Heap, misuse};

/// What remains to be done after the store that freed a block.
pub(super) enum Freed {
    /// The caller's own small span has one block less.
    Own(u32),
    /// The owner of a small span has a block to collect.
    Remote(u32),
    /// A run is the caller's to take apart.
    Large(u32),
    /// Another task's intent names the block, which stays as it is.
    Left,
}

impl Heap {
    #[cold]
    #[inline(never)]
    pub(super) fn free_slow(&self, task: &TaskRef<'_>, block: NonNull<u8>) {
        let freed = self.free_commit(task, block.addr().get());
        self.free_finish(task, freed);
    }

    /// Frees the block at `address` by one store, after which a recoverer of the
    /// task finds it freed, and before which allocated.
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
                // Its recovery frees it, if the location says so still; else it is lost.
                Some(Kind::Head)
                    if offset.is_multiple_of(SPAN_BYTES)
                        && state.is_shared()
                        && self.is_held_large(task.owner, span) =>
                {
                    return Freed::Left;
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
            Freed::Large(head) => self.take_apart(head),
            Freed::Left => {}
        }
    }
}
