//! The robust form of the throughput protocol: stealing, one top waiter, hand-off. See the [parent](super),
//! and [`Throughput`] for the protocol.
//!
//! | in the node | is |
//! | --- | --- |
//! | word | the word of both: kernel-owned bits only, which is all that a throughput lock has there |
//! | `queue` | the gate |
//! | `extra` | the request; the threshold is 5 ms |
//!
//! What is new in the word: `OWNER_DIED` (+ `WAITERS`) is for everybody, newcomers too, and `OWNER_DIED`
//! beside a TID says that the lock was taken from a dead owner; it stays until the unlock. `WAITERS` alone
//! is *reserved*, as there, but a `try_lock` takes it: the top waiter may be dead.
//!
//! *A kill between any two lines.* For the word as the parent says: what is released for one or for all
//! is released, with the wake-up, while it is announced. (An unlock for all is one call.) As for its gate:
//! - *The top waiter is killed*, asleep, woken, polling, or about to leave the gate. Its TID stays in the gate.
//!   Whoever sleeps there looks for itself after 50 ms, and takes the gate away. Who comes meanwhile steals,
//!   or asks, before it sleeps there, whether there is such a task (a killed one is until it is reaped), and
//!   takes the gate away at once. What was reserved for the dead one waits for either, or for a `try_lock`.
//! - *Who was woken at the gate is killed*: the gate then names nobody, and is entered by who comes next, or
//!   whose sleep ends first.
//! - *The owner dies.* The kernel wakes one who sleeps on the word, which is the top waiter; one that polls
//!   sees it; else it is taken by a newcomer, or by the next top waiter, within 50 ms.
//!
//! So a death among those who wait costs the others 50 ms at most, once. The gate is no robust lock itself:
//! a task has one announcement, which is the word's at that time, and holding the gate gives a right to
//! nothing but polling.
//!
//! *Without the list*, too, a dead owner is found: a top waiter asks every 100 ms of its sleep, and at its deadline, whether there
//! is a task of the owner's ID (exec by a thread that is not the first).

use super::wait_wake::pass_on;
use super::{OWNER_DIED, RawError, Robust, Slow, TID_MASK};
use crate::atomic::{Ordering, const_unless_loom, unless_fault};
use crate::hook::ByFeature;
use crate::mutex::throughput::{DEFAULT, Gate, Uncounted, Words, take};
use crate::mutex::{Mutex, Patience, Throughput, WAITERS};
use crate::sharing::{Shared, Sharing};
use crate::sys::futex::{self, Sharing as Flag};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;
use core::marker::PhantomData;

impl<S: Sharing> Slow for Throughput<S> {
    type Observer = ByFeature;
    fn take(node: &Node, me: Me, patience: Patience) -> Result<(), RawError> {
        // Relaxed: only a compare-and-swap takes the lock.
        let mut word = node.word.load(Ordering::Relaxed);
        if word & TID_MASK == me.tid() {
            return Err(RawError::Deadlock);
        }
        if patience.is_none() {
            while word & TID_MASK != 0 || !take(&node.word, me.tid(), word) {
                if word & TID_MASK != 0 {
                    return Err(RawError::WouldBlock);
                }
                word = node.word.load(Ordering::Relaxed);
            }
        } else {
            // All waits are for the kernel's wake-up at a death, which is never private.
            let words = Words::<Shared, Uncounted, true> {
                word: &node.word,
                gate: Gate::of(&node.queue),
                request: &node.extra,
                threshold: &DEFAULT,
                counts: &Uncounted,
                sharing: PhantomData,
            };
            words.lock(me.tid(), patience)?;
        }
        // Relaxed: this task's own, who took it from the dead owner.
        if node.word.load(Ordering::Relaxed) & OWNER_DIED != 0 {
            node.owner_died();
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn free(node: &Node, head: &Head, before: usize) {
        let address = &raw const node.word;
        // Relaxed: an unlock that does not see it leaves it to the next.
        if node.extra.load(Ordering::Relaxed) != 0 {
            node.extra.store(0, Ordering::Relaxed);
            // Release: pairs with the Acquire of the next taker.
            node.word.swap(WAITERS, Ordering::Release);
            let count = unless_fault!(RobustThroughputWakesNobody, 1, 0);
            futex::wake(address, count, Flag::Shared);
        } else {
            futex::clear_and_wake_all(&node.word, Flag::Shared);
        }
        head.settle(before);
    }

    fn pass_on(node: &Node) {
        pass_on(node);
    }
}

impl<T> Mutex<T, Robust<Throughput<Shared>>> {
    const_unless_loom! {
        /// An unlocked robust mutex for short sections and many tasks, threads and processes alike.
        #[must_use]
        pub fn robust_throughput(value: T) -> Self {
            Self::from_raw(Robust::new(), value)
        }
    }
}
