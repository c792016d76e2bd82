//! The robust form of the wait-wake protocol. The states and the argument are in the [parent](super).
#![allow(unsafe_code)]

use super::ops::owner_died;
use super::{OWNER_DIED, RawError, RobustOps, TID_MASK, WAITERS};
use crate::atomic::{AtomicU32, Ordering, unless_fault};
use crate::backoff::{HAND_OVER, LongPolls, REST, pause, rest_if_contended};
use crate::hook::ByFeature;
use crate::mutex::throughput::{Uncounted, mark_if_gone};
use crate::mutex::wait_mode::check_end;
#[cfg(not(loom))]
use crate::mutex::wait_mode::end_of_nap;
use crate::mutex::{Unfinished, WaitMode, WaitWake};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Wait};
use crate::sys::robust_list::Node;
use crate::task::Me;

// SAFETY: the word of the node names one owner, which a compare-and-swap enters.
unsafe impl<S: Sharing> RobustOps for WaitWake<S> {
    type Observer = ByFeature;
    type Counts = Uncounted;
    fn take(node: &Node, _: &Uncounted, me: Me, wait_mode: WaitMode) -> Result<(), RawError> {
        take_by(node, me, wait_mode, wait_mode.long_polls(), |expected| {
            Ok(sleep(&node.word, expected, wait_mode)?)
        })
    }
}

/// The longest sleep. Nearly always a wake-up ends it; a lost wake-up costs this time at most.
#[cfg(not(loom))]
const NAP: core::time::Duration = core::time::Duration::from_secs(1);

/// Sleeps while the word has the value `expected`, for one nap at most. Marks the death of an owner whose list the kernel has
/// not walked: its thread called `exec`, or its memory was taken away before it ended (`process_mrelease`).
pub(super) fn sleep(
    word: &AtomicU32,
    expected: u32,
    wait_mode: WaitMode,
) -> Result<(), Unfinished> {
    let deadline = wait_mode.deadline();
    // In a model a nap ends when a task dies whose wake-up no other task passes on (`model/mortal.rs`).
    #[cfg(loom)]
    let ended = futex::nap(word, expected, deadline);
    #[cfg(not(loom))]
    let ended = match deadline {
        Some(_) => futex::wait(
            word,
            expected,
            futex::Sharing::Shared,
            end_of_nap(NAP, deadline),
        ),
        // Without a deadline the nap's length is enough: the clock need not be read.
        None => {
            let nap = crate::atomic::unless_disabled!(RobustWaiterNaps, NAP, NAP * 1_000_000);
            futex::wait_for(word, expected, futex::Sharing::Shared, nap)
        }
    };
    if ended != Wait::Again && mark_if_gone(word, expected) {
        return Ok(());
    }
    check_end(ended, wait_mode)
}

/// Takes the word. `sleep` sleeps while the word has the value that it is passed, or gives up.
#[inline]
pub(super) fn take_by<F>(
    node: &Node,
    me: Me,
    wait_mode: WaitMode,
    mut long: LongPolls,
    mut sleep: impl FnMut(u32) -> Result<(), RawError<F>>,
) -> Result<(), RawError<F>> {
    // Relaxed: only a compare-and-swap acquires the lock.
    let _collision = (!wait_mode.is_try()).then(|| rest_if_contended(REST));
    let mut word = node.word.load(Ordering::Relaxed);
    let (mut polls, mut most) = (0, HAND_OVER);
    // By invariant 3: the bit that a task which has slept adds to the word as it takes it.
    let mut others = 0;
    loop {
        if word & TID_MASK == 0 {
            let waiters = (word & WAITERS) | others;
            let taken =
                me.tid() | (waiters & unless_fault!(RobustTakerForgetsSleepers, WAITERS, 0));
            // Acquire: pairs with the Release of the last owner.
            match node
                .word
                .compare_exchange_weak(word, taken, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    long.paid();
                    if word & OWNER_DIED != 0 {
                        owner_died(node);
                    }
                    return Ok(());
                }
                Err(now) => word = now,
            }
            continue;
        }
        if word & TID_MASK == me.tid() {
            return Err(RawError::Deadlock);
        }
        if wait_mode.is_try() {
            return Err(RawError::WouldBlock);
        }
        // If others sleep already, the lock is held for longer than a poll lasts.
        if polls < most && word & WAITERS == 0 {
            polls += pause(polls);
            word = node.word.load(Ordering::Relaxed);
            continue;
        }
        if others == 0 && word & WAITERS == 0 {
            let more = long.next(polls);
            if more > 0 {
                most = polls + more;
                continue;
            }
        }
        if word & WAITERS == 0 {
            // Relaxed: the bit carries no data. After a lost race the word is checked again.
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
        drop(core::mem::replace(&mut long, LongPolls::NONE));
        sleep(word)?;
        others = WAITERS;
        (polls, most) = (0, HAND_OVER);
        word = node.word.load(Ordering::Relaxed);
    }
}
