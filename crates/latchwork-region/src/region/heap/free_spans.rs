//! Free spans: how one is found, by hints, and by growing the region if there is none; and how their memory returns
//! to the system, and comes back.
//!
//! A free span whose memory was returned is HOLLOW. Like a span beyond `committed`, it is not used before the system
//! has provided memory for it. So a lack of memory in the system is an error of an allocation, and not a fault at the
//! first access.
//!
//! | step of a trim | state after a kill | recovery makes it |
//! | --- | --- | --- |
//! | FREE → TRANSIT, marked hollow (CAS) | a span that only the dead task could access | HOLLOW |
//! | the system takes the memory | the same | HOLLOW |
//! | TRANSIT → HOLLOW (store) | a HOLLOW span | – |
//!
//! | step of a refill | state after a kill | recovery makes it |
//! | --- | --- | --- |
//! | HOLLOW → TRANSIT, marked hollow (CAS) | as above | HOLLOW |
//! | the system provides memory | memory of a HOLLOW span, which the next refill finds | HOLLOW |
//! | TRANSIT → FREE (store) | a FREE span | – |
//!
//! `Header::hollow` is an upper bound of the number of HOLLOW spans: it is raised before spans become HOLLOW, and
//! lowered after they cease to be. After a kill it may stay too high; then a task that needs memory searches for
//! hollow spans in vain before it grows the region.
//!
//! Other tasks go on meanwhile: no other task can use a span that is being trimmed, just as one that is being
//! claimed. A task that finds no free span refills or grows.

use super::{AllocError, Heap, State, TaskRef};
use crate::atomic::AtomicU32;
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The number of spans that a trim takes at a time, and thus withholds from other tasks.
const TRIMMED: u32 = 64;
/// The maximum number of adjacent spans that are refilled at a time.
const REFILLED: u32 = 16;

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

    /// Claims a free span by changing its state to `target`: the one that the task freed last, or else one that the common
    /// hint leads to.
    fn claim(&self, task: &TaskRef<'_>, target: State) -> Option<u32> {
        // Relaxed: the CAS decides. Its Acquire pairs with the release that freed the span; its Release lets recovery rely
        // on the stores before it.
        let take = |span| {
            self.entry(span).load(Relaxed) == State::FREE.0
                && self.change(span, State::FREE, target, AcqRel)
        };
        let committed = self.committed();
        let near = take_near(&task.heap.near);
        if near < committed && take(near) {
            kill_point!();
            return Some(near);
        }
        let hint = self.header().free_hint.load(Relaxed).min(committed);
        for span in (hint..committed).chain(0..hint) {
            if take(span) {
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
            if let Some(span) = self.claim(task, target) {
                return Ok(span);
            }
            if self.refill(task) {
                continue;
            }
            if let Err(error) = self.grow_by(1, requested) {
                self.reclaim(task);
                return self.claim(task, target).ok_or(error);
            }
        }
    }

    /// Returns the memory of all free spans to the system, including empty spans that the task owns. Returns the
    /// number of spans.
    pub fn trim(&self, task: &TaskRef<'_>) -> u32 {
        self.reclaim(task);
        let mut trimmed = 0;
        for (span, run) in self.withheld(task, 0, self.committed(), TRIMMED, State::FREE) {
            self.header().hollow.fetch_add(run, Relaxed);
            kill_point!();
            if self.backing.empty(span, run).is_ok() {
                trimmed += run;
            }
            step!();
            // Also if the system refused: then a refill finds that there is memory.
            self.put_back(span, run, State::HOLLOW);
        }
        trimmed
    }

    /// Whether the memory of a span was returned.
    pub(in crate::region) fn is_hollow(&self, span: u32) -> bool {
        self.state(span) == State::HOLLOW
    }

    /// Withholds the spans in state `from`, from `first` on and before `end`, up to the first other one. Returns
    /// their number.
    fn withhold(&self, task: &TaskRef<'_>, first: u32, end: u32, from: State) -> u32 {
        let taken = (first..end).take_while(|&span| {
            let hollow = State::hollowing(task.owner);
            // Relaxed first: the CAS decides. Acquire: pairs with the release that freed the span.
            let taken =
                self.entry(span).load(Relaxed) == from.0 && self.change(span, from, hollow, AcqRel);
            step!();
            taken
        });
        taken.count() as u32
    }

    /// Withholds all spans in state `from`, from `span` on and before `end`: the runs of at most `most` adjacent ones,
    /// each when the caller asks for it.
    fn withheld(
        &self,
        task: &TaskRef<'_>,
        mut span: u32,
        end: u32,
        most: u32,
        from: State,
    ) -> impl Iterator<Item = (u32, u32)> {
        core::iter::from_fn(move || {
            while span < end {
                let first = span;
                let run = self.withhold(task, first, end.min(first.saturating_add(most)), from);
                span += run.max(1);
                if run > 0 {
                    return Some((first, run));
                }
            }
            None
        })
    }

    fn put_back(&self, first: u32, run: u32, state: State) {
        for span in first..first + run {
            // Release: pairs with the acquire of the next claim.
            self.entry(span).store(state.0, Release);
            step!();
        }
    }

    /// Gets memory for spans that were taken from HOLLOW, and frees them: for all, or, `or_one`, else for the first. Returns
    /// whether there was memory.
    fn fill(&self, first: u32, run: u32, or_one: bool) -> bool {
        let is_backed = |spans| self.backing.fill(first, spans).is_ok();
        let filled = match run {
            _ if is_backed(run) => run,
            // If there is not enough for all, there may be enough for one.
            2.. if or_one && is_backed(1) => 1,
            _ => 0,
        };
        self.put_back(first + filled, run - filled, State::HOLLOW);
        if filled == 0 {
            return false;
        }
        step!();
        self.put_back(first, filled, State::FREE);
        self.header().hollow.fetch_sub(filled, Relaxed);
        kill_point!();
        self.hint_free(first);
        kill_point!();
        true
    }

    fn has_hollow(&self) -> bool {
        self.header().hollow.load(Relaxed) != 0
    }

    /// Gets memory for some hollow spans, if there are any. Returns whether there are more free spans now, by
    /// whichever task.
    pub(super) fn refill(&self, task: &TaskRef<'_>) -> bool {
        let mut runs = self.withheld(task, 0, self.committed(), REFILLED, State::HOLLOW);
        let run = self.has_hollow().then(|| runs.next()).flatten();
        run.is_some_and(|(span, run)| self.fill(span, run, true))
    }

    /// The same for a run of `spans` spans that are free or hollow, the first of them aligned.
    pub(super) fn refill_run(&self, task: &TaskRef<'_>, spans: u32, align: u32) -> bool {
        if !self.has_hollow() {
            return false;
        }
        let (mut start, mut hollow) = (self.aligned(0, align), 0);
        for span in 0..self.committed() {
            match State(self.entry(span).load(Acquire)) {
                State::FREE => {}
                State::HOLLOW => hollow += u32::from(span >= start),
                _ => (start, hollow) = (self.aligned(span + 1, align), 0),
            }
            if span + 1 >= start.saturating_add(spans) {
                // If none is hollow, all spans of the run are free: another task has just freed them.
                let mut runs = self.withheld(task, start, start + spans, spans, State::HOLLOW);
                return hollow == 0 || runs.all(|(span, run)| self.fill(span, run, false));
            }
        }
        false
    }
}

/// Takes a task's hint: the span, or the head of the run, that it freed last, or `u32::MAX` if there is none. The hint is
/// cleared, and the next claim begins at the common hint: a hint that moved on with each claim would lead the task through
/// all memory.
pub(super) fn take_near(near: &AtomicU32) -> u32 {
    let index = near.load(Relaxed).wrapping_sub(1);
    near.store(0, Relaxed);
    kill_point!();
    index
}

/// Sets a task's hint: its next claim tries `span` first.
pub(super) fn set_near(near: &AtomicU32, span: u32) {
    near.store(span.wrapping_add(1), Relaxed);
    kill_point!();
}

/// Records that spans are free from `span` on.
///
/// Relaxed, here and below, and not atomic as a whole: it is only a hint, and a claim that finds nothing from it on
/// searches everywhere. It has the granularity of 8 spans, and is written only when it moves to others: all tasks read
/// the header's line, and otherwise a task that allocates while another one frees would have to fetch it each time.
pub(super) fn lower_hint(hint: &AtomicU32, span: u32) {
    if group_start(span) < hint.load(Relaxed) {
        hint.store(group_start(span), Relaxed);
    }
}

/// Records that there is no free span before `span`.
pub(super) fn move_hint(hint: &AtomicU32, span: u32) {
    if group_start(span) != hint.load(Relaxed) {
        hint.store(group_start(span), Relaxed);
    }
}

/// The first of the 8 spans that hints do not tell apart.
fn group_start(span: u32) -> u32 {
    span & !7
}
