//! Large blocks: runs of whole spans.
//!
//! A run of several spans is built from its head: the head becomes TRANSIT, its length is stored, the parts are
//! claimed in ascending order, and the head becomes HEAD, which is the commit. A run is freed in the reverse
//! direction: the head becomes TRANSIT (the commit), the parts FREE, the head FREE. So a TRANSIT whose owner is dead
//! is dismantled in the same way in both cases.
//!
//! If several tasks claim overlapping runs, the task with the highest head meets no parts of the others, so at least
//! one of them gets its run.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use super::free_spans::{lower_hint, move_hint, take_near};
use super::{AllocError, Heap, Kind, Owner, SPAN_BYTES, State, TaskRef};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

impl Heap {
    #[cold]
    pub(super) fn alloc_large(
        &self,
        task: &TaskRef<'_>,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        let max = self.layout.max_spans;
        let requested = layout.size().max(layout.align());
        let spans = layout.size().div_ceil(SPAN_BYTES).max(1);
        let align = layout.align().div_ceil(SPAN_BYTES);
        if spans > max as usize || align > max as usize {
            let max = self.layout.data_bytes();
            return Err(AllocError::Exhausted { requested, max });
        }
        let (spans, align) = (spans as u32, align as u32);
        let head = if spans == 1 && align == 1 {
            self.obtain(task, State::head(1, task.owner), requested)?
        } else {
            self.obtain_run(task, spans, align, requested)?
        };
        Ok(self.address_of_span(head))
    }

    fn obtain_run(
        &self,
        task: &TaskRef<'_>,
        spans: u32,
        align: u32,
        requested: usize,
    ) -> Result<u32, AllocError> {
        let near = take_near(&task.heap.near_run);
        let end = near.saturating_add(spans).min(self.committed());
        if let Some(head) = self.claim_run_in(task, near, end, spans, align) {
            return Ok(head);
        }
        // Relaxed: a hint.
        let mut from = self.header().run_hint.load(Relaxed);
        loop {
            if let Some(head) = self.claim_run(task, from, spans, align) {
                return Ok(head);
            }
            if self.refill_run(task, spans, align) {
                from = 0;
                continue;
            }
            let committed = self.committed();
            let is_free = |state| [State::FREE.0, State::HOLLOW.0].contains(&state);
            let free = (0..committed)
                .rev()
                .take_while(|&span| is_free(self.entry(span).load(Relaxed)))
                .count() as u32;
            // The nearest aligned span to the free spans at the end.
            let first = self.aligned(committed - free, align);
            from = committed - free;
            let need = (first.saturating_add(spans))
                .saturating_sub(committed)
                .max(1);
            if let Err(error) = self.grow_by(need, requested) {
                self.reclaim(task);
                self.refill_run(task, spans, align);
                return self.claim_run(task, 0, spans, align).ok_or(error);
            }
        }
    }

    /// The first span from `span` on whose address is a multiple of `align` spans.
    pub(super) fn aligned(&self, span: u32, align: u32) -> u32 {
        let base = self.data.addr().get() / SPAN_BYTES;
        let at = base + span as usize;
        span.saturating_add((at.next_multiple_of(align as usize) - at) as u32)
    }

    /// Claims the first free run at `from` or after it, then before it.
    fn claim_run(&self, task: &TaskRef<'_>, from: u32, spans: u32, align: u32) -> Option<u32> {
        let committed = self.committed();
        let from = from.min(committed);
        let head = self
            .claim_run_in(task, from, committed, spans, align)
            .or_else(|| {
                let end = from.saturating_add(spans - 1).min(committed);
                self.claim_run_in(task, 0, end, spans, align)
            })?;
        move_hint(&self.header().run_hint, head + spans);
        Some(head)
    }

    fn claim_run_in(
        &self,
        task: &TaskRef<'_>,
        from: u32,
        end: u32,
        spans: u32,
        align: u32,
    ) -> Option<u32> {
        let mut start = self.aligned(from, align);
        while start.checked_add(spans)? <= end {
            let taken = (start..start + spans)
                .map(|span| (span, State(self.entry(span).load(Relaxed))))
                .find(|&(_, state)| state != State::FREE);
            let next = match taken {
                // If the length is just being changed, the search skips too much or too little, which is harmless.
                Some((span, state)) if state.kind() == Some(Kind::Head) => {
                    span.saturating_add(self.run_of(span, state).max(1))
                }
                Some((span, _)) => span + 1,
                None => match self.build(task, start, spans) {
                    Ok(()) => return Some(start),
                    Err(taken) => taken + 1,
                },
            };
            start = self.aligned(next, align);
        }
        None
    }

    /// Builds a run, or returns the span that was not free.
    fn build(&self, task: &TaskRef<'_>, head: u32, spans: u32) -> Result<(), u32> {
        let take = |span: u32, state: State| {
            // Acquire pairs with the release that freed the span.
            let taken = self.change(span, State::FREE, state, AcqRel);
            taken.then_some(()).ok_or(span)
        };
        if spans == 1 {
            take(head, State::head(1, task.owner))?;
            step!();
            return Ok(());
        }
        take(head, State::transit(spans, task.owner))?;
        step!();
        // A kill before this leaves an old length, but then no part names the head.
        self.desc(head).run.store(spans, Relaxed);
        step!();
        for span in head + 1..head + spans {
            if let Err(taken) = take(span, State::part(head)) {
                self.dismantle(head);
                return Err(taken);
            }
            step!();
        }
        // Release pairs with the acquire in `state`: the length is there.
        self.entry(head)
            .store(State::head(spans, task.owner).0, Release);
        step!();
        Ok(())
    }

    /// The number of spans in the run of a HEAD or TRANSIT.
    pub(super) fn run_of(&self, head: u32, state: State) -> u32 {
        if state.is_single() {
            return 1;
        }
        // Relaxed: the caller's acquire of the state covers it.
        self.desc(head).run.load(Relaxed)
    }

    /// Makes the freeing of a large block irrevocable; `false` if its state has changed meanwhile, so that the caller
    /// must read it again.
    pub(super) fn free_large_commit(&self, task: &TaskRef<'_>, head: u32, state: State) -> bool {
        let transit = State::transit(self.run_of(head, state), task.owner);
        let entry = self.entry(head);
        // Relaxed: the block belonged to the caller; the next owner of the spans synchronises with the releases in
        // `dismantle`.
        let freed = entry.compare_exchange(state.0, transit.0, AcqRel, Acquire);
        step!();
        freed.is_ok()
    }

    /// Frees the spans of a TRANSIT of the task's own. Can be repeated from the start.
    pub(super) fn dismantle(&self, head: u32) {
        let state = self.state(head);
        if state.is_shared() {
            // The head of a trim or a refill: it is unknown whether the span has memory, and whether it was counted. (A
            // count that is too high costs a search in vain.)
            crate::atomic::unless_disabled!(
                TrimIsCounted,
                {
                    self.header().hollow.fetch_add(1, Relaxed);
                },
                ()
            );
            self.entry(head).store(State::HOLLOW.0, Release);
            step!();
            return;
        }
        // After a kill the length may be an old one, and then beyond the end.
        let end = head
            .saturating_add(self.run_of(head, state))
            .min(self.layout.max_spans);
        for span in head + 1..end {
            if self.entry(span).load(Relaxed) == State::part(head).0 {
                // Release pairs with the acquire of the next claim.
                self.entry(span).store(State::FREE.0, Release);
                step!();
            }
        }
        self.entry(head).store(State::FREE.0, Release);
        kill_point!();
        self.hint_free(head);
        kill_point!();
        lower_hint(&self.header().run_hint, head);
        kill_point!();
    }

    /// Makes a large block private to the task that has unlinked it from a shared structure.
    pub(super) fn own_large(&self, owner: Owner, head: u32) {
        // AcqRel: pairs with the recovery of its former owner, which may orphan it meanwhile.
        let _ = self.entry(head).fetch_update(AcqRel, Relaxed, |entry| {
            let own = State(entry).with_owner(Some(owner)).with_shared(false);
            (State(entry).kind() == Some(Kind::Head)).then_some(own.0)
        });
    }

    pub(super) fn set_large_shared(&self, head: u32, shared: bool) {
        // Release: orders the change after the intent that it belongs to. In between, recovery may change the owner
        // field, and nothing else can change, since the caller holds the block.
        let _ = self.entry(head).fetch_update(Release, Relaxed, |entry| {
            let state = State(entry);
            (state.kind() == Some(Kind::Head)).then(|| state.with_shared(shared).0)
        });
    }
}
