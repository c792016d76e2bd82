//! Whether a wait that has polled [`HAND_OVER`] times in vain polls on, where no task sleeps.
//!
//! A task that was woken on another processor runs 3 to 25 µs later, which is longer than those polls take. So where two tasks
//! pass locks to each other and one of them has slept once, the other one gives up polling just before the first has the lock
//! and could pass it on. Both then sleep at each hand-over: one takes 15 µs, where it took 0.05. A wait that polls for as long
//! as a wake-up takes ends that.
//!
//! Where owners sleep, such polls are in vain. So a thread learns from its waits: after each long poll in vain it makes none for
//! twice as many waits, [`MOST_DOUBT`] times at most, and after one that paid it makes the next one when it needs it.

use super::HAND_OVER;
use super::speed::polls_in;
use crate::sys::own_record::with_habits;

/// Microseconds of all polls of such a wait: as long as most wake-ups of another processor take.
const LONG: u32 = 25;
/// In the end one wait of 2 to the power of this polls on.
const MOST_DOUBT: u8 = 6;

/// How many polls follow the first [`HAND_OVER`]; 0: none, for a sleep costs less. A wait that makes them calls [`polled_on`] at
/// their end.
#[cold]
pub fn polls_on() -> u32 {
    with_habits(|mine| {
        let waits = mine.short_polls.get();
        mine.short_polls.set(waits.saturating_sub(1));
        if waits > 0 {
            return 0;
        }
        polls_in(LONG).saturating_sub(HAND_OVER)
    })
}

/// To be called after further polls: whether the lock became free.
#[cold]
pub fn polled_on(is_free: bool) {
    with_habits(|mine| {
        let doubt = match is_free {
            true => 0,
            false => (mine.poll_doubt.get() + 1).min(MOST_DOUBT),
        };
        mine.poll_doubt.set(doubt);
        mine.short_polls.set((1 << doubt) - 1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_polls_in_vain_become_rare_until_one_pays() {
        std::thread::spawn(|| {
            let waits_until_next = || (0..).take_while(|_| polls_on() == 0).count();
            // A machine whose pauses take longest may have none left.
            if polls_in(LONG) <= HAND_OVER {
                return;
            }
            assert_eq!(waits_until_next(), 0);
            for expected in [1, 3, 7, 15, 31, 63, 63] {
                polled_on(false);
                assert_eq!(waits_until_next(), expected);
            }
            polled_on(true);
            assert_eq!(waits_until_next(), 0);
            polled_on(false);
            assert_eq!(waits_until_next(), 1);
        })
        .join()
        .unwrap();
    }
}
