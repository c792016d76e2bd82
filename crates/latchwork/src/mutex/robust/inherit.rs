//! The robust form of the inheriting protocol: the kernel's robust futex with inheritance, behind the gate
//! of [`Inherit`].
//!
//! Source: `Documentation/locking/robust-futex-ABI.rst`, `pi-futex.rst` of Linux. What the
//! [parent](super) says holds but for this:
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free, nobody sleeps; *whatever the state* | unlock: CAS TID→0, Release; or the kernel, if it finds no sleeper |
//! | TID | held, nobody sleeps | lock: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, somebody may sleep | the kernel, before a task sleeps and when it passes the word on |
//! | `OWNER_DIED` (+ `WAITERS`) | nobody's, its owner died; its heir may be on the way | the kernel; who finds that there is no such task |
//! | TID + `OWNER_DIED` (+ `WAITERS`) | held, taken from a dead owner | the kernel, for the heir or who comes next |
//!
//! Invariants, in place of 1, 3 and 5
//! 1. Who has the TID in the word has the lock. A task puts its own into a word of 0 only; all else the
//!    kernel does, also the taking from a dead owner: only it knows whether there is an heir.
//! 2. Who takes the lock looks at the state, always: the kernel drops `OWNER_DIED` when it passes a word
//!    on or frees it, whether or not the data is whole.
//! 3. `OWNER_DIED` beside a TID stays until the unlock, which is the kernel's then.
//!
//! *A kill between any two lines.* The kernel goes through the robust list first, and makes the word
//! `OWNER_DIED`, then through what it knows of sleepers, and wakes the first for each word: the heir, who
//! then owns the word, with `OWNER_DIED`. So there is no wake-up to be passed on: ownership is passed, and
//! an heir that is killed before it runs is an owner that dies. After the CAS, or the kernel's grant, and
//! before the link: the announcement, whose mark tells the kernel to leave waking alone.
//! *A kill at the gate* is as for [`Inherit`]: the kernel makes the first who sleeps there its owner; who
//! comes later takes it over. It is no robust lock itself, nor need it be: it carries nothing.
//!
//! *Without the list*, too, a dead owner is found, which it is not by the other protocols' waiters: the
//! kernel says that there is no such task (exec by a thread that is not the first).
//!
//! *Why the gated form?* The node has room for the gate, since libc's has 40 bytes; to save 4 is all
//! that [`InheritPlain`](crate::mutex::InheritPlain) is for. Uncontended both are the same.
//!
//! *Progress, inheritance, real-time tasks:* as for [`Inherit`]. There is no word that nobody can have,
//! hence no naps on the word. `queue` is the gate.
//!
//! *musl's* `pthread_exit` follows the links itself, and knows no mark: there they have none. The kernel
//! then tries to wake somebody by other means, finds that it must not, and goes on as above.

#![allow(unsafe_code)]

use super::{OWNER_DIED, RawError, Robust, Slow};
use crate::atomic::{Ordering, const_unless_loom, unless_fault};
use crate::hook::ByFeature;
use crate::mutex::inherit::{Gate, Way, Word, release_by_kernel};
use crate::mutex::{Inherit, InheritFault, Mutex, Patience};
use crate::sharing::{Shared, Sharing};
use crate::sys::robust_list::{Head, Node, PI};
use crate::task::Me;

impl<S: Sharing> Slow for Inherit<S> {
    type Observer = ByFeature;
    const MARK: usize = if cfg!(target_env = "musl") { 0 } else { PI };
    const HIDES_STATE: bool = true;

    fn take(node: &Node, me: Me, patience: Patience) -> Result<(), RawError<InheritFault>> {
        let word = Word::of(&node.word);
        let taken = if patience.is_none() {
            word.take_at_once::<S>(me.tid())
        } else {
            Way::<S, true>::new(word, Gate::of(&node.queue)).go(me.tid(), patience.deadline())
        };
        match taken {
            Ok(true) => {
                // Relaxed: whoever took it from the dead owner, and this is its task, has it in the word.
                if node.word.load(Ordering::Relaxed) & OWNER_DIED != 0 {
                    node.owner_died();
                }
                Ok(())
            }
            Ok(false) if patience.is_none() => Err(RawError::WouldBlock),
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
            // SAFETY: the calling task holds the lock.
            unsafe { release_by_kernel::<S>(&raw const node.word) },
            node.word.store(0, Ordering::Release)
        );
        head.settle(before);
    }

    /// The state says it all.
    fn pass_on(node: &Node) {
        // Release: pairs with the Acquire of the next taker.
        let freed = node.word.compare_exchange(
            Me::whoever().tid(),
            0,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if freed.is_err() {
            // SAFETY: as above.
            unsafe { release_by_kernel::<S>(&raw const node.word) };
        }
    }
}

impl<T> Mutex<T, Robust<Inherit<Shared>>> {
    const_unless_loom! {
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
        #[must_use]
        pub fn robust_inherit(value: T) -> Self {
            Self::from_raw(Robust::new(), value)
        }
    }
}
