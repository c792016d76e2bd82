//! The slow path of a region lock: waits, and what a waiter does about an owner that is gone. The argument is in the
//! [parent](super).
#![allow(unsafe_code)]

use super::forms::{RawError, RegionOps};
use super::lock::{INCONSISTENT, NOT_RECOVERABLE, WAITERS, is_held, owner_of};
use super::membership::Member;
use super::patience::{Patience, Sleep};
use crate::atomic::{AtomicU64, Ordering, fence, unless_fault};
use crate::backoff::{FIRST_POLLS, HAND_OVER, REST, pause, rest_if_contended};
use crate::mutex::wait_mode::check_end;
use crate::mutex::{Acquired, WaitMode, WaitWake};
use crate::sharing::Shared;
#[cfg(loom)]
use crate::sys::futex;
use crate::sys::futex::Wait;
#[cfg(loom)]
use crate::time::Deadline;
use core::ptr;
#[cfg(not(loom))]
use core::time::Duration;

/// How long a nap lasts, a sleep that watches no life-words. Such a sleep is a cheap one: on one word, where the other is on
/// a word for each task of the region, and is nearly always refused if the lock changes owners all the time. A wait mostly
/// ends within a nap. So a waiter may notice its owner's death that much later (or, among many tasks, by [`NAP_AMONG_MANY`]).
#[cfg(not(loom))]
const NAP: Duration = Duration::from_millis(4);

/// The same for a lock that many tasks use all the time, where waits are long although each owner is alive. A nap that
/// ends is worse than lost there: the sleeper loses its place among the others, and the owner has to wake one more. (16
/// tasks, 2 processors, `vfs`, naps of 4 ms: ten times the wake-ups, and 0.86 of the work for each second of processor time.)
#[cfg(not(loom))]
const NAP_AMONG_MANY: Duration = Duration::from_millis(32);

/// Waits of a thread that begin with a nap of that length, after a nap that ended beside another owner, or none. (With 16, the
/// same tasks slept 1.5 times as often, and did 0.93 to 0.95 of the work for each second of processor time.)
#[cfg(not(loom))]
const LONG_WAITS: u32 = 256;

/// How long a wait naps that a signal handler ends, after a nap that found the same owner at its end: the kernel restarts a
/// sleep on several words after a handler with `SA_RESTART`. A handler that runs between two naps ends no sleep, so they
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
    #[inline]
    fn take(&self, me: Member, wait_mode: WaitMode) -> Result<Acquired, RawError> {
        // Relaxed: only a compare-and-swap acquires the lock.
        let word = self.word().load(Ordering::Relaxed);
        if wait_mode.is_try() || owner_of(word) == me.identity() {
            return self.take_from(word, me, wait_mode);
        }
        let _collision = rest_if_contended(REST);
        let (mut polls, mut most) = (0, FIRST_POLLS);
        let mut long = wait_mode.long_polls();
        let word = loop {
            let word = self.poll(&mut polls, most);
            if word == 0 {
                // Free, with whole data; and this task has not slept.
                match self.replace(0, me.identity()) {
                    Ok(()) => {
                        long.paid();
                        return Ok(Acquired::Clean);
                    }
                    Err(now) if polls >= most.max(HAND_OVER) => break now,
                    Err(_) => continue,
                }
            }
            if !is_held(word) || word & WAITERS != 0 {
                break word;
            }
            // It asks once whether the owner is dead, for which polls would be in vain. (Without a fence: a wrong yes only ends
            // the polls, since `take_from` asks again.)
            if most < HAND_OVER && !me.is_gone(owner_of(word)) {
                most = HAND_OVER;
                continue;
            }
            if most >= HAND_OVER {
                let more = long.next(polls);
                if more > 0 {
                    most = polls + more;
                    continue;
                }
            }
            break word;
        };
        drop(long);
        self.take_from(word, me, wait_mode)
    }

    /// Polls while a task holds the lock and none sleeps: if others sleep already, the lock is held for longer than polls
    /// last. Adds its pauses to `polls`, up to `most`. Returns the last value read.
    #[inline]
    fn poll(&self, polls: &mut u32, most: u32) -> u64 {
        loop {
            // Relaxed: only a compare-and-swap acquires the lock.
            let word = self.word().load(Ordering::Relaxed);
            if !is_held(word) || word & WAITERS != 0 || *polls >= most {
                return word;
            }
            *polls += pause(*polls);
        }
    }

    /// As [`Self::take`], for a task that has read this `word`, and does not poll before its first sleep.
    #[inline(never)]
    fn take_from(
        &self,
        mut word: u64,
        me: Member,
        wait_mode: WaitMode,
    ) -> Result<Acquired, RawError> {
        // By invariant 5: the bit that a task which has slept adds to the word as it takes it.
        let mut others = 0;
        let mut sleep = None;
        let mut patience = Patience::default();
        // An owner that is gone, although the kernel has not marked its death.
        let mut unmarked = None;
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
            let how = *sleep.get_or_insert_with(first_sleep);
            // By invariant 6 the watch begins before the check of the owner.
            let mut watch = Watch::begin(self.word(), wait_mode, how);
            // Acquire: pairs with the Release fence of the owner's first attachment, so its life is not read as it was before.
            unless_fault!(RegionReadsOldLife, fence(Ordering::Acquire), ());
            let is_gone = || me.is_gone(owner_of(word)) || unmarked == Some(owner_of(word));
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
                watch = Watch::begin(self.word(), wait_mode, how);
            }
            let ended = watch.sleep(word, wait_mode.deadline());
            others = unless_fault!(RegionTakerForgetsSleepers, WAITERS, 0);
            let owner = owner_of(word);
            // Relaxed, as in `take`.
            let now = self.word().load(Ordering::Relaxed);
            let is_same = owner_of(now) == owner;
            if is_same && patience.is_over(how, ended, wait_mode) {
                let lock = ptr::from_ref(self.word()).addr();
                if me.has_vanished(owner, lock) {
                    unmarked = Some(owner);
                    word = now;
                    continue;
                }
            }
            check_end(ended, wait_mode)?;
            if !is_same {
                sleep = Some(after_other_owner(how, ended));
            } else if ended == Wait::TimedOut {
                sleep = Some(Sleep::Watch);
            }
            word = self.poll(&mut 0, HAND_OVER);
        }
    }

    /// Takes a word with this value; or returns the value that it has.
    #[inline]
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
    use super::{
        AtomicU64, INTERRUPTIBLE_NAP, LONG_WAITS, NAP, NAP_AMONG_MANY, Sleep, Wait, WaitMode, Watch,
    };
    use crate::atomic::AtomicU32;
    use crate::mutex::end_of_nap;
    use crate::mutex::in_region::patience::PATIENCE;
    use crate::sleep::DeathWatch;
    use crate::sys::futex::{self, Sharing};
    use crate::sys::own_record::with_habits;
    use crate::time::Deadline;

    /// How a wait sleeps first.
    pub(super) fn first_sleep() -> Sleep {
        with_habits(|mine| {
            let left = mine.long_waits.get();
            mine.long_waits.set(left.saturating_sub(1));
            if left > 0 {
                Sleep::NapAmongMany
            } else {
                Sleep::Nap
            }
        })
    }

    /// How a wait goes on after a sleep that `ended` so, and after which the lock has another owner, or none.
    pub(super) fn after_other_owner(how: Sleep, ended: Wait) -> Sleep {
        if ended == Wait::TimedOut {
            with_habits(|mine| mine.long_waits.set(LONG_WAITS));
        }
        match (how, ended) {
            (Sleep::Nap, Wait::TimedOut) | (Sleep::Watch, _) => Sleep::NapAmongMany,
            _ => how,
        }
    }

    fn high_half(word: &AtomicU64) -> &AtomicU32 {
        // SAFETY: the reference is only passed to waits.
        unsafe { futex::high_word(word) }
    }

    impl<'a> Watch<'a> {
        pub(in super::super) fn begin(
            word: &'a AtomicU64,
            wait_mode: WaitMode,
            how: Sleep,
        ) -> Self {
            match (how, wait_mode.is_interruptible()) {
                (Sleep::Nap, _) => Self::Nap(word, NAP),
                (Sleep::NapAmongMany, _) => Self::Nap(word, NAP_AMONG_MANY),
                (Sleep::Watch, true) => Self::Nap(word, INTERRUPTIBLE_NAP),
                (Sleep::Watch, false) => {
                    Self::Tasks(DeathWatch::begin(high_half(word), Sharing::Shared))
                }
            }
        }

        /// Sleeps while the high half of the word is that of `seen`.
        pub(in super::super) fn sleep(self, seen: u64, deadline: Option<Deadline>) -> Wait {
            let expected = (seen >> 32) as u32;
            match (self, deadline) {
                (Self::Tasks(watch), deadline) => {
                    watch.sleep_again(expected, end_of_nap(PATIENCE, deadline))
                }
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

#[cfg(not(loom))]
use sleeping::{after_other_owner, first_sleep};

#[cfg(loom)]
fn first_sleep() -> Sleep {
    Sleep::Nap
}

#[cfg(loom)]
fn after_other_owner(how: Sleep, _: Wait) -> Sleep {
    how
}

/// In a model a sleep ends when a task dies, as both kinds do.
#[cfg(loom)]
pub(super) struct Watch<'a>(&'a AtomicU64, usize);

#[cfg(loom)]
impl<'a> Watch<'a> {
    pub(super) fn begin(word: &'a AtomicU64, _: WaitMode, _: Sleep) -> Self {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn waits_become_longer_beside_owners_that_are_alive() {
        std::thread::spawn(|| {
            let rest = |how| after_other_owner(how, Wait::Again);
            assert!(first_sleep() == Sleep::Nap);
            assert!(rest(Sleep::Nap) == Sleep::Nap);
            assert!(after_other_owner(Sleep::Nap, Wait::TimedOut) == Sleep::NapAmongMany);
            for _ in 0..LONG_WAITS {
                assert!(first_sleep() == Sleep::NapAmongMany);
            }
            assert!(first_sleep() == Sleep::Nap);
            assert!(rest(Sleep::NapAmongMany) == Sleep::NapAmongMany);
            assert!(rest(Sleep::Watch) == Sleep::NapAmongMany);
            assert!(first_sleep() == Sleep::Nap);
        })
        .join()
        .unwrap();
    }

    /// A nap that ended beside the same owner: the wait goes on with a watch. `CONTRACT.md` states the bounds.
    #[test]
    fn no_nap_is_longer_than_promised() {
        let word = AtomicU64::new(1);
        for (how, most) in [(Sleep::Nap, 4), (Sleep::NapAmongMany, 32)] {
            let Watch::Nap(_, nap) = Watch::begin(&word, WaitMode::FOREVER, how) else {
                panic!("it is no nap");
            };
            assert_eq!(nap.as_millis(), most);
        }
        let watch = Watch::begin(&word, WaitMode::FOREVER, Sleep::Watch);
        assert!(matches!(watch, Watch::Tasks(_)));
    }
}
