//! Orphan spans, whose owner has died or left: the first task that needs one adopts it.

use super::Heap;
use super::classes::CLASSES;
use super::state::State;
use super::task::TaskRef;
use crate::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

impl Heap {
    /// Makes the task the owner of an orphan span; `false` if another task was faster.
    pub(super) fn adopt(&self, task: &TaskRef<'_>, span: u32, orphan: State) -> bool {
        debug_assert!(orphan.is_orphan());
        let own = orphan.with_owner(Some(task.owner));
        // SeqCst: collecting comes after it (see `free_remote_finish`). It includes the acquire that pairs with the
        // release of the recoverer that orphaned the span.
        let entry = self.entry(span);
        if entry
            .compare_exchange(orphan.0, own.0, SeqCst, Relaxed)
            .is_err()
        {
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
