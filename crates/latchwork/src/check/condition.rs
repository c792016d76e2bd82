//! Who waits for a condition, and with which mutex.
//!
//! A condition variable is bound to a mutex as long as a task is blocked on it that waits with that (POSIX). A
//! notification ends that for those that it releases, even before they return: of all for everybody, of one for one of
//! them, whichever that is. So the board counts those who are blocked ([`Entry::waiters`]):
//!
//! | event | waiters | rounds | released |
//! | --- | --- | --- | --- |
//! | a wait begins | +1 | read, after that | |
//! | all are notified | 0 | +1 | 0 |
//! | one is notified | −1, if there is one | | +1, if there was one |
//! | a wait ends that began in an earlier round | | | |
//! | a wait ends, and none is released | −1 | | |
//! | a wait ends, and some are released | −1, if it had a deadline | | −1 |
//!
//! The last line: who returns from a wait without a deadline is taken for one that was released. One that had a deadline
//! may be either; then the count is rather too low. So it is wherever two threads change it in the same moment: a
//! count that is too high would be a false alarm, one that is too low misses a fault.
//!
//! Of a condition variable that processes share the notifications of others are not seen, and the mutexes are not compared.

use super::layout::Entry;
use super::own::Own;
use crate::atomic::{AtomicU32, Ordering};
use crate::hook::record::TIMED;
use crate::hook::{Kind, Lock};

/// Rounds and released ones, as [`Entry::pair`] has them.
const fn pair(round: u32, released: u32) -> u64 {
    (round as u64) << 32 | released as u64
}

fn round(entry: &Entry) -> u32 {
    (entry.pair.load(Ordering::Relaxed) >> 32) as u32
}

/// One less; whether there was one.
fn take_one(count: &AtomicU32) -> bool {
    let less = |count: u32| count.checked_sub(1);
    count
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        .is_ok()
}

/// What is at an address was made, or made anew. Under the lock.
pub(super) fn settle(entry: &Entry, kind: Kind) {
    entry.waiters.store(0, Ordering::Relaxed);
    entry.mutex.store(0, Ordering::Relaxed);
    // Those who waited for one that was there before are not counted out.
    let pair = match kind {
        Kind::Condvar => pair(round(entry).wrapping_add(1), 0),
        _ => 0,
    };
    entry.pair.store(pair, Ordering::Relaxed);
}

/// The calling task is about to wait; whether all who are blocked have the same mutex.
pub(super) fn begins(own: &Own, entry: &Entry, mutex: Lock) -> bool {
    let address = mutex.address as u64;
    // Relaxed, here and below: two that come first at the same time may both be believed.
    let is_first = entry.waiters.fetch_add(1, Ordering::Relaxed) == 0;
    own.round.set(round(entry));
    if is_first {
        entry.mutex.store(address, Ordering::Relaxed);
    }
    is_first || entry.mutex.load(Ordering::Relaxed) == address
}

/// The wait of the calling task, which its record still tells of, is over.
pub(super) fn ends(own: &Own, entry: &Entry) {
    if own.round.get() != round(entry) {
        return;
    }
    let had_deadline = own.record().wanted.what.load(Ordering::Relaxed) & TIMED != 0;
    let less = |pair: u64| (pair as u32 != 0).then(|| pair - 1);
    let was_released = entry
        .pair
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        .is_ok();
    if !was_released || had_deadline {
        take_one(&entry.waiters);
    }
}

/// A notification is about to be made.
pub(super) fn notified(entry: &Entry, all: bool) {
    if entry.waiters.load(Ordering::Relaxed) == 0 {
        return;
    }
    if all {
        let next = |before: u64| Some(pair(((before >> 32) as u32).wrapping_add(1), 0));
        let _ = entry
            .pair
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        entry.waiters.store(0, Ordering::Relaxed);
    } else if take_one(&entry.waiters) {
        entry.pair.fetch_add(1, Ordering::Relaxed);
    }
}
