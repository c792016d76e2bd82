//! The wait-wake mutex: four bytes, any thread or process, no owner recorded.
//!
//! Not robust, not recursive, no priority inheritance. Source: U. Drepper, *Futexes are tricky*,
//! mutex 2, with a bounded spin before the sleep.
//!
//! | word | name | meaning | entered by |
//! | --- | --- | --- | --- |
//! | 0 | `UNLOCKED` | free | unlock: swap, Release |
//! | 1 | `LOCKED` | held, no task sleeps | lock: CAS 0→1, Acquire |
//! | 2 | `CONTENDED` | held, a task may sleep | waiter: swap 2, Acquire (acquires the lock if it was 0) |
//!
//! Invariants
//! 1. A task sleeps only while the word is 2, or while an awake task is about to make it 2: one that a condition
//!    variable has woken when it moved the other waiters here.
//! 2. A task that has slept, or found the word at 2, acquires the lock with 2: others may still sleep.
//! 3. The task that changes 2 to 0 wakes one sleeper.
//!
//! *No wake-up is lost:* by 1 a sleeper saw 2, and the kernel compares the word again as it enqueues the sleeper. The
//! word leaves 2 only through an unlock, which by 3 wakes one sleeper. By 2 that sleeper puts 2 back, so its own unlock
//! wakes the next one. A task that comes back from a condition variable that moves its waiters here counts as one that
//! has slept.
//!
//! *Orderings:* the Release of an unlock pairs with the Acquire of the lock that reads its 0.
//!
//! *After the swap in `unlock`* the memory may be gone; only its address is passed to the kernel.
//!
//! *Progress:* newcomers may barge in, and there is no hand-off, so the wait of an unlucky waiter has no bound. A newcomer
//! polls at most `HAND_OVER` times. If neither a deadline nor a signal handler may end its wait, it polls for 25 µs more
//! before its first sleep, where that pays (`LongPolls`). Sleepers wake in the kernel's order: by real-time priority, then
//! first come.
//!
//! *Hostile events:* after EINTR the wait goes on. The death of an owner leaves the lock held for ever. A kill in an
//! unlock, between the swap and the wake, leaves the lock free with its sleepers asleep, until the next contended
//! unlock wakes one (use [`Robust`](super::Robust)). A private lock that was held at a fork stays held in the child. A
//! signal handler must not acquire a lock that the code it interrupts may hold.
//!
//! *Frozen:* values, size 4, alignment 4, zero = unlocked.
//!
//! *Cost, free:* one compare-and-swap and one swap, inlined. *Checked by:* the loom models in
//! `tests/loom_mutex.rs` (two and three tasks, spurious wake-ups), each with a negative twin.
#![allow(unsafe_code)]

use super::protocol::Attempt;
use super::{
    Interruptible, RawLock, Relock, RelockAs, SleepPlace, SleepWord, Unfinished, WaitMode,
};
use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::backoff::{HAND_OVER, LongPolls, REST, pause, rest_if_contended};
use crate::hook::{Traits, traits_of};
use crate::sharing::{Private, Sharing};
use crate::sys::futex::{self, Sharing as Flag};
use crate::sys::slow_paths;
use crate::time::Deadline;
use core::marker::PhantomData;

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// The wait-wake protocol: a waiter polls for a short time, then sleeps until it is woken.
///
/// As the protocol of a [`Mutex`](super::Mutex), or by itself through [`lock_api`]. Four bytes; zero is unlocked;
/// movable while unlocked.
///
/// Owner death leaves it locked, or, in the middle of an unlock, free with its waiters asleep. Fork: see [`Private`]
/// and [`Shared`](crate::sharing::Shared).
///
/// ```
/// use latchwork::mutex::{Mutex, WaitWake};
/// use latchwork::sharing::Shared;
///
/// // The protocol of `Mutex::new`; a shared one is for memory that processes share.
/// let hits: Mutex<u32, WaitWake<Shared>> = Mutex::shared(0);
/// *hits.lock() += 1;
/// assert_eq!((size_of::<WaitWake>(), *hits.lock()), (4, 1));
/// ```
#[repr(transparent)]
pub struct WaitWake<S: Sharing = Private> {
    word: AtomicU32,
    sharing: PhantomData<S>,
}

impl<S: Sharing> WaitWake<S> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self { word: AtomicU32::new(UNLOCKED), sharing: PhantomData }
        }
    }

    /// Whether a task holds the lock at this moment.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        // Relaxed: the answer may be stale before it arrives.
        self.word.load(Ordering::Relaxed) != UNLOCKED
    }

    /// Polls while the lock is held and no task sleeps; returns the last value read.
    fn spin(&self) -> u32 {
        self.spin_for(&mut 0, HAND_OVER)
    }

    /// As [`Self::spin`], before the first sleep of a wait.
    fn spin_first(&self, long: &mut LongPolls) -> u32 {
        let (mut polls, mut most) = (0, HAND_OVER);
        loop {
            let word = self.spin_for(&mut polls, most);
            if word != LOCKED {
                return word;
            }
            match long.next(polls) {
                0 => return word,
                more => most = polls + more,
            }
        }
    }

    /// As [`Self::spin`], for a wait that has made `polls`, up to `most`.
    #[inline]
    fn spin_for(&self, polls: &mut u32, most: u32) -> u32 {
        loop {
            // Relaxed: only a compare-and-swap acquires the lock.
            let word = self.word.load(Ordering::Relaxed);
            if word != LOCKED || *polls >= most {
                return word;
            }
            *polls += pause(*polls);
        }
    }

    #[cold]
    fn lock_contended(&self, wait_mode: WaitMode) -> Result<(), Unfinished> {
        self.lock_contended_by(wait_mode.long_polls(), sleep::<S>(wait_mode))
    }

    /// Acquires the lock. `sleep` sleeps while the word has the value that it is passed, or gives up.
    #[inline]
    pub(super) fn lock_contended_by<E>(
        &self,
        mut long: LongPolls,
        sleep: impl FnMut(&AtomicU32, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        slow_paths::acquisition();
        let _collision = rest_if_contended(REST);
        let mut word = self.spin_first(&mut long);
        // No task had to sleep: the lock can be taken as uncontended. Acquire: pairs with the Release in `unlock`.
        if word == UNLOCKED {
            match self
                .word
                .compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    long.paid();
                    return Ok(());
                }
                Err(now) => word = now,
            }
        }
        drop(long);
        self.lock_contended_from(word, sleep)
    }

    /// As [`Self::lock_contended_by`], for a task that has slept, or has read this `word`.
    #[inline]
    fn lock_contended_from<E>(
        &self,
        mut word: u32,
        mut sleep: impl FnMut(&AtomicU32, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            // Acquire: pairs with the Release in `unlock`. By invariant 2 this acquires the lock with 2.
            let taken = unless_fault!(
                RelockUncontended,
                CONTENDED,
                if word == UNLOCKED { LOCKED } else { CONTENDED }
            );
            if word != CONTENDED && self.word.swap(taken, Ordering::Acquire) == UNLOCKED {
                return Ok(());
            }
            sleep(&self.word, CONTENDED)?;
            word = self.spin();
        }
    }

    #[cold]
    fn wake(word: *const AtomicU32) {
        futex::wake(word, 1, S::FLAG);
    }
}

/// How to sleep while a word has a value, as long as the wait mode allows.
fn sleep<S: Sharing>(wait_mode: WaitMode) -> impl FnMut(&AtomicU32, u32) -> Result<(), Unfinished> {
    move |word, expected| {
        wait_mode.check(futex::wait(word, expected, S::FLAG, wait_mode.deadline()))
    }
}

// SAFETY: only one task changes the word from `UNLOCKED`, with Acquire, and only the owner changes it back, with
// Release.
unsafe impl<S: Sharing> RawLock for WaitWake<S> {
    const TRAITS: Traits = traits_of::<S>(Traits::empty());

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            // Without a deadline only success ends it.
            let _ = self.lock_contended(WaitMode::FOREVER);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`.
        let acquire = unless_fault!(LockRelaxed, Ordering::Acquire, Ordering::Relaxed);
        self.word
            .compare_exchange(UNLOCKED, LOCKED, acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    fn lock_until(&self, deadline: Deadline) -> bool {
        self.try_lock() || self.lock_contended(WaitMode::until(Some(deadline))).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        let word = &raw const self.word;
        // Release: pairs with every Acquire above.
        let release = unless_fault!(UnlockRelaxed, Ordering::Release, Ordering::Relaxed);
        if self.word.swap(UNLOCKED, release)
            == unless_fault!(UnlockWakesNobody, CONTENDED, u32::MAX)
        {
            Self::wake(word);
        }
    }

    fn raw_sleep_place(&self) -> SleepPlace<'_> {
        match S::FLAG {
            Flag::Private => SleepPlace(SleepWord::Plain(&self.word)),
            Flag::Shared => SleepPlace::NONE,
        }
    }

    fn lock_again(&self, relock: Relock) {
        let RelockAs::Requeued = relock.0 else {
            return self.lock();
        };
        let word = unless_fault!(CondvarRelockUncontended, self.spin(), return self.lock());
        // Without a deadline only success ends it.
        let _ = self.lock_contended_from(word, sleep::<S>(WaitMode::FOREVER));
    }
}

// SAFETY: a success is that of `try_lock` or of the slow path that `lock` takes; see `RawLock` above.
unsafe impl<S: Sharing> Interruptible for WaitWake<S> {
    #[inline]
    fn acquire_interruptible(&self, deadline: Option<Deadline>) -> Attempt<Self::Fault> {
        Ok(match self.try_lock() {
            true => Ok(()),
            false => self.lock_contended(WaitMode::interruptible(deadline)),
        })
    }
}

impl<S: Sharing> Default for WaitWake<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Sharing> core::fmt::Debug for WaitWake<S> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("WaitWake")
            .field("locked", &self.is_locked())
            .finish()
    }
}

#[cfg(not(loom))]
crate::relocatable::relocatable_locks!(WaitWake);
#[cfg(not(loom))]
super::implement_lock_api!({S: Sharing} WaitWake<S>, |lock: &WaitWake<S>| lock.is_locked());
