//! A wait for a condition variable in steps, for a caller that makes the system call itself: its sleep may end
//! with the cancellation of its thread, which must not unwind through this library.
//!
//! [`Pause::begin`] counts the caller in. The caller then releases its mutex, makes the [`Call`] until
//! [`Pause::goes_on`] returns false, and calls [`rise`](Pause::rise), whichever way the sleep ended. The result
//! says how to acquire the mutex again. A task that will not return to check the predicate [passes
//! on](Risen::pass_on) the notification that it may have consumed. The argument is in [the parent](super).

use super::crowd::Stay;
use super::gathering::{Seat, Turn};
use super::{Condvar, Sharing};
use crate::atomic::AtomicU32;
use crate::mutex::{Relock, RelockAs, SleepPlace};
use crate::sleep::Watch;
use crate::sys::futex::{Sharing as Flag, Wait};
use crate::time::Deadline;
use core::time::Duration;

/// A sleeper in a region watches the region's tasks, which takes another system call than `Call`. It sleeps in
/// this library, at most for so long at a time.
const NAP: Duration = Duration::from_millis(100);

#[allow(missing_docs)]
/// A futex call that sleeps while the word holds `expected`.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub word: *const AtomicU32,
    /// `FUTEX_WAIT_BITSET` with all bits set, or `FUTEX_WAIT_REQUEUE_PI`.
    pub operation: i32,
    pub expected: u32,
    /// The word that the sleeper may be requeued to.
    pub target: *const AtomicU32,
    pub deadline: Option<Deadline>,
}

/// Sleeps in a region for at most `NAP`. Returns an error number or 0, or `None` if only that time is over.
pub(crate) fn nap(watch: &Watch<'_>, expected: u32, deadline: Option<Deadline>) -> Option<i32> {
    let end = Deadline::after(NAP);
    let until = deadline.map_or(end, |deadline| deadline.min(end));
    match watch.sleep(expected, Some(until)) {
        Wait::TimedOut if deadline.is_some_and(Deadline::has_passed) => Some(libc::ETIMEDOUT),
        Wait::TimedOut => None,
        _ => Some(0),
    }
}

enum Place<'a> {
    Seat(Seat<'a>),
    Stay(Stay<'a>),
}

/// A wait that has begun.
pub struct Pause<'a> {
    place: Place<'a>,
    sharing: Flag,
    deadline: Option<Deadline>,
}

/// A wait whose sleep is over, until the mutex is acquired.
pub struct Risen<'a> {
    arrival: Relock,
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
        let seat = match S::FLAG {
            Flag::Private => condvar.gathering.enter(lock, queue),
            Flag::Shared => None,
        };
        Self {
            place: match seat {
                Some(seat) => Place::Seat(seat),
                None => Place::Stay(condvar.crowd.enter(S::FLAG)),
            },
            sharing: S::FLAG,
            deadline,
        }
    }

    /// The system call to sleep with.
    #[must_use]
    pub fn call(&self) -> Call {
        match &self.place {
            Place::Seat(seat) => seat.call(self.deadline),
            Place::Stay(stay) => stay.call(self.deadline, self.sharing),
        }
    }

    /// Sleeps for a short time, if the word lies in a region. Returns an error number or 0, or `Some(None)` if
    /// the caller has to check whether it was cancelled and call this again; `None` if the word lies in no
    /// region.
    #[must_use]
    pub fn nap_in_region(&self) -> Option<Option<i32>> {
        let Place::Stay(stay) = &self.place else {
            return None;
        };
        let (watch, ticket) = stay.watch()?;
        Some(nap(watch, ticket, self.deadline))
    }

    /// Whether the caller has to sleep again after this error number, or 0.
    #[must_use]
    pub fn goes_on(&self, error: i32) -> bool {
        match &self.place {
            Place::Seat(seat) => seat.goes_on(error, self.deadline),
            Place::Stay(_) => false,
        }
    }

    /// Ends the sleep. `owned`: the kernel has made the caller the owner of the target.
    #[must_use]
    pub fn rise(self, owned: bool) -> Risen<'a> {
        match self.place {
            Place::Seat(seat) => {
                let is_notified = seat.is_notified();
                let (arrival, turn) = seat.rise(owned);
                Risen {
                    arrival,
                    turn: Some(turn),
                    is_notified,
                }
            }
            Place::Stay(stay) => Risen {
                arrival: Relock(RelockAs::Newcomer),
                turn: None,
                is_notified: stay.is_notified(),
            },
        }
    }
}

impl Risen<'_> {
    /// How to acquire the mutex.
    pub(crate) fn arrival(&self) -> Relock {
        self.arrival
    }

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
