//! Yields to the owner, unless other tasks need the processor for themselves; and bursts, which are without a yield.

use crate::atomic::spin_hint;
use crate::sys::clock::coarse;
use crate::sys::own_record::with_habits;

/// Number of yields that a thread skips after a long one. (4 tasks beside 4 programs that spin, 2 processors:
/// throughput and wait-wake locks did 0.6 to 0.8 of the work of std's with all yields, and 0.9 to 1.1 with these yields
/// skipped.)
const SKIPPED_YIELDS: u32 = 64;

/// Yields the processor, unless one of the thread's latest yields was a long one. Returns whether it did.
///
/// A yield is long if the kernel's clock tick came during it. The processor then went to tasks that need it for
/// themselves, and not just to an owner that is about to release a lock. A sleep would have ended earlier.
#[cold]
pub fn yield_if_brief() -> bool {
    let skipped = with_habits(|mine| mine.yields_left_out.get());
    if skipped > 0 {
        with_habits(|mine| mine.yields_left_out.set(skipped - 1));
        return false;
    }
    let began = coarse();
    crate::sys::thread::yield_cpu();
    if coarse() != began {
        with_habits(|mine| mine.yields_left_out.set(SKIPPED_YIELDS));
    }
    true
}

/// Polls of a task whose peer is expected soon, before the task yields the processor: some 20 ns each.
const POLLS_BEFORE_YIELD: u32 = 20;

/// Polls for a short time. Returns whether `is_ready` returned true.
pub fn poll_briefly(is_ready: impl Fn() -> bool) -> bool {
    (0..POLLS_BEFORE_YIELD).any(|_| {
        spin_hint();
        is_ready()
    })
}

/// A fixed number of polls, with one pause instruction after each.
#[derive(Clone, Copy, Debug)]
pub struct Burst(u32);

impl Burst {
    /// A spinlock's waiter, before it yields: about 2 to 3 µs, longer than the critical sections that a spinlock is
    /// for. If the owner still holds the lock, it is probably preempted.
    pub const SPINLOCK: Self = Self(128);
    /// The checking interposer's waiter, before its wait is reported: about 2 µs, as long as a short critical section.
    /// Most waits are that short, and need no report.
    pub const REPORTED: Self = Self(100);

    /// Polls until `attempt` returns a value, or the burst is over.
    #[inline]
    pub fn poll<T>(self, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..self.0 {
            let result = attempt();
            if result.is_some() {
                return result;
            }
            spin_hint();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_with_the_first_value_or_the_last_poll() {
        let mut polls = 0;
        let mut poll = |wanted| {
            polls += 1;
            (polls == wanted).then_some(polls)
        };
        assert_eq!(Burst(5).poll(|| poll(3)), Some(3));
        assert_eq!(Burst(5).poll(|| poll(0)), None);
        assert_eq!(polls, 3 + 5);
    }
}
