//! The robust form of the priority-inheritance protocol: the kernel's robust futex with inheritance, behind the gate of
//! [`Inherit`] (a queueing mutex in front of the word).
//!
//! Source: `Documentation/locking/robust-futex-ABI.rst`, `pi-futex.rst` of Linux. The text of the [parent](super)
//! holds, with these differences:
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free, no task sleeps; *the state may have any value* | unlock: CAS TID→0, Release; or the kernel, if it finds no sleeper |
//! | TID | held, no task sleeps | lock: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, a task may sleep | the kernel, before a task sleeps and when it passes the word on |
//! | `OWNER_DIED` (+ `WAITERS`) | no owner: it died; its *heir*, the first sleeper, may be about to run | the kernel; a task that detects that there is no such task |
//! | TID + `OWNER_DIED` (+ `WAITERS`) | held, taken from a dead owner | the kernel, for the heir or the next task that comes |
//!
//! Invariants, in place of 1, 3 and 5
//! 1. The task whose TID is in the word has the lock. A task writes its own TID only into a word of 0. The kernel makes
//!    all other changes, and also takes the word from a dead owner: only the kernel knows whether there is an heir.
//! 2. A task that acquires the lock always reads the state: the kernel drops `OWNER_DIED` when it passes a word on or
//!    frees it, whether or not the data is whole.
//! 3. `OWNER_DIED` beside a TID stays until the unlock, which then goes to the kernel.
//!
//! *A kill between any two lines.* The kernel walks the robust list first, and makes each word `OWNER_DIED`. Then it
//! walks its own records of sleepers, and wakes the first sleeper of each word: the heir, which then owns the word,
//! with `OWNER_DIED`. So no wake-up has to be passed on: ownership is passed, and an heir that is killed before it runs
//! is an owner that dies. After the CAS, or the kernel's grant, and before the link: the kernel finds the word through
//! the announcement. The mark in the announcement makes the kernel leave the waking of sleepers to this second step.
//!
//! *A kill at the gate* has the effects that it has for [`Inherit`]. The gate is no robust lock itself, and need not be
//! one: it carries no data.
//!
//! *Without the robust list*, too, a dead owner is detected, unlike with the wait-wake and the ceiling protocol: the
//! kernel reports that there is no such task (needed after exec by a thread that is not the first).
//!
//! *Why the gated form?* The node has room for the gate, since libc's has 40 bytes; the only advantage of
//! [`InheritPlain`](crate::mutex::InheritPlain) is that it saves 4 bytes. Without contention both are the same.
//!
//! *Progress, inheritance, real-time tasks:* as for [`Inherit`]. No word becomes `GONE`, so there are no naps on the
//! word. The node's `queue` is the gate.
//!
//! *musl's* `pthread_exit` follows the links itself, and does not know the mark: with musl the links have no mark. The
//! kernel then tries to wake a task as for other futexes, detects that it must not, and goes on as above.
#![allow(unsafe_code)]

use super::ops::owner_died;
use super::{OWNER_DIED, RawError, Robust, RobustOps};
use crate::atomic::{Ordering, unless_fault};
use crate::hook::ByFeature;
use crate::mutex::inherit::{PiGate, Word, lock_slowly, release_by_kernel};
use crate::mutex::throughput::Uncounted;
use crate::mutex::{Inherit, InheritFault, WaitMode, constructors};
use crate::sharing::{Shared, Sharing};
use crate::sys::robust_list::{Head, Node, PI};
use crate::task::Me;

// SAFETY: the word of the node names one owner, which the kernel or a compare-and-swap enters.
unsafe impl<S: Sharing> RobustOps for Inherit<S> {
    type Observer = ByFeature;
    type Counts = Uncounted;
    const MARK: usize = if cfg!(target_env = "musl") { 0 } else { PI };
    const HIDES_STATE: bool = true;

    fn take(
        node: &Node,
        _: &Uncounted,
        me: Me,
        wait_mode: WaitMode,
    ) -> Result<(), RawError<InheritFault>> {
        let word = Word::<true>(&node.word);
        let taken = if wait_mode.is_try() {
            word.take_at_once::<S>(me.tid())
        } else {
            let gate = PiGate(&node.queue);
            lock_slowly::<S, true>(word, gate, me.tid(), wait_mode.deadline())
        };
        match taken {
            Ok(true) => {
                // Relaxed: the task that took the word from the dead owner is this one, and it has the bit in the word.
                if node.word.load(Ordering::Relaxed) & OWNER_DIED != 0 {
                    crate::atomic::unless_disabled!(
                        RobustInheritReportsDeath,
                        owner_died(node),
                        ()
                    );
                }
                Ok(())
            }
            Ok(false) if wait_mode.is_try() => Err(RawError::WouldBlock),
            Ok(false) => Err(RawError::TimedOut),
            Err(InheritFault::Deadlock) => Err(RawError::Deadlock),
            Err(fault) => Err(RawError::Refused(fault)),
        }
    }

    #[cold]
    #[inline(never)]
    fn free(node: &Node, head: &Head, before: usize) {
        unless_fault!(
            RobustInheritIgnoresSleepers,
            // SAFETY: the calling task holds the lock; the word is in its node.
            unsafe { release_by_kernel::<S>(&raw const node.word) },
            node.word.store(0, Ordering::Release)
        );
        head.settle(before);
    }

    /// The state is enough: each taker reads it.
    fn pass_on(node: &Node) {
        // Release: pairs with the Acquire of the next taker.
        let freed = node.word.compare_exchange(
            Me::current_or_none().tid(),
            0,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if freed.is_err() {
            // SAFETY: the calling task holds the lock: its ID is in the word.
            unsafe { release_by_kernel::<S>(&raw const node.word) };
        }
    }
}

constructors! {
    /// An unlocked robust mutex that inherits priority, for threads and processes alike.
    ///
    /// ```
    /// use core::pin::Pin;
    /// use latchwork::mutex::{Inherit, LockError, Mutex, Robust};
    /// use latchwork::sharing::Shared;
    ///
    /// static SETPOINT: Mutex<f64, Robust<Inherit<Shared>>> = Mutex::robust_inherit(0.0);
    /// match Pin::static_ref(&SETPOINT).lock() {
    ///     Ok(mut setpoint) => *setpoint += 1.5,
    ///     Err(LockError::OwnerDied(died)) => *died.make_consistent() = 0.0,
    ///     Err(error) => panic!("{error}"),
    /// }
    /// ```
    robust_inherit: Robust<Inherit<Shared>>;
}
