//! Budgets: a thread learns for each lock whether polls pay.

use super::speed::polls_in;
use crate::sys::own_record::{PLACES, with_habits};

/// Microseconds of polls that cost as much as a sleep. The cost of a sleep is the time of a futex wait and its wake-up
/// on both processors, and the time in which no task has the lock. (With 3 here, two tasks that pass three throughput
/// locks round on two processors take 4.1 to 9.4 µs for a hand-over, and 0.45 with 10.)
const SLEEP: u32 = 10;
/// Where polls do not pay, one wait in so many polls nevertheless, for at most twice [`SLEEP`], to learn whether polls
/// pay again.
const PROBE: u8 = 16;
/// The average is over about so many waits.
const WEIGHT: u32 = 8;
/// The highest cost of one wait that is counted, so that the sum does not overflow.
const MOST_COUNTED: u32 = u16::MAX as u32 / WEIGHT;

/// How long one wait goes on polling after its [`FIRST_POLLS`](super::FIRST_POLLS), before it sleeps.
///
/// A thread keeps, for each lock, the average cost of its latest waits of this kind: their polls, and a sleep if the
/// polls were in vain. If the average is more than a sleep costs, the thread sleeps at once: others can use the
/// processor. Long yields do not count, since others had the processor meanwhile.
pub struct Budget {
    place: usize,
    most: u32,
}

impl Budget {
    /// At most `most` polls for the lock, or the part of a lock, at this address.
    #[inline]
    pub fn at(address: usize, most: u32) -> Self {
        let place = (address >> 2 ^ address >> 6 ^ address >> 12) % PLACES;
        let most = with_habits(|mine| {
            if u32::from(mine.costs[place].get()) / WEIGHT < polls_in(SLEEP) {
                return most;
            }
            // Counted for each place, so that a thread that alternates between locks probes all of them.
            let waits = mine.dear_waits[place].get().wrapping_add(1);
            mine.dear_waits[place].set(waits);
            if waits.is_multiple_of(PROBE) {
                most.min(polls_in(2 * SLEEP))
            } else {
                0
            }
        });
        Self { place, most }
    }

    /// How many polls this wait may make.
    #[inline]
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Whether polls do not pay, and this wait is no probe.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.most == 0
    }

    /// To be called after the wait has made so many polls; `success`: it got the lock by them.
    #[inline]
    pub fn made(&self, polls: u32, success: bool) {
        if !self.is_spent() {
            let cost = polls + if success { 0 } else { polls_in(SLEEP) };
            with_habits(|mine| {
                let sum = u32::from(mine.costs[self.place].get());
                let sum = sum - sum / WEIGHT + cost.min(MOST_COUNTED);
                mine.costs[self.place].set(sum as u16);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: usize = 0x1000;

    fn on_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    /// One wait, with at most so many polls. Returns whether it could poll.
    fn wait(polls: u32, success: bool) -> bool {
        let budget = Budget::at(LOCK, 100);
        budget.made(budget.most().min(polls), success);
        !budget.is_spent()
    }

    #[test]
    fn futile_polls_stop_and_one_wait_in_sixteen_probes() {
        on_a_thread(|| {
            (0..4 * WEIGHT).for_each(|_| _ = wait(100, false));
            assert_eq!((0..16 * 10).filter(|_| wait(100, false)).count(), 10);
            // After probes that succeed at once the thread polls again.
            (0..16 * 4 * WEIGHT).for_each(|_| _ = wait(1, true));
            assert!((0..16).all(|_| !Budget::at(LOCK, 100).is_spent()));
        });
    }

    #[test]
    fn polls_that_succeed_cheaply_go_on() {
        on_a_thread(|| {
            for _ in 0..1000 {
                assert_eq!(Budget::at(LOCK, 100).most(), 100);
                assert!(wait(1, true));
            }
        });
    }

    /// One wait in ten that polls in vain is outweighed by nine that take one poll.
    #[test]
    fn a_few_futile_polls_do_not_stop_polling() {
        on_a_thread(|| {
            for number in 0..1000 {
                let success = number % 10 != 0;
                let polled = wait(if success { 1 } else { 100 }, success);
                assert!(polled || !success);
            }
        });
    }

    #[test]
    fn locks_have_separate_budgets() {
        on_a_thread(|| {
            (0..4 * WEIGHT).for_each(|_| _ = wait(100, false));
            assert_eq!(Budget::at(LOCK + 4, 100).most(), 100);
        });
    }
}
