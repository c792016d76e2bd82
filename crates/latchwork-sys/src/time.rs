//! Points in time, as every timed operation of the library takes them.
//!
//! A wait takes its end and not its length, so that a wait that was interrupted can be resumed. The `…_for`
//! methods compute the end.
//!
//! ```
//! use latchwork::mutex::Mutex;
//! use latchwork::time::Deadline;
//! use std::time::Duration;
//!
//! static LOCK: Mutex<u32> = Mutex::new(0);
//! let end = Deadline::after(Duration::from_millis(20));
//! assert!(LOCK.lock_until(end).is_some());
//! ```

use core::time::Duration;

/// An absolute point on `CLOCK_MONOTONIC`.
///
/// All timed operations use absolute times: a wait that is interrupted and resumed, or retried, keeps its end.
/// `CLOCK_MONOTONIC` does not advance while the machine is suspended, so a wait during which the machine is
/// suspended lasts longer by that time.
///
/// ```
/// use core::time::Duration;
/// use latchwork::time::Deadline;
///
/// let deadline = Deadline::after(Duration::from_millis(5));
/// assert!(deadline > Deadline::now());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    nanoseconds: u64,
}

impl Deadline {
    /// The current time.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn now() -> Self {
        Self::from_nanoseconds(crate::sys::clock::monotonic())
    }

    /// The point `duration` from now, or the end of representable time (some 584 years after boot) if that is earlier.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        Self::now().saturating_add(duration)
    }

    /// The point `nanoseconds` after the clock's origin.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self { nanoseconds }
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanoseconds(self) -> u64 {
        self.nanoseconds
    }

    /// This point moved by `duration`, at most to the end of representable time.
    #[inline]
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let added = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanoseconds(self.nanoseconds.saturating_add(added))
    }

    /// How long it is from now until this point; zero if it has passed.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn remaining(self) -> Duration {
        Duration::from_nanos(self.nanoseconds.saturating_sub(Self::now().nanoseconds))
    }

    /// Whether this point has been reached.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn has_passed(self) -> bool {
        self <= Self::now()
    }
}
