//! Clocks.

use crate::time::Deadline;
use rustix::time::{ClockId, clock_gettime};

/// The time on `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> Deadline {
    let now = clock_gettime(ClockId::Monotonic);
    Deadline::from_nanoseconds((now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64)
}

/// Nanoseconds since boot, suspended time included: the clock of `/proc`'s start times.
pub(crate) fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}
