//! How fast this machine polls, measured once per process.

use crate::atomic::{AtomicU32, Ordering, spin_hint};
use crate::sys::clock::{monotonic_by_call, ticks};

/// How many polls take so many microseconds on this machine.
pub(super) fn polls_in(microseconds: u32) -> u32 {
    (microseconds * SPEED.polls() / 16).max(1)
}

/// Ticks of the processor's counter in so many microseconds.
pub(super) fn ticks_in(microseconds: u32) -> u64 {
    SPEED.polls();
    // Relaxed: no other memory depends on the number.
    u64::from(microseconds) * u64::from(SPEED.ticks.load(Ordering::Relaxed)) / 16
}

/// How many polls, and ticks of the processor's counter, take 16 microseconds; zeros before the measurement.
struct Speed {
    polls: AtomicU32,
    ticks: AtomicU32,
}

static SPEED: Speed = Speed {
    polls: AtomicU32::new(0),
    ticks: AtomicU32::new(0),
};

impl Speed {
    fn polls(&self) -> u32 {
        // Relaxed: no other memory depends on the number.
        let polls = self.polls.load(Ordering::Relaxed);
        if polls == 0 { self.measure() } else { polls }
    }

    /// Measures the speed, in some 10 µs, or 50 where a pause takes longest. The clock is read by a system call: under
    /// a debugger that single-steps, the vDSO's reader would try again at each tick.
    #[cold]
    fn measure(&self) -> u32 {
        const HINTS: u64 = 256;
        let sample = || {
            let began = (monotonic_by_call(), ticks());
            for _ in 0..HINTS {
                spin_hint();
            }
            let ticks = ticks().wrapping_sub(began.1);
            (monotonic_by_call().saturating_sub(began.0), ticks)
        };
        // The smallest sample is the one that was interrupted least.
        let (nanoseconds, ticks) = (0..3).map(|_| sample()).min().unwrap_or_default();
        let nanoseconds = nanoseconds.clamp(HINTS, HINTS * 250);
        let polls = (16_000 * HINTS / nanoseconds) as u32;
        self.ticks
            .store((16_000 * ticks / nanoseconds) as u32, Ordering::Relaxed);
        self.polls.store(polls, Ordering::Relaxed);
        polls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_times_hold_more_polls() {
        assert!(polls_in(1) >= 1);
        assert!(polls_in(100) > polls_in(10));
        assert!(ticks_in(2) >= ticks_in(1));
    }
}
