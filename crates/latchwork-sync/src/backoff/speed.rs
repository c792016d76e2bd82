//! How fast this machine polls, measured once per process.

use crate::atomic::{AtomicU32, Ordering, spin_hint};
use crate::sys::clock::{monotonic_by_call, ticks};

/// How many polls take 16 microseconds; 0 before the measurement.
static POLLS: AtomicU32 = AtomicU32::new(0);
/// How many ticks of the processor's counter do.
static TICKS: AtomicU32 = AtomicU32::new(0);

/// How many polls take so many microseconds on this machine.
pub(super) fn polls_in(microseconds: u32) -> u32 {
    (microseconds.saturating_mul(polls()) / 16).max(1)
}

/// Ticks of the processor's counter in so many microseconds.
pub(super) fn ticks_in(microseconds: u32) -> u64 {
    polls();
    u64::from(microseconds) * u64::from(TICKS.load(Ordering::Relaxed)) / 16
}

fn polls() -> u32 {
    // Relaxed, here and elsewhere: no other memory depends on the numbers.
    let polls = POLLS.load(Ordering::Relaxed);
    if polls == 0 { measure() } else { polls }
}

/// Measures the speed, in some 10 µs, or 50 where a pause takes longest. The clock is read by a system call: under a
/// debugger that single-steps, the vDSO's reader would try again at each tick.
#[cold]
fn measure() -> u32 {
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
    // No counter is faster than 16 ticks a nanosecond. (Those of two processors may differ, and the thread may have moved.)
    let ticks = ticks.min(16 * nanoseconds);
    TICKS.store((16_000 * ticks / nanoseconds) as u32, Ordering::Relaxed);
    POLLS.store(polls, Ordering::Relaxed);
    polls
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
