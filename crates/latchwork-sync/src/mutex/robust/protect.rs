//! The robust form of the ceiling protocol: the word is the wait-wake protocol's; the ceiling is entered before all
//! other steps and left after them. See the [parent](super), and [`Protect`] for what a ceiling is.
//!
//! The ceiling is in the node, and never changes: a task leaves the ceiling that it entered. A task whose sleep ends,
//! by a wake-up or not, enters the ceiling again before it reads the word. A lock call that fails has left the ceiling.
//!
//! *A kill at any instruction* leaves the word as for the wait-wake protocol; the boost ends with its task. A task that
//! recovers the lock does so at the ceiling. *Cost:* a `try_lock` reads the word first, and does not change the
//! priority if the lock is held.
#![allow(unsafe_code)]

use super::wait_wake::{sleep, take_by};
use super::{RawError, Robust, RobustOps, TID_MASK};
use crate::atomic::Ordering;
use crate::backoff::LongPolls;
use crate::hook::ByFeature;
use crate::mutex::protect::check;
use crate::mutex::throughput::Uncounted;
use crate::mutex::{Mutex, Protect, ProtectFault, WaitMode};
use crate::sharing::{Shared, Sharing};
use crate::sys::futex::{self, Sharing as Flag};
use crate::sys::robust_list::Node;
use crate::task::{Ceilings, HIGHEST, Me};

// SAFETY: the word of the node names one owner, which a compare-and-swap enters.
unsafe impl<S: Sharing> RobustOps for Protect<S> {
    type Observer = ByFeature;
    type Counts = Uncounted;
    fn take(
        node: &Node,
        _: &Uncounted,
        me: Me,
        wait_mode: WaitMode,
    ) -> Result<(), RawError<ProtectFault>> {
        let ceiling = Self::ceiling(node);
        let mut is_inside = true;
        let taken = take_by(node, me, wait_mode, LongPolls::NONE, |expected| {
            Ceilings::leave_to_sleep(ceiling);
            is_inside = false;
            sleep(&node.word, expected, wait_mode)?;
            Ceilings::enter(ceiling).map_err(|fault| {
                // This task may have consumed the wake-up: pass it on.
                futex::wake(&raw const node.word, 1, Flag::Shared);
                RawError::Refused(fault)
            })?;
            is_inside = true;
            Ok(())
        });
        if taken.is_err() && is_inside {
            Ceilings::leave(ceiling);
        }
        taken
    }

    #[inline(always)]
    fn enter(node: &Node, wait_mode: WaitMode) -> Result<(), RawError<ProtectFault>> {
        if wait_mode.is_try() {
            // Relaxed: a compare-and-swap checks the value again.
            let owner = node.word.load(Ordering::Relaxed) & TID_MASK;
            if owner != 0 {
                return Err(if owner == Me::current_or_none().tid() {
                    RawError::Deadlock
                } else {
                    RawError::WouldBlock
                });
            }
        }
        Ceilings::enter(Self::ceiling(node)).map_err(RawError::Refused)
    }

    #[inline(always)]
    fn ceiling(node: &Node) -> u8 {
        // Relaxed: the ceiling never changes. The clamp is for memory that is shared with a faulty program.
        node.extra.load(Ordering::Relaxed).clamp(1, HIGHEST.into()) as u8
    }

    #[inline(always)]
    fn leave(ceiling: u8) {
        Ceilings::leave(ceiling);
    }
}

impl<S: Sharing> Robust<Protect<S>> {
    /// An unlocked lock.
    ///
    /// # Panics
    /// If `ceiling` is not 1 to 99.
    #[must_use]
    pub const fn with_ceiling(ceiling: u8) -> Self {
        check(ceiling);
        Self::with_extra(ceiling as u32)
    }
}

impl<T> Mutex<T, Robust<Protect<Shared>>> {
    /// An unlocked robust mutex with a priority ceiling, for threads and processes alike.
    ///
    /// ```no_run
    /// use core::pin::Pin;
    /// use latchwork::mutex::{LockError, Mutex, Protect, Robust};
    /// use latchwork::sharing::Shared;
    ///
    /// static LEVEL: Mutex<i32, Robust<Protect<Shared>>> = Mutex::robust_protect(50, 0);
    /// match Pin::static_ref(&LEVEL).lock() {
    ///     Ok(mut level) => *level += 1, // at priority 50
    ///     Err(LockError::OwnerDied(died)) => drop(died.replace(0)),
    ///     Err(LockError::Refused(fault)) => eprintln!("{fault}"), // no right to priority 50
    ///     Err(error) => panic!("{error}"),
    /// }
    /// ```
    ///
    /// # Panics
    /// If `ceiling` is not 1 to 99.
    #[must_use]
    pub const fn robust_protect(ceiling: u8, value: T) -> Self {
        Self::from_raw(Robust::<Protect<Shared>>::with_ceiling(ceiling), value)
    }
}

impl<T: ?Sized, S: Sharing> Mutex<T, Robust<Protect<S>>> {
    /// The priority ceiling, 1 to 99. It never changes.
    #[must_use]
    pub fn ceiling(&self) -> u8 {
        Protect::<S>::ceiling(&self.raw().node)
    }
}
