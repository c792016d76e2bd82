//! The robust form of the wait-wake protocol. See the [parent](super) for words and arguments.

use super::{OWNER_DIED, RawError, Slow, TID_MASK, WAITERS};
use crate::atomic::{AtomicU32, Ordering, unless_fault};
use crate::backoff::{HAND_OVER, REST, pause, rest_if_crowded};
use crate::hook::ByFeature;
use crate::mutex::nap::{Nap, sleep_once};
use crate::mutex::{Patience, Unfinished, WaitWake};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Sharing as Flag};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;

impl<S: Sharing> Slow for WaitWake<S> {
    type Observer = ByFeature;
    fn take(node: &Node, me: Me, patience: Patience) -> Result<(), RawError> {
        take_by(node, me, patience, |expected| {
            Ok(sleep(&node.word, expected, patience)?)
        })
    }

    /// Of a word with `WAITERS`: nobody but the holder changes that word.
    #[cold]
    #[inline(never)]
    fn free(node: &Node, head: &Head, before: usize) {
        let address = &raw const node.word;
        // Release: pairs with the Acquire of the next taker. (A store would do; but each release is a
        // read-modify-write, so that what follows it can count on the barrier.)
        node.word.swap(0, Ordering::Release);
        let count = unless_fault!(RobustUnlockForgetsSleepers, 1, 0);
        futex::wake(address, count, Flag::Shared);
        head.settle(before);
    }

    fn pass_on(node: &Node) {
        pass_on(node);
    }
}

/// The word says what the kernel would say.
pub(super) fn pass_on(node: &Node) {
    let address = &raw const node.word;
    // Release: pairs with the Acquire of the next taker. (A store would do; loom would then let a
    // waiter go on seeing its own bit for ever.)
    node.word.swap(OWNER_DIED | WAITERS, Ordering::Release);
    futex::wake(address, 1, Flag::Shared);
}

/// Sleeps while the word has a value, for one nap at most.
pub(super) fn sleep(word: &AtomicU32, expected: u32, patience: Patience) -> Result<(), Unfinished> {
    sleep_once(word, expected, Flag::Shared, patience, Nap::OnWord).map(drop)
}

/// Takes the word. `sleep` sleeps while the word has the value that it is given, or gives up.
#[inline]
pub(super) fn take_by<F>(
    node: &Node,
    me: Me,
    patience: Patience,
    mut sleep: impl FnMut(u32) -> Result<(), RawError<F>>,
) -> Result<(), RawError<F>> {
    // Relaxed: only a compare-and-swap takes the lock.
    if !patience.is_none() {
        rest_if_crowded(REST, || node.word.load(Ordering::Relaxed) & TID_MASK == 0);
    }
    let mut word = node.word.load(Ordering::Relaxed);
    let mut spins = HAND_OVER;
    // By invariant 3, what a task that has slept adds to the word that it takes.
    let mut others = 0;
    loop {
        if word & TID_MASK == 0 {
            let kept = (word & WAITERS) | others;
            let taken = me.tid() | (kept & unless_fault!(RobustTakerForgetsSleepers, WAITERS, 0));
            // Acquire: pairs with the Release of the last holder.
            match node
                .word
                .compare_exchange_weak(word, taken, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) if word & OWNER_DIED == 0 => return Ok(()),
                Ok(_) => {
                    node.owner_died();
                    return Ok(());
                }
                Err(now) => word = now,
            }
            continue;
        }
        if word & TID_MASK == me.tid() {
            return Err(RawError::Deadlock);
        }
        if patience.is_none() {
            return Err(RawError::WouldBlock);
        }
        // Where others sleep already, the lock is held for longer than a poll lasts.
        if spins > 0 && word & WAITERS == 0 {
            pause(HAND_OVER - spins);
            spins -= 1;
            word = node.word.load(Ordering::Relaxed);
            continue;
        }
        if word & WAITERS == 0 {
            // Relaxed: the bit carries no data. A lost race is looked at again.
            if let Err(now) = node.word.compare_exchange_weak(
                word,
                word | WAITERS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                word = now;
                continue;
            }
            word |= WAITERS;
        }
        sleep(word)?;
        others = WAITERS;
        spins = HAND_OVER;
        word = node.word.load(Ordering::Relaxed);
    }
}
