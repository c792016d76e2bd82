//! Memory goes back to the system, and comes from it again.
//!
//! A free span whose memory was given back is HOLLOW. It is free as one beyond `committed` is: nobody uses it
//! before the system has said that there is memory for it, so that a full system is an error of an allocation
//! and not a fault at the first touch.
//!
//! | step of a trim | a kill after it leaves | recovery makes it |
//! | --- | --- | --- |
//! | FREE → TRANSIT, marked hollow (CAS) | a span that only the dead task could touch | HOLLOW |
//! | the system takes the memory | the same | HOLLOW |
//! | TRANSIT → HOLLOW (store) | a HOLLOW span | – |
//!
//! | step of a refill | a kill after it leaves | recovery makes it |
//! | --- | --- | --- |
//! | HOLLOW → TRANSIT, marked hollow (CAS) | as above | HOLLOW |
//! | the system gives memory | memory behind a HOLLOW span, which the next refill finds | HOLLOW |
//! | TRANSIT → FREE (store) | a FREE span | – |
//!
//! `Header::hollow` counts at least the HOLLOW spans: raised before they are, lowered after. A kill leaves it too
//! high, and then a task that needs memory looks for hollow spans in vain before it has the region grow.
//!
//! Others go on meanwhile: a span that is being trimmed is nobody's, like one that is just being claimed. Who finds no
//! free one refills or grows.

use super::state::State;
use super::task::TaskRef;
use super::{GrowError, Heap};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Spans that a trim takes at a time: so many are withheld from others.
const TRIMMED: u32 = 64;
/// Spans that are refilled at a time, if there are so many side by side.
const REFILLED: u32 = 16;

impl Heap {
    /// Gives the memory of all free spans back to the system, and of those that the task has empty. Says of how
    /// many.
    pub fn trim(&self, task: &TaskRef<'_>) -> u32 {
        self.reclaim(task);
        let (mut given, mut span, end) = (0, 0, self.committed());
        while span < end {
            let run = self.withhold(task, span, end.min(span + TRIMMED), State::FREE);
            if run > 0 {
                self.header().hollow.fetch_add(run, Relaxed);
                kill_point!();
                if self.backing.empty(span, run).is_ok() {
                    given += run;
                }
                step!();
                // Also if it was refused: then a refill finds the memory there.
                self.put_back(span, run, State::HOLLOW);
            }
            span += run.max(1);
        }
        given
    }

    /// Whether the memory of a span was given back.
    pub(in crate::region) fn is_hollow(&self, span: u32) -> bool {
        self.state(span) == State::HOLLOW
    }

    /// Takes the spans from `first` on that are in a state, up to `end`; how many.
    fn withhold(&self, task: &TaskRef<'_>, first: u32, end: u32, from: State) -> u32 {
        let taken = (first..end).take_while(|&span| {
            let hollow = State::hollowing(task.owner);
            // Relaxed first: the CAS decides. Acquire: pairs with the release that freed the span.
            let taken = self.entry(span).load(Relaxed) == from.0
                && self
                    .entry(span)
                    .compare_exchange(from.0, hollow.0, AcqRel, Relaxed)
                    .is_ok();
            step!();
            taken
        });
        taken.count() as u32
    }

    fn put_back(&self, first: u32, run: u32, state: State) {
        for span in first..first + run {
            // Release: pairs with the acquire of the next claim.
            self.entry(span).store(state.0, Release);
            step!();
        }
    }

    /// Has memory put behind spans that were taken from HOLLOW, and frees them.
    fn fill(&self, first: u32, run: u32) -> Result<(), GrowError> {
        let filled = match self.backing.fill(first, run) {
            Ok(()) => run,
            // Not for all, perhaps for one.
            Err(error) => {
                let one = if run > 1 {
                    self.backing.fill(first, 1)
                } else {
                    Err(error)
                };
                let filled = u32::from(one.is_ok());
                self.put_back(first + filled, run - filled, State::HOLLOW);
                one?;
                filled
            }
        };
        step!();
        self.put_back(first, filled, State::FREE);
        self.header().hollow.fetch_sub(filled, Relaxed);
        kill_point!();
        self.hint_free(first);
        kill_point!();
        Ok(())
    }

    fn has_hollow(&self) -> bool {
        self.header().hollow.load(Relaxed) != 0
    }

    /// Puts memory behind some hollow spans, if there are any: whether there are more free spans now, of whomever.
    pub(super) fn refill(&self, task: &TaskRef<'_>) -> Result<bool, GrowError> {
        let committed = self.committed();
        if self.has_hollow() {
            for span in 0..committed {
                let end = committed.min(span + REFILLED);
                let run = self.withhold(task, span, end, State::HOLLOW);
                if run > 0 {
                    return self.fill(span, run).map(|()| true);
                }
            }
        }
        Ok(false)
    }

    /// The same where a run of so many spans, from `first` on, is free or hollow.
    fn refill_all(&self, task: &TaskRef<'_>, first: u32, spans: u32) -> Result<(), GrowError> {
        let (mut span, end) = (first, first + spans);
        while span < end {
            let run = self.withhold(task, span, end, State::HOLLOW);
            if run > 0 {
                self.fill(span, run)?;
            }
            span += run.max(1);
        }
        Ok(())
    }

    /// The same for a run of so many spans, the first of them aligned.
    pub(super) fn refill_run(
        &self,
        task: &TaskRef<'_>,
        spans: u32,
        align: u32,
    ) -> Result<bool, GrowError> {
        if !self.has_hollow() {
            return Ok(false);
        }
        let (mut start, mut hollow) = (self.aligned(0, align), 0);
        for span in 0..self.committed() {
            match State(self.entry(span).load(Acquire)) {
                State::FREE => {}
                State::HOLLOW => hollow += u32::from(span >= start),
                _ => (start, hollow) = (self.aligned(span + 1, align), 0),
            }
            if span + 1 >= start.saturating_add(spans) {
                if hollow > 0 {
                    return self.refill_all(task, start, spans).map(|()| true);
                }
                // All of them are free; another one has just freed them.
                return Ok(true);
            }
        }
        Ok(false)
    }
}
