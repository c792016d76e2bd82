//! Which tasks wait for a condition, and with which mutex.
//!
//! A condition variable is bound to a mutex while a task that waits with that mutex is blocked on it (POSIX). A
//! notification unblocks the waiters that it releases, even before they return: a broadcast all of them, a signal one
//! of them, whichever that is. So the board counts the blocked tasks ([`Entry::waiters`]):
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
//! In the last line, a task that returns from a wait without a deadline counts as a released one. A task that had a
//! deadline may be either; the count is then rather too low. The same happens if two threads change the count at the
//! same moment: a count that is too high would cause a false positive, one that is too low a false negative.
//!
//! For a condition variable that processes share, notifications by other processes are not seen, and the mutexes are
//! not compared.

use crate::atomic::{AtomicU32, Ordering};
use crate::check::record::layout::Entry;
use crate::check::record::own::Own;
use crate::hook::record::TIMED;
use crate::hook::{Kind, Lock};

/// The round and the number of released waiters, as [`Entry::pair`] stores them.
const fn pair(round: u32, released: u32) -> u64 {
    (round as u64) << 32 | released as u64
}

fn round(entry: &Entry) -> u32 {
    (entry.pair.load(Ordering::Relaxed) >> 32) as u32
}

/// Subtracts one. Returns false if the count was zero.
fn take_one(count: &AtomicU32) -> bool {
    let less = |count: u32| count.checked_sub(1);
    let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    taken.is_ok()
}

/// The object at an address was initialised, or reinitialised. Under the lock.
pub(crate) fn settle(entry: &Entry, kind: Kind) {
    entry.waiters.store(0, Ordering::Relaxed);
    entry.mutex.store(0, Ordering::Relaxed);
    // The new round keeps waiters of the earlier object from being subtracted.
    let pair = match kind {
        Kind::Condvar => pair(round(entry).wrapping_add(1), 0),
        _ => 0,
    };
    entry.pair.store(pair, Ordering::Relaxed);
}

/// The calling task is about to wait. Returns whether all blocked tasks have the same mutex.
pub(crate) fn begins(own: &Own, entry: &Entry, mutex: Lock) -> bool {
    let address = mutex.address() as u64;
    // Relaxed, here and below: if two tasks come first at the same time, both may count as the first.
    let is_first = entry.waiters.fetch_add(1, Ordering::Relaxed) == 0;
    own.round.set(round(entry));
    if is_first {
        entry.mutex.store(address, Ordering::Relaxed);
    }
    is_first || entry.mutex.load(Ordering::Relaxed) == address
}

/// The wait of the calling task, which its record still shows, is over.
pub(crate) fn ends(own: &Own, entry: &Entry) {
    if own.round.get() != round(entry) {
        return;
    }
    let had_deadline = own.record().wanted.what.load(Ordering::Relaxed) & TIMED != 0;
    let less = |pair: u64| (pair as u32 != 0).then(|| pair - 1);
    let numbers = &entry.pair;
    let released = numbers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    if released.is_err() || had_deadline {
        take_one(&entry.waiters);
    }
}

/// A notification is about to be sent.
pub(crate) fn notified(entry: &Entry, all: bool) {
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
