//! Locks whose memory was made a lock again, where nobody tells: a `std::mutex` on the stack has no destructor, and its
//! constructor is a few stores of zero. An interposer leaves a mark in the memory, where the lock's owner keeps nothing,
//! and finds it gone.

use super::board;
use super::field::Here;
use super::known;
use super::own::Own;
use crate::atomic::{AtomicU64, Ordering};
use crate::hook::Lock;

/// A lock is about to be used, or was just made, and its memory does not bear `mark` where it should: there is another
/// lock now, and what was known of the one before counts no more. (Unless that is held: it was overwritten then, and
/// what follows is reported.) It bears the mark from now on, if the calling task is watched.
///
/// `mark` is this address's alone, and not zero. The memory stays a lock's until the call returns.
#[cold]
#[inline(never)]
pub fn unmarked(lock: Lock, place: &AtomicU64, mark: u64) {
    let Some(own) = Own::enter() else { return };
    let known = board::board().and_then(|board| board.lock(lock.address));
    let is_held = known.is_some()
        && (own.find(lock.address).is_some()
            || Here::new(&own).is_some_and(|here| here.holder(&own, lock).is_some()));
    board::alone(|_| {
        // Relaxed, here and below: who finds the mark takes the lock of the program's next, and knows its entry by
        // what was stored under this one.
        if place.load(Ordering::Relaxed) == mark {
            return;
        }
        if let Some(entry) = known
            && !is_held
        {
            known::gone(entry);
        }
        place.store(mark, Ordering::Relaxed);
    });
}
