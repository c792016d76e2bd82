//! Clocks, in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

/// The time on `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> u64 {
    read(ClockId::Monotonic)
}

/// The time on `CLOCK_MONOTONIC` at the kernel's last tick: a few milliseconds old, and cheap.
#[inline]
pub(crate) fn coarse() -> u64 {
    read(ClockId::MonotonicCoarse)
}

/// Time since boot, suspended time included: the clock of `/proc`'s start times.
pub(crate) fn since_boot() -> u64 {
    read(ClockId::Boottime)
}

/// The wall clock's time, which may be set.
pub(super) fn wall() -> u64 {
    read(ClockId::Realtime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
