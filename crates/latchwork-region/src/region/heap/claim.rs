//! How a free span is found: from a hint on, and by growing the region if there is none.

use super::{AllocError, Heap, State, TaskRef};
use crate::atomic::AtomicU32;
use crate::atomic::Ordering::{AcqRel, Relaxed};

impl Heap {
    /// Grows the region by at least `spans`, for a block of `requested` bytes.
    pub(super) fn grow_by(&self, spans: u32, requested: usize) -> Result<(), AllocError> {
        let before = self.committed();
        if self.layout.max_spans - before < spans {
            let max = self.layout.data_bytes();
            return Err(AllocError::Exhausted { requested, max });
        }
        match self.backing.grow(self, spans) {
            Ok(()) if self.committed() > before => Ok(()),
            _ => Err(AllocError::OutOfMemory { requested }),
        }
    }

    /// Records that a span is free, so that the next claim finds it.
    pub(super) fn hint_free(&self, span: u32) {
        lower_hint(&self.header().free_hint, span);
    }

    /// Claims a free span by changing its state to `target`.
    fn claim(&self, target: State) -> Option<u32> {
        let committed = self.committed();
        let hint = self.header().free_hint.load(Relaxed).min(committed);
        for span in (hint..committed).chain(0..hint) {
            // Relaxed: the CAS decides. Its Acquire pairs with the release that freed the span; its Release lets
            // recovery rely on the stores before it.
            if self.entry(span).load(Relaxed) == State::FREE.0
                && self.change(span, State::FREE, target, AcqRel)
            {
                kill_point!();
                move_hint(&self.header().free_hint, span);
                return Some(span);
            }
        }
        self.header().free_hint.store(committed, Relaxed);
        None
    }

    /// Claims a free span, refilling hollow ones or growing the region if there is none.
    pub(super) fn obtain(
        &self,
        task: &TaskRef<'_>,
        target: State,
        requested: usize,
    ) -> Result<u32, AllocError> {
        loop {
            if let Some(span) = self.claim(target) {
                return Ok(span);
            }
            if self.refill(task) {
                continue;
            }
            if let Err(error) = self.grow_by(1, requested) {
                self.reclaim(task);
                return self.claim(target).ok_or(error);
            }
        }
    }
}

/// Records that spans are free from `span` on.
///
/// Relaxed, here and below, and not atomic as a whole: it is only a hint, and a claim that finds nothing from it on
/// searches everywhere. It has the granularity of a cache line of the table, and is written only when it moves to
/// another line: all tasks read the header's line, and otherwise a task that allocates while another one frees would
/// have to fetch it each time.
pub(super) fn lower_hint(hint: &AtomicU32, span: u32) {
    if cache_line_start(span) < hint.load(Relaxed) {
        hint.store(cache_line_start(span), Relaxed);
    }
}

/// Records that there is no free span before `span`.
pub(super) fn move_hint(hint: &AtomicU32, span: u32) {
    if cache_line_start(span) != hint.load(Relaxed) {
        hint.store(cache_line_start(span), Relaxed);
    }
}

/// The first of the spans whose states share a cache line with that of `span`.
fn cache_line_start(span: u32) -> u32 {
    span & !7
}
