//! When a top waiter stops polling, and when it requests the hand-off.

use crate::mutex::wait_mode::Nap;
#[cfg(not(loom))]
use crate::time::Deadline;
#[cfg(loom)]
use latchwork_sys::model::HandsOff;

/// Microseconds.
const DEFAULT_THRESHOLD: u32 = 5_000;
/// The value of `threshold` that means the default.
pub(in crate::mutex) const DEFAULT: u32 = 0;
/// The value of `threshold` that means "never".
pub(super) const NEVER: u32 = u32::MAX;

/// After how many microseconds a top waiter sets the request; `None`: never.
pub(super) fn micros(threshold: u32) -> Option<u32> {
    match threshold {
        DEFAULT => Some(DEFAULT_THRESHOLD),
        NEVER => None,
        micros => Some(micros),
    }
}

/// A top waiter that has slept sets the request after this part of the threshold. Measured with critical sections that
/// sleep, 36 tasks on 2 processors, as the share of the average that the slowest task made in a second: 16 % if all
/// critical sections sleep, and 40 % if one in 1,024 does, without it; 89 and 66 % with it. The total work was the same
/// (0.98–1.01).
#[cfg(not(loom))]
const DIVISOR_AFTER_SLEEP: u32 = 8;

/// When a top waiter stops polling, and when it sets the request.
#[cfg(not(loom))]
pub(super) struct Timing {
    /// `None`: never.
    requests_at: Option<Deadline>,
    /// The same, for a top waiter that has slept.
    requests_after_sleep_at: Option<Deadline>,
    stops_polling: Deadline,
}

#[cfg(not(loom))]
impl Timing {
    /// `threshold`, in microseconds.
    pub(super) fn start(threshold: Option<u32>) -> Self {
        let now = Deadline::now();
        let after =
            |micros: u32| now.saturating_add(core::time::Duration::from_micros(micros.into()));
        let polls = threshold.unwrap_or(DEFAULT_THRESHOLD);
        Self {
            requests_at: threshold.map(after),
            requests_after_sleep_at: threshold
                .map(|threshold| after(threshold / DIVISOR_AFTER_SLEEP)),
            stops_polling: after(polls),
        }
    }

    /// To be called after a sleep.
    pub(super) fn has_slept(&mut self) {
        self.requests_at = self.requests_after_sleep_at;
    }

    /// Whether it is time to request the hand-off.
    pub(super) fn is_overdue(&self) -> bool {
        self.requests_at.is_some_and(Deadline::has_passed)
    }

    /// When a nap that begins now ends: if the task is not overdue yet, in time for its request.
    pub(super) fn end_of_nap(&self, is_overdue: bool) -> Deadline {
        let end = Nap::TopWaiter.end();
        match self.requests_at {
            Some(requests_at) if !is_overdue => requests_at.min(end),
            _ => end,
        }
    }

    pub(super) fn has_polled_enough(&self) -> bool {
        self.stops_polling.has_passed()
    }
}

/// In a model the scene says when top waiters are overdue.
#[cfg(loom)]
pub(super) struct Timing {
    hands_off: HandsOff,
    is_overdue: bool,
}

#[cfg(loom)]
impl Timing {
    pub(super) fn start(threshold: Option<u32>) -> Self {
        let hands_off = latchwork_sys::model::scene().hands_off;
        let is_overdue = threshold == Some(0) || hands_off == HandsOff::AtOnce;
        Self {
            hands_off,
            is_overdue,
        }
    }

    pub(super) fn has_slept(&mut self) {
        self.is_overdue |= self.hands_off == HandsOff::AfterSleep;
    }

    pub(super) fn end_of_nap(&self, is_overdue: bool) -> Nap {
        if self.hands_off == HandsOff::AfterSleep && !is_overdue {
            Nap::BeforeRequest
        } else {
            Nap::TopWaiter
        }
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.is_overdue
    }

    pub(super) fn has_polled_enough(&self) -> bool {
        true
    }
}
