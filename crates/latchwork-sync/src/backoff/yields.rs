//! Yields to the owner, unless other tasks need the processor for themselves; and bursts, which are without a yield.

use super::speed::ticks_in;
use crate::atomic::spin_hint;
use crate::sys::clock::{coarse, ticks};
use crate::sys::futex_pi::is_deadline_task;
use crate::sys::own_record::with_habits;

/// After a long yield a thread makes no other one for so many times as long as that one took, by the kernel's clock ticks.
const APART: u64 = 64;
/// Microseconds of a long yield, at least. (The kernel's clock tick also comes during short ones, now and then. Without a
/// counter of ticks, those are taken for long ones.)
const LONG: u32 = 500;
/// Nanoseconds of a long yield that count, at most: in a longer one the thread was stopped, or its machine was.
const MOST_NS: u64 = 16_000_000;

/// What a wait does where it would yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It has yielded.
    Yielded,
    /// It polls on, without a yield.
    PollOn,
    /// It ends its polls, and sleeps.
    Sleep,
}

/// To be called where a wait would yield, for the `first` time or again.
///
/// On a [crowded](is_crowded) processor it does not yield. It polls on until it would yield again, and then sleeps: an owner
/// that runs on another processor is mostly done by then, and one that waits for this processor cannot run while the waiter
/// polls.
#[cold]
pub fn yield_or_sleep(first: bool) -> Then {
    if yield_if_brief() {
        Then::Yielded
    } else if first {
        Then::PollOn
    } else {
        Then::Sleep
    }
}

/// Yields the processor, unless it is [crowded](is_crowded). Returns whether it did.
///
/// After a long yield the thread yields no more for some time. The processor went to tasks that need it for themselves, and not
/// just to an owner that is about to release a lock: the yield lasted for as long as their time slices, 3 to 4 ms. A sleep
/// would have ended earlier: the kernel soon runs a task that it wakes, and lets one that yields wait for its turn.
#[cold]
pub fn yield_if_brief() -> bool {
    let began = coarse();
    if is_crowded(began) {
        return false;
    }
    let tick = ticks();
    crate::sys::thread::yield_cpu();
    let ended = coarse();
    if ended != began && ticks().saturating_sub(tick) >= ticks_in(LONG) {
        let lasted = ended.saturating_sub(began).min(MOST_NS);
        // A yield ends a deadline task's turn of this period: one is enough.
        let is_last = is_deadline_task();
        with_habits(|mine| {
            mine.yields_from.set(ended + APART * lasted);
            mine.never_yields.set(is_last);
        });
    }
    true
}

/// Whether other tasks need the thread's processor for themselves at this time: one of its latest yields was a long one.
fn is_crowded(now: u64) -> bool {
    with_habits(|mine| {
        // A process in another time namespace may have the time of its parent.
        let left = mine.yields_from.get().saturating_sub(now);
        left != 0 && left <= APART * MOST_NS || mine.never_yields.get()
    })
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
    use crate::backoff::{
        ExponentialBackoff, FIRST_YIELD, HAND_OVER, NEXT_YIELD, pause, pause_once,
    };
    use crate::sys::scheduling::{affinity_of, set_affinity};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    #[test]
    fn a_wait_on_a_crowded_processor_ends_its_polls_where_it_would_yield_again() {
        let life = || {
            with_habits(|mine| {
                mine.yields_from.set(coarse() + 2 * APART * MOST_NS);
                assert!(!is_crowded(coarse()));
                mine.never_yields.set(true);
            });
            assert!(is_crowded(coarse()) && !yield_if_brief());
            let mut passed = 0;
            while passed < HAND_OVER {
                assert!(passed <= FIRST_YIELD + NEXT_YIELD);
                passed += pause(passed);
            }
            let end = FIRST_YIELD + NEXT_YIELD;
            assert!((0..end).all(pause_once) && !pause_once(end));
            let mut polls = 0;
            let never = || {
                polls += 1;
                false
            };
            assert!(!ExponentialBackoff::None.poll(0, None, never));
            assert!(polls < 2 * NEXT_YIELD, "{polls} polls");
        };
        std::thread::spawn(life).join().unwrap();
    }

    #[test]
    fn a_thread_whose_yields_let_another_task_work_for_itself_soon_makes_none() {
        let ended = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // One processor, of those that the thread has.
                let mut mask = affinity_of(0).unwrap();
                let first = mask.iter().position(|word| *word != 0).unwrap();
                let lowest = mask[first] & mask[first].wrapping_neg();
                mask.fill(0);
                mask[first] = lowest;
                set_affinity(&mask).unwrap();
                let other = scope.spawn(move || {
                    while !ended.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                let started = Instant::now();
                let is_long = || with_habits(|mine| mine.yields_from.get() != 0);
                while !is_long() && started.elapsed() < Duration::from_secs(120) {
                    yield_if_brief();
                }
                ended.store(true, Relaxed);
                other.join().unwrap();
                assert!(is_long(), "no yield was long");
            });
        });
    }

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
