//! The slow path of a region lock: waits, and what a waiter does about an owner that is gone. The argument is in the
//! [parent](super).
#![allow(unsafe_code)]

use super::forms::{RawError, RegionOps};
use super::lock::{INCONSISTENT, NOT_RECOVERABLE, WAITERS, is_held, owner_of};
use super::membership::Member;
use crate::atomic::{AtomicU64, Ordering, fence, unless_fault};
use crate::backoff::{HAND_OVER, REST, pause, rest_if_contended};
use crate::mutex::wait_mode::check_end;
use crate::mutex::{Acquired, WaitMode, WaitWake};
use crate::sharing::Shared;
#[cfg(loom)]
use crate::sys::futex;
use crate::sys::futex::Wait;
#[cfg(loom)]
use crate::time::Deadline;
#[cfg(not(loom))]
use core::time::Duration;

/// The longest sleep that watches no life-words. A wait nearly always ends within it, and such a sleep is a cheap one: on
/// one word, where the other is on a word for each task of the region. So this is also the longest time for which a
/// waiter may miss that its owner died.
#[cfg(not(loom))]
const NAP: Duration = Duration::from_millis(4);

/// The same for all but the first sleep of a wait that a signal handler ends. They are naps, too: the kernel restarts a
/// sleep on several words after a handler with `SA_RESTART`. A handler that runs between two of them ends no sleep, so they
/// are longer.
#[cfg(not(loom))]
const INTERRUPTIBLE_NAP: Duration = Duration::from_millis(50);

// SAFETY: see `Word::take`.
unsafe impl RegionOps for WaitWake<Shared> {
    type Gate = ();

    #[cfg(not(loom))]
    const GATE: () = ();

    #[inline]
    fn take(
        word: &AtomicU64,
        (): &(),
        me: Member,
        wait_mode: WaitMode,
    ) -> Result<Acquired, RawError> {
        Word(word).take(me, wait_mode)
    }
}

/// The word of a lock.
struct Word<'a>(&'a AtomicU64);

impl<'a> Word<'a> {
    fn word(&self) -> &'a AtomicU64 {
        self.0
    }

    /// Takes the word for the calling task.
    fn take(&self, me: Member, wait_mode: WaitMode) -> Result<Acquired, RawError> {
        let _collision = (!wait_mode.is_try()).then(|| rest_if_contended(REST));
        // Relaxed: only a compare-and-swap acquires the lock.
        let mut word = self.word().load(Ordering::Relaxed);
        let mut spins = HAND_OVER;
        // By invariant 5: the bit that a task which has slept adds to the word as it takes it.
        let mut others = 0;
        let mut has_napped = false;
        loop {
            if !is_held(word) {
                if word & NOT_RECOVERABLE != 0 {
                    return Err(RawError::NotRecoverable);
                }
                match self.replace(
                    word,
                    me.identity() | word & (WAITERS | INCONSISTENT) | others,
                ) {
                    Ok(()) if word & INCONSISTENT == 0 => return Ok(Acquired::Clean),
                    Ok(()) => return Ok(Acquired::OwnerDied),
                    Err(now) => word = now,
                }
                continue;
            }
            if owner_of(word) == me.identity() {
                return Err(RawError::Deadlock);
            }
            // If others sleep already, the lock is held for longer than a poll lasts.
            if spins > 0 && word & WAITERS == 0 && !wait_mode.is_try() {
                spins = spins.saturating_sub(pause(HAND_OVER - spins));
                word = self.word().load(Ordering::Relaxed);
                continue;
            }
            // By invariant 6 the watch begins before the check of the owner.
            let mut watch = Watch::begin(self.word(), wait_mode, has_napped);
            // Acquire: pairs with the Release fence of the owner's first attachment, so its life is not read as it was before.
            unless_fault!(RegionReadsOldLife, fence(Ordering::Acquire), ());
            let is_gone = || me.is_gone(owner_of(word));
            if crate::atomic::unless_disabled!(RegionLockTakesOver, is_gone(), false) {
                match self.replace(word, me.identity() | WAITERS | INCONSISTENT) {
                    Ok(())
                        if crate::atomic::unless_disabled!(RegionLockReportsDeath, false, true) =>
                    {
                        return Ok(Acquired::Clean);
                    }
                    Ok(()) => {
                        return Ok(unless_fault!(
                            RegionHidesDeath,
                            Acquired::OwnerDied,
                            Acquired::Clean
                        ));
                    }
                    Err(now) => word = now,
                }
                continue;
            }
            if wait_mode.is_try() {
                return Err(RawError::WouldBlock);
            }
            if word & WAITERS == 0 {
                // Relaxed: the bit carries no data. After a lost race the word is checked again.
                if let Err(now) = self.word().compare_exchange_weak(
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
            if unless_fault!(RegionWatchBeginsLate, false, true) {
                watch = Watch::begin(self.word(), wait_mode, has_napped);
            }
            let ended = watch.sleep(word, wait_mode.deadline());
            has_napped |= ended == Wait::TimedOut;
            check_end(ended, wait_mode)?;
            others = unless_fault!(RegionTakerForgetsSleepers, WAITERS, 0);
            spins = HAND_OVER;
            word = self.word().load(Ordering::Relaxed);
        }
    }

    /// Takes a word with this value; or returns the value that it has.
    fn replace(&self, word: u64, taken: u64) -> Result<(), u64> {
        // Acquire: pairs with the Release of the last owner.
        let result =
            self.word()
                .compare_exchange_weak(word, taken, Ordering::Acquire, Ordering::Relaxed);
        result.map(|_| ())
    }
}

/// A sleep that has not begun yet.
#[cfg(not(loom))]
pub(super) enum Watch<'a> {
    /// One that ends within this time.
    Nap(&'a AtomicU64, Duration),
    /// One that watches the other tasks of the region.
    Tasks(crate::sleep::DeathWatch<'a>),
}

#[cfg(not(loom))]
mod sleeping {
    use super::{AtomicU64, INTERRUPTIBLE_NAP, NAP, Ordering, Wait, WaitMode, Watch};
    use crate::atomic::AtomicU32;
    use crate::mutex::end_of_nap;
    use crate::mutex::in_region::{InRegion, RegionProtocol};
    use crate::sleep::DeathWatch;
    use crate::sys::futex::{self, Sharing};
    use crate::time::Deadline;

    fn high_half(word: &AtomicU64) -> &AtomicU32 {
        // SAFETY: the reference is only passed to waits.
        unsafe { futex::high_word(word) }
    }

    impl<P: RegionProtocol> InRegion<P> {
        /// Sleeps for at most `time`, or less if the lock changes meanwhile. For a task that cannot acquire it.
        #[doc(hidden)]
        pub fn sleep_beside(&self, time: core::time::Duration) {
            // Relaxed: only compared.
            let word = self.word().load(Ordering::Relaxed);
            futex::wait_for(
                high_half(self.word()),
                (word >> 32) as u32,
                Sharing::Shared,
                time,
            );
        }
    }

    impl<'a> Watch<'a> {
        /// The first sleep of a wait is a nap.
        pub(in super::super) fn begin(
            word: &'a AtomicU64,
            wait_mode: WaitMode,
            has_napped: bool,
        ) -> Self {
            match (has_napped, wait_mode.is_interruptible()) {
                (false, _) => Self::Nap(word, NAP),
                (true, true) => Self::Nap(word, INTERRUPTIBLE_NAP),
                (true, false) => Self::Tasks(DeathWatch::begin(high_half(word), Sharing::Shared)),
            }
        }

        /// Sleeps while the high half of the word is that of `seen`.
        pub(in super::super) fn sleep(self, seen: u64, deadline: Option<Deadline>) -> Wait {
            let expected = (seen >> 32) as u32;
            match (self, deadline) {
                (Self::Tasks(watch), deadline) => watch.sleep(expected, deadline),
                // Without a deadline the nap's length is enough: the clock need not be read.
                (Self::Nap(word, nap), None) => {
                    futex::wait_for(high_half(word), expected, Sharing::Shared, nap)
                }
                (Self::Nap(word, nap), Some(_)) => {
                    let end = end_of_nap(nap, deadline);
                    futex::wait(high_half(word), expected, Sharing::Shared, end)
                }
            }
        }

        /// As [`Self::sleep`]. Also returns whether the sleep began, as far as that is known.
        pub(in super::super) fn sleep_woken(
            self,
            seen: u64,
            deadline: Option<Deadline>,
        ) -> (Wait, bool) {
            match self {
                Self::Tasks(_) => (self.sleep(seen, deadline), true),
                Self::Nap(word, nap) => {
                    let end = end_of_nap(nap, deadline);
                    futex::wait_high(word, seen, u32::MAX, Sharing::Shared, end)
                }
            }
        }
    }
}

/// In a model a sleep ends when a task dies, as both kinds do.
#[cfg(loom)]
pub(super) struct Watch<'a>(&'a AtomicU64, usize);

#[cfg(loom)]
impl<'a> Watch<'a> {
    pub(super) fn begin(word: &'a AtomicU64, _: WaitMode, _: bool) -> Self {
        Self(word, futex::deaths())
    }

    pub(super) fn sleep(self, seen: u64, deadline: Option<Deadline>) -> Wait {
        self.sleep_woken(seen, deadline).0
    }

    pub(super) fn sleep_woken(self, seen: u64, deadline: Option<Deadline>) -> (Wait, bool) {
        let deaths = unless_fault!(RegionSleeperMissesDeaths, self.1, usize::MAX);
        if deaths == usize::MAX {
            let shared = futex::Sharing::Shared;
            futex::wait_high(self.0, seen, u32::MAX, shared, deadline)
        } else {
            futex::watch_high(self.0, seen, deaths, deadline)
        }
    }
}
