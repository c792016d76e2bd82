//! The gate: a queueing mutex in front of a throughput lock. The task that passes it is the lock's top waiter. The
//! states and the argument are in [the parent](super).

use crate::atomic::{AtomicU32, Ordering, unless_fault};
use crate::mutex::wait_mode::{Ended, Nap, sleep};
use crate::mutex::{TID_MASK, Unfinished, WAITERS, WaitMode};
use crate::sharing::Sharing;
use crate::sys::futex;

/// The word of a gate.
#[derive(Clone, Copy)]
pub(in crate::mutex) struct Gate<'a>(pub(in crate::mutex) &'a AtomicU32);

impl Gate<'_> {
    /// Whether there is no top waiter, and no woken sleeper that will be one.
    pub(super) fn is_free(&self) -> bool {
        // Relaxed: a guess, here and at every other use of the gate. Where a word is reserved, a fence orders it.
        self.0.load(Ordering::Relaxed) == 0
    }

    /// The task that has the gate.
    pub(super) fn top_waiter(&self) -> Option<u32> {
        let tid = self.0.load(Ordering::Relaxed) & TID_MASK;
        (tid != 0).then_some(tid)
    }

    /// Wakes one sleeper of a gate that another task has, to run in the caller's place; returns whether it did. (See
    /// the parent, *Turns*.)
    pub(super) fn wake_another<S: Sharing>(&self) -> bool {
        let gate = self.0.load(Ordering::Relaxed);
        gate & WAITERS != 0
            && gate & TID_MASK != 0
            && futex::wake(core::ptr::from_ref(self.0), 1, S::FLAG) > 0
    }

    /// Waits in order of arrival. On return the caller has the gate, and must release it by [`Self::leave`]; or the
    /// caller has slept, and another task has the gate: the caller then goes on to the word without it (invariant 4).
    ///
    /// A task whose turn ends (`ends_turn`) does not take the place of a sleeper that was woken and has not run yet.
    /// Before each sleep, `is_dead` is asked about the top waiter, and `before_sleep` is called.
    pub(super) fn enter<S: Sharing>(
        &self,
        me: u32,
        ends_turn: bool,
        wait_mode: WaitMode,
        is_dead: impl Fn(u32) -> bool,
        mut before_sleep: impl FnMut(),
    ) -> Result<(), Unfinished> {
        let mut has_slept = false;
        let mut nap = None;
        loop {
            let gate = self.0.load(Ordering::Relaxed);
            if gate & TID_MASK == 0 && (gate == 0 || has_slept || !ends_turn) {
                // A task that slept cannot know whether others still sleep: it keeps the bit.
                let keeps = has_slept || gate != 0;
                let taken = me | if keeps { WAITERS } else { 0 };
                if self.replace(gate, taken) {
                    return Ok(());
                }
                continue;
            }
            // A task sleeps once: newcomers may have entered meanwhile. Two top waiters do no harm.
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
            let end = *nap.get_or_insert_with(|| Nap::AtGate.end());
            match sleep(self.0, seen, S::FLAG, wait_mode, end)? {
                Ended::NapOver => {
                    // The top waiter has not changed during the nap: it may be dead or stopped, so this task takes its
                    // gate. If it is neither, there are two top waiters now.
                    if self.replace(seen, me | WAITERS) {
                        return Ok(());
                    }
                    has_slept = true;
                }
                Ended::Woken => has_slept = true,
                Ended::Refused | Ended::Interrupted => {}
            }
        }
    }

    /// Takes a free gate, without waiting (invariant 6).
    pub(super) fn enter_if_free(&self, me: u32) {
        if self.is_free() {
            // Without `WAITERS`, as a newcomer enters. If the exchange fails, another task has the gate.
            self.replace(0, me);
        }
    }

    /// Takes the gate for an overdue top waiter, from whichever task has it, without waiting (invariant 6).
    pub(super) fn take_over(&self, me: u32) {
        let gate = self.0.load(Ordering::Relaxed);
        if gate & TID_MASK == me || gate == 0 && self.replace(0, me) {
            return;
        }
        // With `WAITERS`, since others may sleep. A compare-and-swap could fail again and again.
        self.0.swap(me | WAITERS, Ordering::Relaxed);
    }

    /// Releases the gate and wakes the next waiter. Does nothing if the task does not have the gate, or no longer.
    pub(super) fn leave<S: Sharing>(&self, me: u32) {
        if self.replace(me, 0) {
            return;
        }
        // The gate has `WAITERS`. Only a sleeper whose nap has ended, or an overdue top waiter, changes such a word.
        if !self.replace(me | WAITERS, WAITERS) {
            return;
        }
        let address = core::ptr::from_ref(self.0);
        let woken = unless_fault!(
            ThroughputGateWakesNobody,
            futex::wake(address, 1, S::FLAG),
            1
        );
        if woken == 0 && self.replace(WAITERS, 0) {
            // Wake the tasks that saw `WAITERS` in between, and went to sleep.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sharing::Private;
    use core::cell::Cell;

    const ME: u32 = 100;
    /// IDs of other top waiters, one after the other.
    const OTHERS: core::ops::Range<u32> = 1..ME;

    fn enter(gate: Gate<'_>, wait_mode: WaitMode, before_sleep: impl FnMut()) -> bool {
        gate.enter::<Private>(ME, false, wait_mode, |_| false, before_sleep)
            .is_ok()
    }

    /// The gate changes hands before the sleep begins, so the kernel refuses the sleep. The task tries again.
    #[test]
    fn a_task_whose_sleep_was_refused_does_not_pass_the_gate() {
        let word = AtomicU32::new(0);
        let gate = Gate(&word);
        let mut others = OTHERS;
        gate.0.store(others.next().unwrap(), Ordering::Relaxed);
        let entered = enter(gate, WaitMode::FOREVER, || {
            // After the tenth attempt the gate is free.
            let next = others.next().filter(|other| *other <= 10);
            gate.0.store(next.unwrap_or(0), Ordering::Relaxed);
        });
        assert!(entered);
        assert_eq!(others.start, 12, "passed the gate of a task that has it");
        // Others may sleep only if the gate has `WAITERS`.
        assert_eq!(gate.0.load(Ordering::Relaxed), ME);
    }

    /// A gate that changes all the time.
    #[test]
    fn refused_sleeps_extend_neither_the_nap_nor_the_wait() {
        let deadline = crate::time::Deadline::after(core::time::Duration::from_millis(1));
        for deadline in [None, Some(deadline)] {
            let word = AtomicU32::new(1);
            let gate = Gate(&word);
            let other = Cell::new(1);
            let entered = enter(gate, WaitMode::until(deadline), || {
                other.set(3 - other.get());
                gate.0.store(other.get(), Ordering::Relaxed);
            });
            assert_eq!(entered, deadline.is_none());
        }
    }
}
