//! A wait for a condition variable in steps, for a caller that makes the system call itself: its sleep may end
//! with the cancellation of its thread, which must not unwind through this library.
//!
//! [`Pause::begin`] counts the caller in. The caller then releases its mutex, makes the [`Call`] until
//! [`Pause::must_sleep_again`] returns false, and calls [`end_sleep`](Pause::end_sleep), whichever way the sleep
//! ended. The result says how to acquire the mutex again. A task that will not return to check the predicate
//! [passes on](Awake::pass_on) the notification that it may have consumed. The argument is in [the parent](super).
#![allow(unsafe_code)]

pub use super::crowd::Call;
use super::crowd::CrowdWaiter;
use super::gathering::{GatheringWaiter, Turn};
use super::variable::Condvar;
use crate::atomic::AtomicU32;
use crate::mutex::{Relock, RelockAs, SleepPlace, end_of_nap, is_over};
use crate::sharing::Sharing;
use crate::sleep::DeathWatch;
use crate::sys::futex::{self, Sharing as Flag, Wait};
use crate::time::Deadline;
use core::time::Duration;

/// A sleeper in a region watches its tasks by another system call than `Call`: in this library, for so long at a time.
const NAP: Duration = Duration::from_millis(100);

/// Sleeps in a region for at most `NAP`. Returns an error number or 0, or `None` if only that time is over.
fn nap(watch: &DeathWatch<'_>, expected: u32, deadline: Option<Deadline>) -> Option<i32> {
    match watch.sleep(expected, end_of_nap(NAP, deadline)) {
        Wait::TimedOut if is_over(deadline) => Some(libc::ETIMEDOUT),
        Wait::TimedOut => None,
        _ => Some(0),
    }
}

/// The same for a wait that a signal handler ends: the kernel restarts a sleep that watches tasks after a handler with
/// `SA_RESTART`. So this one watches none, and ends by itself, since a task that was killed may not have woken this one. A handler
/// that runs between two naps ends no wait, so they are not shorter. (`CONTRACT.md` states it.)
const INTERRUPTIBLE_NAP: Duration = Duration::from_secs(1);

/// Sleeps on a word for at most `INTERRUPTIBLE_NAP`; returns as [`nap`], and `EINTR` after a signal handler.
fn interruptible_nap(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Option<i32> {
    let until = end_of_nap(INTERRUPTIBLE_NAP, deadline);
    match futex::wait(word, expected, Flag::Shared, until) {
        Wait::TimedOut if is_over(deadline) => Some(libc::ETIMEDOUT),
        Wait::TimedOut => None,
        Wait::Interrupted => Some(libc::EINTR),
        Wait::Again => Some(0),
    }
}

/// Sleeps for a short time on a shared word in a region while it holds `expected`; `None` if it lies in no region. See
/// [`Pause::nap_in_region`].
///
/// # Safety
/// The word is valid memory until this returns.
pub unsafe fn nap_in_region(
    word: *const u32,
    expected: u32,
    deadline: Option<Deadline>,
    is_interruptible: bool,
) -> Option<Option<i32>> {
    // SAFETY: valid by the caller's contract; an atomic has the same layout.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    let watch = DeathWatch::begin(word, Flag::Shared);
    watch.is_of_region().then(|| match is_interruptible {
        true => interruptible_nap(word, expected, deadline),
        false => nap(&watch, expected, deadline),
    })
}

enum Waiter<'a> {
    Gathering(GatheringWaiter<'a>),
    Crowd(CrowdWaiter<'a>),
}

/// A wait that has begun.
pub struct Pause<'a> {
    waiter: Waiter<'a>,
    sharing: Flag,
    deadline: Option<Deadline>,
}

/// A wait whose sleep is over, until the mutex is acquired.
pub struct Awake<'a> {
    /// How to acquire the mutex.
    pub(crate) arrival: Relock,
    turn: Option<Turn<'a>>,
    is_notified: bool,
}

impl<'a> Pause<'a> {
    /// Counts the caller in, which holds the lock at this address.
    pub fn begin<S: Sharing>(
        condvar: &'a Condvar<S>,
        lock: *const (),
        queue: SleepPlace<'a>,
        deadline: Option<Deadline>,
    ) -> Self {
        let gathering = match S::FLAG {
            Flag::Private => condvar.gathering.enter(lock, queue),
            Flag::Shared => None,
        };
        let crowd = || Waiter::Crowd(condvar.crowd.enter(S::FLAG));
        Self {
            waiter: gathering.map_or_else(crowd, Waiter::Gathering),
            sharing: S::FLAG,
            deadline,
        }
    }

    /// The system call to sleep with.
    #[must_use]
    pub fn call(&self) -> Call {
        match &self.waiter {
            Waiter::Gathering(waiter) => waiter.call(self.deadline),
            Waiter::Crowd(waiter) => waiter.call(self.deadline, self.sharing),
        }
    }

    /// Sleeps for a short time, if the word lies in a region. Returns an error number or 0, or `Some(None)` if the
    /// caller has to check whether it was cancelled and call this again; `None` if the word lies in no region.
    #[must_use]
    pub fn nap_in_region(&self) -> Option<Option<i32>> {
        let Waiter::Crowd(waiter) = &self.waiter else {
            return None;
        };
        let (watch, ticket) = waiter.watch()?;
        Some(nap(watch, ticket, self.deadline))
    }

    /// Whether the caller has to sleep again after this error number, or 0.
    #[must_use]
    pub fn must_sleep_again(&self, error: i32) -> bool {
        match &self.waiter {
            Waiter::Gathering(waiter) => waiter.must_sleep_again(error, self.deadline),
            Waiter::Crowd(_) => false,
        }
    }

    /// Ends the sleep. `owned`: the kernel has made the caller the owner of the target.
    #[must_use]
    pub fn end_sleep(self, owned: bool) -> Awake<'a> {
        match self.waiter {
            Waiter::Gathering(waiter) => {
                let is_notified = waiter.is_notified();
                let (arrival, turn) = waiter.end_sleep(owned);
                Awake {
                    arrival,
                    turn: Some(turn),
                    is_notified,
                }
            }
            Waiter::Crowd(waiter) => Awake {
                arrival: Relock(RelockAs::Newcomer),
                turn: None,
                is_notified: waiter.is_notified(),
            },
        }
    }
}

impl Awake<'_> {
    /// Reports that the mutex was acquired, or refused: the next of those released with the caller is woken.
    pub fn taken(&mut self) {
        self.turn = None;
    }

    /// Passes on a `notify_one` that the caller may have consumed. After [`Self::taken`].
    pub fn pass_on<S: Sharing>(self, condvar: &Condvar<S>) {
        if self.is_notified {
            condvar.notify_one();
        }
    }
}
