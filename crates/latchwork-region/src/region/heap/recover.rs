//! Recovery of a dead task's part of the heap.
//!
//! All of it is derived from the span table and the bitmaps. Each store leaves a state from which recovery can start
//! again, since the recoverer may be killed as well.

#![allow(unsafe_code)]

use super::layout::CLASS_COUNT;
use super::{CLASSES, Heap, Kind, Owner, State};
use crate::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

/// What happens to the private blocks of a task that died.
///
/// Shared blocks stay in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDeath {
    /// They are freed.
    #[default]
    Free,
    /// They become shared, and stay until a task frees them.
    Keep,
    /// They become private blocks of this living task, as if it had allocated them.
    Adopt(Owner),
}

impl Heap {
    /// Recovers a dead task's part: finishes or undoes its intent, treats its private blocks by `policy`, and
    /// releases its spans to other tasks.
    ///
    /// The recoverer may be killed at any instruction and the recovery repeated, also with another policy for the
    /// rest. A task that leaves in an orderly way is recovered likewise. Blocks that a living task is freeing
    /// meanwhile are left to that task.
    ///
    /// # Safety
    ///
    /// - `dead` does not run any more, and no other task takes its slot before this has returned.
    /// - Only one task at a time recovers `dead`.
    /// - The contract of [`Heap::publish`]: the recovery is complete before the next holder of a lock that `dead`
    ///   held continues.
    pub unsafe fn recover(&self, dead: Owner, policy: OnDeath) {
        let Some(heap) = self.task_heap(dead.slot()) else {
            return;
        };
        crate::atomic::unless_disabled!(SweepFinishesIntent, self.finish_intent(dead, heap), ());
        for span in 0..self.committed() {
            let state = self.state(span);
            if !state.is_owned_by(dead) {
                continue;
            }
            match state.kind() {
                Some(Kind::Init) => crate::atomic::unless_disabled!(
                    SweepReleasesClaimedSpan,
                    self.release(span),
                    ()
                ),
                Some(Kind::Small) => self.recover_small(span, state, policy),
                Some(Kind::Transit) => crate::atomic::unless_disabled!(
                    SweepDismantlesLargeBlock,
                    self.dismantle(span),
                    ()
                ),
                Some(Kind::Head) => self.recover_large(dead, span, policy),
                _ => {}
            }
        }
        heap.reset();
        // The task may have been killed while it searched for orphans, or an earlier recoverer while it made some:
        // set all bits, so that all tasks search.
        let all = (1 << CLASS_COUNT) - 1;
        crate::atomic::unless_disabled!(
            SweepShowsOrphans,
            {
                self.header().orphan_classes.fetch_or(all, Release);
            },
            ()
        );
        step!();
    }

    fn recover_small(&self, span: u32, state: State, policy: OnDeath) {
        let Some(class) = CLASSES.get(state.class()) else {
            return;
        };
        let (desc, bits) = (self.desc(span), self.bits(span, class));
        loop {
            let held = self.collect(span);
            let mut used = 0;
            for word in 0..class.words {
                let tail = class.tail(word);
                let taken = bits.alloc(word).load(Relaxed);
                // Clears the bits of freed blocks whose owner was killed before it cleared them.
                if bits.shared(word).load(Relaxed) & !taken != 0 {
                    bits.shared(word).fetch_and(taken, AcqRel);
                    step!();
                }
                // A block that another task is freeing stays until it is collected.
                let remote = bits.remote(word).load(SeqCst);
                let stays = match policy {
                    OnDeath::Free => taken & (bits.shared(word).load(Relaxed) | remote | tail),
                    _ => taken,
                };
                if policy == OnDeath::Keep {
                    bits.shared(word).fetch_or(taken & !tail, AcqRel);
                    step!();
                }
                bits.alloc(word).store(stays, Relaxed);
                step!();
                used += (stays & !tail).count_ones();
            }
            desc.used.store(used, Relaxed);
            desc.cursor.store(0, Relaxed);
            desc.leave();
            step!();
            if used == 0 {
                return self.release(span);
            }
            let next = match policy {
                OnDeath::Adopt(owner) => Some(owner),
                _ => None,
            };
            // SeqCst: a task that frees into the span sets its bit and then reads the owner; this changes the owner
            // and then reads the bits. At least one of the two sees the other's store. It includes a Release: the
            // next owner sees the stores above.
            self.entry(span).store(state.with_owner(next).0, SeqCst);
            step!();
            if let Some(owner) = next {
                return self.notify_owner(owner, span);
            }
            if held || !self.has_remote(span) {
                return;
            }
            if !self.change(span, state.with_owner(None), state, SeqCst) {
                return;
            }
            step!();
        }
    }

    fn recover_large(&self, dead: Owner, head: u32, policy: OnDeath) {
        // AcqRel: this change comes between the allocation of the block and its free, by different tasks. The loop
        // ends: only a task that frees or takes the block also changes its head.
        loop {
            let state = self.state(head);
            if state.kind() != Some(Kind::Head) || !state.is_owned_by(dead) {
                return;
            }
            let next = match policy {
                _ if state.is_shared() => state.with_owner(None),
                OnDeath::Free => State::transit(self.run_of(head, state), dead),
                OnDeath::Keep => state.with_owner(None).with_shared(true),
                OnDeath::Adopt(owner) => state.with_owner(Some(owner)),
            };
            if !self.change(head, state, next, AcqRel) {
                continue;
            }
            step!();
            if next.kind() == Some(Kind::Transit) {
                self.dismantle(head);
            }
            return;
        }
    }
}
