//! Rests: moments without a poll, in which another task has the lock for itself.

use super::speed::{polls_in, ticks_in};
use crate::atomic::spin_hint;
use crate::sys::clock::ticks;
use crate::sys::own_record::{Crowd, with_habits};

/// A thread rests if its collisions are at most so many microseconds apart, on average. A collision is a lock call that
/// found the lock held.
///
/// Measured on an AMD EPYC with two tasks and empty critical sections. With no work between the critical sections,
/// collisions are 0.9 to 2.2 µs apart, and rests allow two or three times as much work. With 270 ns between them,
/// collisions are 5 to 8 µs apart, and with rests a tenth less work is done.
const MAX_INTERVAL: u32 = 3;
/// Number of collisions over which a thread computes the average.
const COUNTED_COLLISIONS: u32 = 256;
/// If critical sections are short, at least so many of the counted collisions find the lock free at the first poll. 40
/// to 80 do where a critical section takes 1 ns and the other tasks do not rest, fewer while they rest, and 2 where it
/// takes 270 ns. (Of 64 collisions 5 did so by chance, often enough to cost a tenth of the work there. With 20 here,
/// and 4,096 rests, tasks in empty critical sections hardly rested.)
const MIN_FREE: u32 = 10;
/// Number of collisions with rests before the thread counts again.
const RESTED_COLLISIONS: u32 = 1024;

/// To be called before a wait for a lock that could not be taken.
///
/// Moving a lock, and all memory that its critical section writes, to another processor takes longer than many uses of
/// it on one processor. If critical sections are short, and the thread collides with others all the time, the tasks do
/// little but move the lock. Then this call passes some `microseconds` (normally one), in which another task has the
/// lock for itself.
#[inline]
pub fn rest_if_contended(microseconds: u32, is_free: impl Fn() -> bool) {
    with_habits(|mine| {
        let left = mine.crowd.left.get();
        mine.crowd.left.set(left.wrapping_sub(1));
        if mine.crowd.rests.get() {
            for _ in 0..polls_in(microseconds) {
                spin_hint();
            }
        } else if is_free() {
            mine.crowd.free.set(mine.crowd.free.get() + 1);
        }
        if left == 0 {
            count_again(&mine.crowd);
        }
    });
}

/// To be called when the thread has counted enough collisions, or rested often enough.
#[cold]
fn count_again(crowd: &Crowd) {
    let now = ticks();
    let passed = now.wrapping_sub(crowd.began.get());
    let rests = !crowd.rests.get()
        && crowd.free.get() >= MIN_FREE
        && passed < u64::from(COUNTED_COLLISIONS) * ticks_in(MAX_INTERVAL);
    crowd.rests.set(rests);
    crowd.left.set(
        if rests {
            RESTED_COLLISIONS
        } else {
            COUNTED_COLLISIONS
        } - 1,
    );
    crowd.free.set(0);
    crowd.began.set(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::REST;

    fn rests() -> bool {
        with_habits(|mine| mine.crowd.rests.get())
    }

    /// A test cannot set the time between collisions, but it can set whether the lock is free.
    #[test]
    fn a_thread_does_not_rest_if_the_lock_is_never_free() {
        std::thread::spawn(|| {
            for _ in 0..4 * COUNTED_COLLISIONS {
                rest_if_contended(REST, || false);
                assert!(!rests());
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_resting_thread_counts_again_after_its_rests() {
        std::thread::spawn(|| {
            with_habits(|mine| {
                mine.crowd.rests.set(true);
                mine.crowd.left.set(3);
            });
            for _ in 0..3 {
                rest_if_contended(0, || true);
                assert!(rests());
            }
            rest_if_contended(0, || true);
            assert!(!rests());
        })
        .join()
        .unwrap();
    }
}
