//! The robust form of the wait-wake protocol. See the [parent](super) for words and arguments.

use super::{OWNER_DIED, RawError, Slow, TID_MASK, WAITERS};
use crate::atomic::{Ordering, unless_fault};
use crate::mutex::pause::pause;
use crate::mutex::{Patience, WaitWake};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Sharing as Flag};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;

/// As for the wait-wake mutex.
const SPINS: u32 = if cfg!(loom) { 0 } else { 200 };

/// Where the count of sleepers ends, so that it cannot stray far from the truth.
const MOST_SLEEPERS: u32 = 64;

impl<S: Sharing> Slow for WaitWake<S> {
    fn take(node: &Node, me: Me, patience: Patience) -> Result<(), RawError> {
        take_by(node, me, patience, |expected| {
            let ended = futex::wait(&node.word, expected, Flag::Shared, patience.deadline());
            Ok(patience.check(ended)?)
        })
    }

    /// Of a word with `WAITERS`: nobody but the holder changes that word.
    #[cold]
    #[inline(never)]
    fn free(node: &Node, head: &Head, before: usize) {
        // Relaxed: a guess.
        if node.queue.load(Ordering::Relaxed) > 1 {
            node.queue.fetch_sub(1, Ordering::Relaxed);
            let address = &raw const node.word;
            // Release: pairs with the Acquire of the next taker. (A store would do; but each release is a
            // read-modify-write, so that what follows it can count on the barrier.)
            node.word.swap(
                unless_fault!(RobustUnlockForgetsSleepers, WAITERS, 0),
                Ordering::Release,
            );
            futex::wake(address, 1, Flag::Shared);
        } else {
            node.queue.store(0, Ordering::Relaxed);
            futex::clear_and_wake_all(&node.word, Flag::Shared);
        }
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

/// Takes the word. `sleep` sleeps while the word has the value that it is given, or gives up.
#[inline]
pub(super) fn take_by<F>(
    node: &Node,
    me: Me,
    patience: Patience,
    mut sleep: impl FnMut(u32) -> Result<(), RawError<F>>,
) -> Result<(), RawError<F>> {
    // Relaxed: only a compare-and-swap takes the lock.
    let mut word = node.word.load(Ordering::Relaxed);
    let mut spins = SPINS;
    loop {
        if word & TID_MASK == 0 {
            let taken = me.tid() | (word & unless_fault!(RobustTakerForgetsSleepers, WAITERS, 0));
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
        // Even if others sleep: the bit outlives their sleep.
        if spins > 0 {
            pause(SPINS - spins);
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
        if node.queue.load(Ordering::Relaxed) < MOST_SLEEPERS {
            node.queue.fetch_add(1, Ordering::Relaxed);
        }
        sleep(word)?;
        spins = SPINS;
        word = node.word.load(Ordering::Relaxed);
    }
}
