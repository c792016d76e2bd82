//! Whether a wait that has polled [`HAND_OVER`](super::HAND_OVER) times in vain polls on, where no task sleeps.
//!
//! A task that was woken on another processor runs 3 to 25 µs later, which is longer than those polls take. So where two
//! tasks pass locks to each other and one of them has slept once, the other one gives up polling just before the first has
//! the lock and could pass it on. Both then sleep at each hand-over, which takes 15 µs instead of 0.05. A wait that polls for
//! as long as a wake-up takes ends that.
//!
//! Where owners sleep, such polls are in vain. So a thread learns from its waits, for all locks together: after long polls in
//! vain the next wait makes none; after the next such polls in vain 3 waits make none, then 7, and so on up to 63. After long
//! polls that got the lock, the next wait that needs them makes them.

use super::ALL;
use super::speed::ticks_in;
use crate::sys::clock::ticks;
use crate::sys::own_record::with_habits;

/// Microseconds of long polls: as long as most wake-ups of another processor take.
const LONG: u32 = 25;
/// Pauses from one look at the time to the next.
const STEP: u32 = 100;
/// Long polls in vain double the interval to the next ones at most so many times: to one wait in 64.
const MOST_DOUBT: u8 = 6;

/// The long polls of one wait. If they have begun, and this is dropped before the wait [has the lock](Self::paid), they were in
/// vain.
#[derive(Default)]
pub struct LongPolls(State);

#[derive(Default)]
enum State {
    #[default]
    NotYet,
    /// Until this tick of the processor's counter.
    Until(u64),
    Over,
}

impl LongPolls {
    /// For a wait that makes no long polls.
    pub const NONE: Self = Self(State::Over);

    /// How many polls follow the `polls` that the wait has made so far; 0: it sleeps.
    #[cold]
    pub fn next(&mut self, polls: u32) -> u32 {
        // The processor is crowded.
        if polls >= ALL {
            return 0;
        }
        if let State::NotYet = self.0 {
            let is_due = with_habits(|mine| {
                let waits = mine.short_polls.get();
                mine.short_polls.set(waits.saturating_sub(1));
                waits == 0
            });
            self.0 = match is_due {
                true => State::Until(ticks() + ticks_in(LONG)),
                false => State::Over,
            };
        }
        match self.0 {
            State::Until(end) if ticks() < end => STEP,
            _ => 0,
        }
    }

    /// To be called by a wait that has got the lock without a sleep.
    #[inline]
    pub fn paid(mut self) {
        self.judge(true);
    }

    #[inline]
    fn judge(&mut self, have_paid: bool) {
        if let State::Until(_) = core::mem::replace(&mut self.0, State::Over) {
            learn(have_paid);
        }
    }
}

impl Drop for LongPolls {
    #[inline]
    fn drop(&mut self) {
        self.judge(false);
    }
}

#[cold]
fn learn(have_paid: bool) {
    with_habits(|mine| {
        let doubt = match have_paid {
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
            // Without a counter there are no long polls.
            if ticks_in(LONG) == 0 {
                return;
            }
            let polls_on = || {
                let mut polls = LongPolls::default();
                (polls.next(0) > 0).then_some(polls)
            };
            // A wait that is stopped for 25 µs between two lines has no polls left.
            let next = || (0..).find_map(|waits| polls_on().map(|polls| (waits, polls)));
            for expected in [0, 1, 3, 7, 15, 31, 63, 63] {
                let (waits, polls) = next().unwrap();
                assert!(waits >= expected, "{waits}");
                drop(polls);
            }
            next().unwrap().1.paid();
            assert_eq!(with_habits(|mine| mine.short_polls.get()), 0);
            drop(next());
            assert!(with_habits(|mine| mine.short_polls.get()) >= 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn long_polls_end_with_their_time_and_on_a_crowded_processor() {
        std::thread::spawn(|| {
            let mut polls = LongPolls::default();
            while polls.next(0) > 0 {
                core::hint::spin_loop();
            }
            assert_eq!(polls.next(0), 0);
            assert_eq!(with_habits(|mine| mine.poll_doubt.get()), 0);
            drop(polls);
            assert_eq!(with_habits(|mine| mine.poll_doubt.get()), 1);
            let mut none = LongPolls::NONE;
            assert_eq!(none.next(0), 0);
            none.paid();
            assert_eq!(LongPolls::default().next(ALL), 0);
            assert_eq!(with_habits(|mine| mine.poll_doubt.get()), 1);
        })
        .join()
        .unwrap();
    }
}
