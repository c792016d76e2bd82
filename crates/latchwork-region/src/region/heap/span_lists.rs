//! The lists of a task's small spans, and the release of a span that has become empty.

use super::Heap;
use super::classes::CLASSES;
use super::membership;
use super::state::State;
use super::task::TaskRef;
use crate::atomic::Ordering::{Relaxed, Release};

impl Heap {
    // Throughout: only a span's owner accesses `alloc` and the caches in the descriptor, so Relaxed suffices; a later
    // owner sees them by the acquire of the state.

    /// Puts a span of the task's own in its place, unless it is the current one: it is released if it is empty, and
    /// listed if it has free blocks.
    pub(super) fn settle(&self, task: &TaskRef<'_>, span: u32) {
        let desc = self.desc(span);
        let class = self.state(span).class();
        let used = desc.used.load(Relaxed);
        match desc.membership.load(Relaxed) {
            membership::CURRENT => {}
            at if used == 0 => {
                if at == membership::LISTED {
                    self.unlink(task, class, span);
                }
                self.release(span);
            }
            membership::NONE if used < CLASSES[class].count => self.push_listed(task, class, span),
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
        desc.membership.store(membership::LISTED, Relaxed);
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
        desc.membership.store(membership::NONE, Relaxed);
        kill_point!();
    }

    pub(super) fn pop_listed(&self, task: &TaskRef<'_>, class: usize) -> Option<u32> {
        let head = task.heap.bins[class].list.load(Relaxed);
        let span = head.checked_sub(1)?;
        self.unlink(task, class, span);
        Some(span)
    }
}
