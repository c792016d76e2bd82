//! Waits that consist of short sleeps.

use crate::clock::Until;
use crate::memory::Mutex;
use crate::real;
use core::ffi::c_int;
use core::time::Duration;
use latchwork::time::Deadline;
use libc::timespec;

/// The longest sleep of a lock call, as in this library's robust mutexes.
pub(super) const NAP: Duration = Duration::from_secs(1);

/// How long the next nap of a wait lasts; `None` if the program's own call must decide now, since its time has passed or
/// is unusable. That call does not sleep.
pub(super) fn next(until: Option<Until>) -> Option<Duration> {
    match until {
        None => Some(NAP),
        Some(until) if !until.is_valid() => None,
        Some(until) => {
            let remaining = until.remaining();
            (!remaining.is_zero()).then(|| remaining.min(NAP))
        }
    }
}

/// The end of a nap that begins now, on the monotonic clock.
pub(super) fn end(nap: Duration) -> timespec {
    let end = Deadline::after(nap).as_nanoseconds();
    timespec {
        tv_sec: (end / 1_000_000_000) as _,
        tv_nsec: (end % 1_000_000_000) as _,
    }
}

/// Acquires a mutex as `pass` does, in naps: `pass` is the program's own call, and `until` the end of its wait, if it has
/// one. After each nap of full length, `look` may end the wait with a result.
///
/// # Safety
/// As for `pthread_mutex_lock`.
pub(super) unsafe fn lock(
    mutex: *mut Mutex,
    until: Option<Until>,
    pass: impl Fn() -> c_int,
    mut look: impl FnMut() -> Option<c_int>,
) -> c_int {
    loop {
        let Some(nap) = next(until) else {
            return pass();
        };
        let end = end(nap);
        // SAFETY: by the caller's contract.
        let result =
            unsafe { real::pthread_mutex_clocklock(mutex, libc::CLOCK_MONOTONIC, &raw const end) };
        if result != libc::ETIMEDOUT {
            return result;
        }
        if nap == NAP
            && let Some(result) = look()
        {
            return result;
        }
    }
}

/// When a wait looks for the tasks that could end it: after 1, 2, 4, 8, … and then every [`MOST`](Self::MOST) naps.
/// Then, and not before, the wait has lasted long enough for what it costs to read `/proc`.
pub(super) struct Looks {
    naps: u32,
    interval: u32,
}

impl Looks {
    const MOST: u32 = 32;

    pub(super) const fn new() -> Self {
        Self {
            naps: 0,
            interval: 1,
        }
    }

    /// Counts a nap. Returns whether to look now.
    pub(super) fn is_due(&mut self) -> bool {
        self.naps += 1;
        let is_due = self.naps == self.interval;
        if is_due {
            self.naps = 0;
            self.interval = (self.interval * 2).min(Self::MOST);
        }
        is_due
    }

    /// No look is due any more.
    pub(super) fn stop(&mut self) {
        self.interval = 0;
    }
}
