//! The gate of a region's throughput lock: a queueing lock in front of it. The states are in the [parent](super).

use super::super::lock::{ANY, owner_of};
use crate::atomic::{AtomicU64, Ordering, unless_fault};
#[cfg(not(loom))]
use crate::mutex::is_over;
use crate::mutex::wait_mode::{End, Ended, Nap, check_end};
use crate::mutex::{Unfinished, WaitMode};
use crate::sys::futex::{self, Sharing, Wait};

/// Bit 40: others may sleep on the gate. (Not the bit that the word of a lock has for this: an observer tells the two
/// words apart by it.)
pub(super) const GATE_WAITERS: u64 = 1 << 40;

/// What a throughput lock of a region has behind its word.
#[derive(Default)]
#[repr(transparent)]
#[doc(hidden)]
pub struct Gate(AtomicU64);

impl Gate {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether there is no top waiter, and no woken sleeper that will be one.
    pub(super) fn is_free(&self) -> bool {
        // Relaxed: a guess, here and at every other use of the gate. Where a word is reserved, a fence orders it.
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Wakes one sleeper of a gate that another task has, to run in the caller's place; returns whether it did.
    pub(super) fn wake_another(&self) -> bool {
        let gate = self.0.load(Ordering::Relaxed);
        gate & GATE_WAITERS != 0 && owner_of(gate) != 0 && self.wake(1) > 0
    }

    /// Waits in order of arrival. On return the caller has the gate, and must release it by [`Self::leave`]; or the
    /// caller has slept, and another task has the gate: the caller then goes on to the word without it.
    ///
    /// A task whose turn ends (`ends_turn`) does not take the place of a sleeper that was woken and has not run yet.
    /// Before each sleep, `is_gone` is asked about the top waiter, and `before_sleep` is called.
    pub(super) fn enter(
        &self,
        me: u64,
        ends_turn: bool,
        wait_mode: WaitMode,
        is_gone: impl Fn(u64) -> bool,
        before_sleep: impl Fn(),
    ) -> Result<(), Unfinished> {
        let mut has_slept = false;
        let mut nap = None;
        loop {
            let sleep = GateSleep::begin();
            let gate = self.0.load(Ordering::Relaxed);
            let top_waiter = owner_of(gate);
            if top_waiter == 0 && (gate == 0 || has_slept || !ends_turn) {
                // A task that slept cannot know whether others still sleep: it keeps the bit.
                let keeps = has_slept || gate != 0;
                if self.replace(gate, me | if keeps { GATE_WAITERS } else { 0 }) {
                    return Ok(());
                }
                continue;
            }
            // A task sleeps once: newcomers may have entered meanwhile. Two top waiters do no harm.
            if has_slept {
                return Ok(());
            }
            // The caller itself has the gate if it is a signal handler that has interrupted a top waiter.
            let ends_here = || top_waiter == me || is_gone(top_waiter);
            if top_waiter != 0 && unless_fault!(RegionGateKeptByDead, ends_here(), false) {
                if self.replace(gate, me | GATE_WAITERS) {
                    return Ok(());
                }
                continue;
            }
            if gate & GATE_WAITERS == 0 && !self.replace(gate, gate | GATE_WAITERS) {
                continue;
            }
            before_sleep();
            let seen = gate | GATE_WAITERS;
            let end = *nap.get_or_insert_with(|| Nap::AtGate.end());
            match sleep.sleep(&self.0, seen, wait_mode, end)? {
                Ended::NapOver => {
                    // The top waiter has not changed during the nap: it may be dead or stopped, so this task takes its
                    // gate. If it is neither, there are two top waiters now.
                    if self.replace(seen, me | GATE_WAITERS) {
                        return Ok(());
                    }
                    has_slept = true;
                }
                Ended::Woken => has_slept = true,
                Ended::Refused | Ended::Interrupted => {}
            }
        }
    }

    /// Takes a free gate, without waiting.
    pub(super) fn enter_if_free(&self, me: u64) {
        if self.is_free() {
            // Without `GATE_WAITERS`, as a newcomer enters. If the exchange fails, another task has the gate.
            self.replace(0, me);
        }
    }

    /// Takes the gate for an overdue top waiter, from whichever task has it, without waiting.
    pub(super) fn take_over(&self, me: u64) {
        let gate = self.0.load(Ordering::Relaxed);
        if owner_of(gate) == me || gate == 0 && self.replace(0, me) {
            return;
        }
        // With `GATE_WAITERS`, since others may sleep. A compare-and-swap could fail again and again.
        self.0.swap(me | GATE_WAITERS, Ordering::Relaxed);
    }

    /// Releases the gate and wakes the next waiter. Does nothing if the task does not have the gate, or no longer.
    pub(super) fn leave(&self, me: u64) {
        if self.replace(me, 0) {
            return;
        }
        // The gate has `GATE_WAITERS`. Only a sleeper whose nap has ended, or an overdue top waiter, changes such a word.
        if !self.replace(me | GATE_WAITERS, GATE_WAITERS) {
            return;
        }
        let woken = unless_fault!(RegionGateWakesNobody, self.wake(1), 1);
        if woken == 0 && self.replace(GATE_WAITERS, 0) {
            // Wake the tasks that saw the bit in between, and went to sleep.
            self.wake(u32::MAX);
        }
    }

    fn wake(&self, count: u32) -> usize {
        futex::wake_high(&raw const self.0, count, ANY, Sharing::Shared)
    }

    fn replace(&self, from: u64, to: u64) -> bool {
        // Relaxed: the gate orders nothing; the word does.
        self.0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// A sleep on the gate that has not begun yet. Each is a nap, so it need not watch for deaths.
#[cfg(not(loom))]
struct GateSleep;

#[cfg(not(loom))]
impl GateSleep {
    fn begin() -> Self {
        Self
    }

    fn sleep(
        self,
        gate: &AtomicU64,
        seen: u64,
        wait_mode: WaitMode,
        end: End,
    ) -> Result<Ended, Unfinished> {
        let until = wait_mode.deadline().map_or(end, |time| time.min(end));
        let (wait, woken) = match futex::wait_high(gate, seen, ANY, Sharing::Shared, Some(until)) {
            // The kernel compares the word first: without this, a gate that changes all the time would extend the nap.
            (Wait::Again, false) if is_over(Some(until)) => (Wait::TimedOut, false),
            ended => ended,
        };
        ended(wait, woken, wait_mode)
    }
}

fn ended(wait: Wait, woken: bool, wait_mode: WaitMode) -> Result<Ended, Unfinished> {
    check_end(wait, wait_mode)?;
    Ok(match wait {
        Wait::Again if woken => Ended::Woken,
        Wait::Again => Ended::Refused,
        Wait::TimedOut => Ended::NapOver,
        Wait::Interrupted => Ended::Interrupted,
    })
}

/// In a model the nap ends when a task dies, and otherwise as the scene says.
#[cfg(loom)]
struct GateSleep(usize);

#[cfg(loom)]
impl GateSleep {
    fn begin() -> Self {
        Self(futex::deaths())
    }

    fn sleep(
        self,
        gate: &AtomicU64,
        seen: u64,
        wait_mode: WaitMode,
        end: End,
    ) -> Result<Ended, Unfinished> {
        let scene = latchwork_sys::model::scene();
        let ends = end == Nap::AtGate && scene.naps_end;
        let until = wait_mode
            .deadline()
            .or(ends.then_some(latchwork_sys::model::SOON));
        let deaths = unless_fault!(RegionGateSleepsForEver, self.0, usize::MAX);
        let (wait, woken) = if deaths == usize::MAX {
            futex::wait_high(gate, seen, ANY, Sharing::Shared, until)
        } else {
            futex::watch_high(gate, seen, deaths, until)
        };
        match wait {
            Wait::Again if deaths != usize::MAX && futex::deaths() != deaths => Ok(Ended::NapOver),
            wait => ended(wait, woken, wait_mode),
        }
    }
}
