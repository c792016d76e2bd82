//! Rests: moments without a poll, in which another task has the lock for itself.
//!
//! To move a lock, and all memory that its critical section writes, to another processor takes as long as some ten uses
//! of it on one processor. Each poll moves the line, too. Where tasks collide all the time, a waiter that rests before
//! its first poll leaves the lock with its owner for many uses. (A *collision* is a lock call that found the lock held.)
//!
//! A rest is lost where it changes nothing: if two tasks wait for each other by turns, each hand-over takes a rest
//! longer; and an owner that waits for the very processor of the waiter cannot continue before the waiter yields or
//! sleeps. And a rest costs its time where collisions are rare. A thread cannot count how often it uses a lock without a
//! collision, but it can measure the time between two collisions. By that it decides, for all its locks together:
//!
//! | phase | ends after | next phase |
//! | --- | --- | --- |
//! | counts | 128 collisions | rests, if two collisions are at most 20 rests apart on average, no more than half of the waits ended with a yield or slept, and waits take a third of the time or more; declines for 128 collisions, if only the last of these fails; else counts |
//! | rests | 128 collisions | declines, if collisions are less than 5/4 of a rest apart, so that they follow the rests at once, or if more than half of the waits ended with a yield or slept; else rests or counts, as above |
//! | declines | 128 collisions, and twice as many each time, up to 32,768; 128 again after rests that paid | counts |
//!
//! All sleeps of the thread count, also those for condition variables and queues: a thread that sleeps as often as it
//! collides has little to gain.
//!
//! Measured on two processors: collisions that follow rests at once are 1.1 rests apart, others at least 1.4.
//!
//! *A third of the time.* Two tasks that pass a lock to each other work at the same time between their critical sections.
//! That pays if what lies between takes longer than the lock's way to the other processor; they then wait for a small
//! part of the time. A task that rests gives it up. (On two processors, with 5 pauses in the critical section and 10 after
//! it, tasks wait for a sixth of the time, and do 0.7 of the work if they rest; with 1 and 2 pauses they wait for two
//! thirds, and do twice the work if they rest.)

use super::speed::{polls_in, ticks_in};
use crate::atomic::spin_hint;
use crate::sys::clock::ticks;
use crate::sys::own_record::{Crowd, Phase, with_habits};
use crate::sys::slow_paths::SlowPaths;

/// Collisions of a phase.
const COLLISIONS: u32 = 128;
/// Waits take a part of the time of at least one in so many, if rests may pay.
const LEAST_WAIT: u64 = 3;
/// Microseconds of a wait that count at most.
const LONGEST_WAIT: u32 = 10;
/// Rests that fit between two collisions, at most, for a thread that rests: it loses a twentieth of its time at worst.
const MOST_RESTS: u64 = 20;
/// Quarters of a rest from one collision to the next, at least, if rests pay.
const LEAST_QUARTERS: u64 = 5;
/// The longest phase in which a thread declines rests is so many times doubled.
const MOST_DOUBT: u32 = 8;

/// One collision: a wait for a lock that could not be taken, until it is dropped.
#[must_use = "the wait ends when this is dropped"]
pub struct Collision {
    /// The tick at which it began, if the thread counts.
    began: Option<u64>,
}

/// To be called before a wait for a lock that could not be taken. Passes some `microseconds` (normally one) without a
/// poll, if such rests pay for this thread.
#[inline]
pub fn rest_if_contended(microseconds: u32) -> Collision {
    with_habits(|mine| {
        let left = mine.crowd.left.get();
        mine.crowd.left.set(left.wrapping_sub(1));
        if mine.crowd.has_yielded.take() {
            mine.crowd.by_yield.set(mine.crowd.by_yield.get() + 1);
        }
        if mine.crowd.phase.get() == Phase::Rests {
            for _ in 0..polls_in(microseconds) {
                spin_hint();
            }
        }
        if left == 0 {
            begin_next_phase(&mine.crowd, microseconds);
        }
        Collision {
            began: (mine.crowd.phase.get() == Phase::Counts).then(ticks),
        }
    })
}

impl Drop for Collision {
    #[inline]
    fn drop(&mut self) {
        if let Some(began) = self.began {
            let waited = ticks().saturating_sub(began);
            with_habits(|mine| {
                // A longer wait slept, or its thread was preempted.
                let counted = waited.min(ticks_in(LONGEST_WAIT));
                mine.crowd.waited.set(mine.crowd.waited.get() + counted);
            });
        }
    }
}

/// To be called after each interval between two polls; `yielded`: it ended with a yield. A wait that ends without
/// another interval ended with that yield.
#[inline]
pub fn note_interval(yielded: bool) {
    with_habits(|mine| mine.crowd.has_yielded.set(yielded));
}

#[cold]
fn begin_next_phase(crowd: &Crowd, microseconds: u32) {
    let now = ticks();
    let passed = now.wrapping_sub(crowd.began.get());
    let sleeps = SlowPaths::of_this_thread().sleeps;
    let (phase, doubt) = next_phase(
        crowd.phase.get(),
        crowd.doubt.get(),
        passed / u64::from(COLLISIONS),
        crowd.waited.take() / u64::from(COLLISIONS),
        ticks_in(microseconds),
        u64::from(crowd.by_yield.take())
            // A signal handler may undo some of the counted sleeps.
            .saturating_add(sleeps.saturating_sub(crowd.sleeps.replace(sleeps))),
    );
    let longer = if phase == Phase::Declines {
        doubt - 1
    } else {
        0
    };
    crowd.phase.set(phase);
    crowd.doubt.set(doubt);
    crowd.left.set((COLLISIONS << longer) - 1);
    crowd.began.set(now);
}

/// The phase that follows, and how often in a row rests did not pay. `apart`: the average time from one collision to the
/// next, `wait`: that of a wait, if the thread counted, and `rest`: that of a rest; `left_cpu`: how many waits ended with a
/// yield, and how often the thread slept.
fn next_phase(
    phase: Phase,
    doubt: u32,
    apart: u64,
    wait: u64,
    rest: u64,
    left_cpu: u64,
) -> (Phase, u32) {
    let leaves_cpu = left_cpu > u64::from(COLLISIONS) / 2;
    // Without a time counter of the processor, both times are 0, and no thread rests.
    let are_frequent = rest != 0 && apart <= MOST_RESTS * rest && !leaves_cpu;
    match phase {
        Phase::Rests if 4 * apart < LEAST_QUARTERS * rest || leaves_cpu => {
            (Phase::Declines, (doubt + 1).min(MOST_DOUBT + 1))
        }
        Phase::Rests if are_frequent => (Phase::Rests, 0),
        Phase::Counts if are_frequent && LEAST_WAIT * wait >= apart => (Phase::Rests, doubt),
        Phase::Counts if are_frequent => (Phase::Declines, doubt.max(1)),
        _ => (Phase::Counts, doubt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::REST;

    /// A rest takes 100 ticks, and a wait all the time from one collision to the next.
    fn next(phase: Phase, doubt: u32, apart: u64) -> (Phase, u32) {
        next_phase(phase, doubt, apart, apart, 100, u64::from(COLLISIONS) / 2)
    }

    /// As [`next`], where most waits end with a yield or sleep.
    fn next_where_it_leaves(phase: Phase, doubt: u32) -> (Phase, u32) {
        next_phase(phase, doubt, 250, 250, 100, u64::from(COLLISIONS) / 2 + 1)
    }

    #[test]
    fn a_thread_declines_rests_where_owners_need_its_processor() {
        assert_eq!(next_where_it_leaves(Phase::Counts, 0), (Phase::Counts, 0));
        assert_eq!(next_where_it_leaves(Phase::Rests, 0), (Phase::Declines, 1));
        assert_eq!(next_where_it_leaves(Phase::Declines, 1), (Phase::Counts, 1));
    }

    #[test]
    fn a_thread_rests_while_collisions_are_frequent() {
        assert_eq!(next(Phase::Counts, 0, 2000), (Phase::Rests, 0));
        assert_eq!(next(Phase::Counts, 0, 2001), (Phase::Counts, 0));
        assert_eq!(next(Phase::Rests, 0, 2000), (Phase::Rests, 0));
        assert_eq!(next(Phase::Rests, 0, 2001), (Phase::Counts, 0));
    }

    #[test]
    fn a_thread_declines_rests_where_it_waits_for_a_small_part_of_the_time() {
        let next = |wait| next_phase(Phase::Counts, 0, 250, wait, 100, 0);
        assert_eq!(next(83), (Phase::Declines, 1));
        assert_eq!(next(84), (Phase::Rests, 0));
    }

    #[test]
    fn a_thread_declines_rests_that_collisions_follow_at_once() {
        assert_eq!(next(Phase::Rests, 0, 124), (Phase::Declines, 1));
        assert_eq!(next(Phase::Rests, 0, 125), (Phase::Rests, 0));
        assert_eq!(next(Phase::Declines, 1, 10), (Phase::Counts, 1));
        // It keeps its doubt until rests have paid.
        assert_eq!(next(Phase::Counts, 1, 10), (Phase::Rests, 1));
        assert_eq!(next(Phase::Rests, 1, 110), (Phase::Declines, 2));
        assert_eq!(next(Phase::Rests, 2, 250), (Phase::Rests, 0));
        let most = MOST_DOUBT + 1;
        assert_eq!(next(Phase::Rests, most, 110), (Phase::Declines, most));
    }

    /// A thread that waits all the time tries rests. How it judges them depends on how often it is preempted.
    #[test]
    fn the_phases_of_a_thread_follow_each_other() {
        std::thread::spawn(|| {
            let mut tried = 0;
            let mut longest = 0;
            for _ in 0..100_000 {
                let before = with_habits(|mine| mine.crowd.phase.get());
                let collision = rest_if_contended(REST);
                (0..20).for_each(|_| spin_hint());
                drop(collision);
                with_habits(|mine| {
                    let (phase, left) = (mine.crowd.phase.get(), mine.crowd.left.get());
                    tried += u32::from(phase == Phase::Rests && before != phase);
                    if phase == Phase::Declines {
                        longest = longest.max(left + 1);
                    }
                });
            }
            assert!(tried > 0);
            assert!(longest.is_multiple_of(COLLISIONS) && longest <= COLLISIONS << MOST_DOUBT);
        })
        .join()
        .unwrap();
    }
}
