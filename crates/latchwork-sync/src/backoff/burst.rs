//! Bursts: a fixed number of polls, without a yield.

use crate::atomic::spin_hint;

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
