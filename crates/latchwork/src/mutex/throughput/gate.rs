//! The queue before a throughput lock: who passes the gate is the top waiter. The argument stands in
//! [the parent](super).
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::mutex::nap::{Nap, sleep};
use crate::mutex::{Patience, TID_MASK, Unfinished, WAITERS};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Wait};

#[repr(transparent)]
pub(in crate::mutex) struct Gate(AtomicU32);

impl Gate {
    /// A word of a node, as a gate.
    pub(in crate::mutex) fn of(word: &AtomicU32) -> &Self {
        // SAFETY: the same, under another name.
        unsafe { &*core::ptr::from_ref(word).cast() }
    }

    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    /// Whether nobody is the top waiter or about to be.
    pub(super) fn is_free(&self) -> bool {
        // Relaxed: a guess that a compare-and-swap of the word confirms, as everywhere here.
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Wakes one that sleeps at a gate which another has, to run in the caller's place; whether it did. (Where the caller
    /// just went to sleep, its processor was idle until the next tick if the kernel had put the next one elsewhere.)
    pub(super) fn wake_another<S: Sharing>(&self) -> bool {
        let gate = self.0.load(Ordering::Relaxed);
        gate & WAITERS != 0
            && gate & TID_MASK != 0
            && futex::wake(&raw const self.0, 1, S::FLAG) > 0
    }

    /// Waits in turn, and has the gate then, to be released by [`Self::leave`]; or has slept long enough while another
    /// got it. One that gives way does not take the place of a sleeper that was woken and is not
    /// there yet. `is_dead` is asked of a top waiter, and `before_sleep` called, before each sleep.
    pub(super) fn enter<S: Sharing>(
        &self,
        me: u32,
        gives_way: bool,
        patience: Patience,
        is_dead: impl Fn(u32) -> bool,
        mut before_sleep: impl FnMut(),
    ) -> Result<(), Unfinished> {
        let mut has_slept = false;
        let mut nap = None;
        loop {
            let gate = self.0.load(Ordering::Relaxed);
            if gate & TID_MASK == 0 && (gate == 0 || has_slept || !gives_way) {
                // Who slept cannot know whether others do.
                let keeps = has_slept || gate != 0;
                let taken = me | if keeps { WAITERS } else { 0 };
                if self.replace(gate, taken) {
                    return Ok(());
                }
                continue;
            }
            // Nobody sleeps twice behind newcomers: two top waiters do no harm.
            if has_slept {
                return Ok(());
            }
            if is_dead(gate & TID_MASK) {
                if self.replace(gate, me | WAITERS) {
                    return Ok(());
                }
                continue;
            }
            if gate & WAITERS == 0 && !self.replace(gate, gate | WAITERS) {
                continue;
            }
            before_sleep();
            let seen = gate | WAITERS;
            let end = *nap.get_or_insert_with(|| Nap::InQueue.end());
            match sleep(&self.0, seen, S::FLAG, patience, end)? {
                Wait::TimedOut => {
                    // The top waiter is the same as before: it may be dead, or stopped. If it is
                    // neither, there are two now.
                    if self.replace(seen, me | WAITERS) {
                        return Ok(());
                    }
                    has_slept = true;
                }
                Wait::Again => has_slept = true,
                Wait::Interrupted => {}
            }
        }
    }

    /// Takes a gate that nobody has, without a wait.
    pub(super) fn stand(&self, me: u32) {
        if self.is_free() {
            // As a newcomer does; if it fails another stands there.
            self.replace(0, me);
        }
    }

    /// Lets the next one pass, unless the task does not have the gate, or no more.
    pub(super) fn leave<S: Sharing>(&self, me: u32) {
        if self.replace(me, 0) {
            return;
        }
        // With `WAITERS`: only a sleeper that has waited too long changes such a word.
        if !self.replace(me | WAITERS, WAITERS) {
            return;
        }
        let address = &raw const self.0;
        let woken = unless_fault!(
            ThroughputGateWakesNobody,
            futex::wake(address, 1, S::FLAG),
            1
        );
        if woken == 0 && self.replace(WAITERS, 0) {
            // Those who came in between, and saw `WAITERS`.
            futex::wake(address, u32::MAX, S::FLAG);
        }
    }

    fn replace(&self, from: u32, to: u32) -> bool {
        // Relaxed: the gate orders nothing; the word does.
        self.0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}
