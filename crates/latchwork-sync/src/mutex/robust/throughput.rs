//! The robust form of the throughput protocol: stealing, one top waiter, hand-off. See the [parent](super), and
//! [`Throughput`] for the protocol.
//!
//! | field of the node | is |
//! | --- | --- |
//! | word | the word of both: it holds only the bits that the kernel knows, which is all that a throughput lock has there |
//! | `queue` | the gate |
//! | `extra` | the request; the threshold is 5 ms |
//!
//! New in the word: `OWNER_DIED` (+ `WAITERS`) without a TID may be taken by every task, newcomers included.
//! `OWNER_DIED` beside a TID says that the lock was taken from a dead owner; it stays until the unlock. `WAITERS` alone
//! is *reserved*, as in the protocol, but a `try_lock` takes it: the top waiter may be dead. (So the bounds of the
//! protocol do not count the critical sections of `try_lock`.)
//!
//! *A kill between any two lines.* For the word, as the parent says: each release, for one sleeper or for all, and its
//! wake-up happen while the lock is announced. (An unlock that wakes all is one system call.) For the gate:
//! - *The top waiter is killed*, asleep, woken, polling, or about to leave the gate. Its TID stays in the gate. A task
//!   that sleeps there wakes up after 50 ms, and takes the gate away. A newcomer meanwhile steals; or, before it sleeps
//!   on the gate, it checks whether there is a task with that TID (a killed one exists until it is reaped), and if not
//!   takes the gate away at once. A word that was reserved for the dead task waits for either of them, or for a
//!   `try_lock`.
//! - *A task that was woken at the gate is killed*: the gate then has no TID. The next newcomer enters it, or the first
//!   task whose sleep ends.
//! - *The owner dies.* The kernel wakes one task that sleeps on the word: the top waiter. A top waiter that polls reads
//!   the change. If there is none, a newcomer takes the word, or the next top waiter does within 50 ms.
//!
//! So the death of a waiter costs the others 50 ms at most, once. The gate is no robust lock itself: a task has one
//! announcement, which is the word's at that time, and the gate gives its owner no right but to poll and to take a
//! reserved word.
//!
//! *Without the robust list*, too, a dead owner is detected: a top waiter checks every 100 ms of its sleep, and at its
//! deadline, whether there is a task with the owner's ID (needed after exec by a thread that is not the first).
#![allow(unsafe_code)]

use super::ops::owner_died;
use super::{OWNER_DIED, RawError, Robust, RobustOps, TID_MASK};
use crate::atomic::Ordering;
use crate::hook::ByFeature;
use crate::mutex::throughput::{DEFAULT, Gate, Uncounted, Words, release_contended, take};
use crate::mutex::{Throughput, WaitMode, constructors};
use crate::sharing::{Shared, Sharing};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;
use core::marker::PhantomData;

// SAFETY: the word of the node names one owner, which a compare-and-swap enters.
unsafe impl<S: Sharing> RobustOps for Throughput<S> {
    type Observer = ByFeature;
    fn take(node: &Node, me: Me, wait_mode: WaitMode) -> Result<(), RawError> {
        // Relaxed: only a compare-and-swap takes the lock.
        let mut word = node.word.load(Ordering::Relaxed);
        if word & TID_MASK == me.tid() {
            return Err(RawError::Deadlock);
        }
        if wait_mode.is_try() {
            while word & TID_MASK != 0 || !take(&node.word, me.tid(), word) {
                if word & TID_MASK != 0 {
                    return Err(RawError::WouldBlock);
                }
                word = node.word.load(Ordering::Relaxed);
            }
        } else {
            // All waits must be shared: the kernel's wake-up at a death is never private.
            let words = Words::<Shared, Uncounted, true> {
                word: &node.word,
                gate: Gate(&node.queue),
                request: &node.extra,
                threshold: &DEFAULT,
                counts: &Uncounted,
                sharing: PhantomData,
            };
            words.lock(me.tid(), wait_mode)?;
        }
        // Relaxed: this task wrote the word itself, when it took the lock from the dead owner.
        if node.word.load(Ordering::Relaxed) & OWNER_DIED != 0 {
            owner_died(node);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn free(node: &Node, head: &Head, before: usize) {
        // All wakes must be shared, as the waits are.
        release_contended::<Shared, true>(&node.word, &node.extra);
        head.settle(before);
    }
}

constructors! {
    /// An unlocked robust mutex for short critical sections and many tasks, threads and processes alike.
    robust_throughput: Robust<Throughput<Shared>>;
}
