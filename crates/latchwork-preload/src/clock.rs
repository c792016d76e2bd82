//! Points in time as pthread calls give them: on one of two clocks, in seconds and nanoseconds.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::time::Duration;
use latchwork::time::Deadline;
use libc::{clockid_t, timespec};

const SECOND: i64 = 1_000_000_000;
/// How often a sleep checks the wall clock, which may be set meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// Whether pthread's waits accept this clock.
pub(crate) const fn is_valid(clock: clockid_t) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
}

#[derive(Clone, Copy)]
pub(crate) struct Until {
    clock: clockid_t,
    time: timespec,
}

impl Until {
    pub(crate) const fn new(clock: clockid_t, time: timespec) -> Self {
        Self { clock, time }
    }

    pub(crate) const fn is_valid(self) -> bool {
        self.time.tv_nsec >= 0 && self.time.tv_nsec < SECOND
    }

    /// How long it takes until then.
    pub(crate) fn remaining(self) -> Duration {
        let mut now = MaybeUninit::<timespec>::uninit();
        // SAFETY: one of two clocks that every Linux has; the call writes the time.
        let now = unsafe {
            libc::clock_gettime(self.clock, now.as_mut_ptr());
            now.assume_init()
        };
        let since_origin = |time: timespec| match u64::try_from(time.tv_sec) {
            Ok(seconds) => Duration::new(seconds, time.tv_nsec as u32),
            // The time is before the clock's origin.
            Err(_) => Duration::ZERO,
        };
        since_origin(self.time).saturating_sub(since_origin(now))
    }

    pub(crate) fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// The latest time at which to check whether it has passed.
    pub(crate) fn next_poll(self) -> Deadline {
        let remaining = self.remaining();
        Deadline::after(match self.clock {
            libc::CLOCK_REALTIME => remaining.min(LOOK),
            _ => remaining,
        })
    }
}
