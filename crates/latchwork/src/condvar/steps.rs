//! A wait for a condition variable, step by step, for a caller that makes the call to the kernel itself:
//! one whose sleep may end by its thread's cancellation, which must not unwind through here.
//!
//! [`Pause::begin`] counts the caller in; it then releases its mutex, makes the [`Call`] as often as
//! [`Pause::goes_on`] says so, and [rises](Pause::rise), however the sleep ended. What it gets takes the
//! mutex again. A task that does not return to look at the predicate [passes on](Risen::pass_on) what it may
//! have been told. The argument stands in [the parent](super).

use super::crowd::Stay;
use super::gathering::{Seat, Turn};
use super::{Condvar, Sharing};
use crate::atomic::AtomicU32;
use crate::mutex::{Arrival, By, Queue};
use crate::sleep::Watch;
use crate::sys::futex::{Sharing as Flag, Wait};
use crate::time::Deadline;
use core::time::Duration;

/// Who sleeps in a region watches its tasks, which takes another call than this: it sleeps here, so long at
/// a time.
const NAP: Duration = Duration::from_millis(100);

#[allow(missing_docs)]
/// A futex call: to sleep while the word holds what is expected.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub word: *const AtomicU32,
    /// `FUTEX_WAIT_BITSET`, for any bit, or `FUTEX_WAIT_REQUEUE_PI`.
    pub operation: i32,
    pub expected: u32,
    /// The word that the sleeper may be sent on to.
    pub target: *const AtomicU32,
    pub deadline: Option<Deadline>,
}

/// Sleeps for a moment in a region; what it ended with, as an error number or 0, or none if only the moment
/// is over.
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

/// A wait whose sleep is over, until the mutex is taken.
pub struct Risen<'a> {
    arrival: Arrival,
    turn: Option<Turn<'a>>,
    is_notified: bool,
}

impl<'a> Pause<'a> {
    /// Counts the caller in, who holds the lock at this address.
    pub fn begin<S: Sharing>(
        condvar: &'a Condvar<S>,
        lock: *const (),
        queue: Queue<'a>,
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

    /// How to sleep.
    #[must_use]
    pub fn call(&self) -> Call {
        match &self.place {
            Place::Seat(seat) => seat.call(self.deadline),
            Place::Stay(stay) => stay.call(self.deadline, self.sharing),
        }
    }

    /// Sleeps for a moment, if this is a sleep in a region; what it ended with, as an error number or 0,
    /// or none if the caller is to look whether it was cancelled and to do this again.
    #[must_use]
    pub fn nap_in_region(&self) -> Option<Option<i32>> {
        let Place::Stay(stay) = &self.place else {
            return None;
        };
        let (watch, ticket) = stay.watch()?;
        Some(nap(watch, ticket, self.deadline))
    }

    /// Whether a sleep that ended with this error number, or 0, is to be slept on.
    #[must_use]
    pub fn goes_on(&self, error: i32) -> bool {
        match &self.place {
            Place::Seat(seat) => seat.goes_on(error, self.deadline),
            Place::Stay(_) => false,
        }
    }

    /// The end of the sleep. `owned`: the kernel has made the caller the owner of the target.
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
                arrival: Arrival(By::Itself),
                turn: None,
                is_notified: stay.is_notified(),
            },
        }
    }
}

impl Risen<'_> {
    /// How to take the mutex.
    pub(crate) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// The mutex was taken, or refused: those who were released with the caller come next.
    pub fn taken(&mut self) {
        self.turn = None;
    }

    /// Passes on a notification of one that may have been the caller's. After [`Self::taken`].
    pub fn pass_on<S: Sharing>(self, condvar: &Condvar<S>) {
        if self.is_notified {
            condvar.notify_one();
        }
    }
}
