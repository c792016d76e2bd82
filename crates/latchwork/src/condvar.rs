//! Condition variables: wait for a change of what a mutex protects.
//!
//! A task that finds under a mutex that something is not so yet waits here, without the mutex, until another task has
//! changed it and notified it. [`Condvar::wait_while`] looks again by itself; with robust mutexes
//! [`Condvar::wait_robust_while`].
//!
//! ```
//! use latchwork::condvar::Condvar;
//! use latchwork::mutex::Mutex;
//!
//! static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
//! static MORE: Condvar = Condvar::new();
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         JOBS.lock().push(7);
//!         MORE.notify_one();
//!     });
//!     let mut jobs = MORE.wait_while(JOBS.lock(), |jobs| jobs.is_empty());
//!     assert_eq!(jobs.pop(), Some(7));
//! });
//! ```
//!
//! # How it works
//!
//! Ours, not pthread's: a process-shared pthread condition variable hangs its next broadcast when a
//! waiter was killed. Source of the form: U. Drepper, *Futexes are tricky*; the counter of std's; for
//! inheriting mutexes, `Documentation/locking/futex-requeue-pi.rst` of Linux.
//!
//! There are two places to wait. In the *crowd* a notification of all wakes all, who then meet at the
//! mutex. In the *gathering* they are released in another way, so that each is woken when it is its turn,
//! or nearly: waiters of a [`Private`] condition variable are there, all with one mutex.
//!
//! | mutex | `notify_one` | `notify_all` | who is released |
//! | --- | --- | --- | --- |
//! | [`WaitWake`](crate::mutex::WaitWake) | wakes one | wakes two, sends the others on to the mutex's word | is woken by an unlock |
//! | [`Inherit`](crate::mutex::Inherit), [`InheritPlain`](crate::mutex::InheritPlain), where the kernel does it well | sends one on to the mutex's word | sends all | is woken as the mutex's owner, the first in priority first; lends its priority until then |
//! | any other, one that processes share, or where the kernel does not | wakes one | sends all on to the relay, wakes two | is woken when the one before it has taken the mutex |
//!
//! | word | meaning | changed by |
//! | --- | --- | --- |
//! | `crowd.ticket` | what waiters in the crowd compare | +1 by each notification that finds some |
//! | `crowd.waiters` | at least as many as wait there | +1 by a waiter under the mutex, −1 when it returns |
//! | `state` | the mutex of those in the gathering and the way to it, and their number | a waiter, under the mutex: +1; if there was none, the mutex; −1 when it returns |
//! | `ticket` | what waiters in the gathering compare; bit 0: all were notified once | +2 by each notification that finds some, and by a waiter that changes the mutex |
//! | `relay` | at least as many as sleep on this word | + the number sent there, by who has sent them; −1 by who is about to wake one |
//!
//! Invariants
//! 1. A waiter counts itself, reads the ticket, and begins its watch over deaths, while it holds the
//!    mutex.
//! 2. A notification moves the ticket on before it wakes, or sends on.
//! 3. The counts of waiters are too high by the number of waiters that were killed, never too low.
//! 4. All who are counted in `state`, asleep on the ticket or wherever they were sent, have the mutex that
//!    stands there. Who comes with another one meanwhile joins the crowd.
//! 5. While anybody sleeps on the relay, somebody is awake that will wake one, the first in priority: a
//!    waiter that was woken there, which does so when it has taken the mutex, was refused it, or unwinds; or a
//!    notifier.
//!
//! *No wake-up is lost.* The predicate changes under the mutex. If the notifier locked before the
//! waiter, the waiter has seen the change. If after, the mutex orders the waiter's count before the
//! notifier's look at it (so Relaxed suffices there), and the kernel either finds the waiter asleep
//! or refuses its sleep, since the ticket moved (1, 2). The ticket wraps after 2³¹ notifications
//! within one instant of a waiter's descheduling, which is not a case.
//!
//! *Nobody is sent to a mutex that is not its own.* A notifier reads the ticket, then the mutex, and the
//! kernel compares the ticket as it sends. A waiter of another mutex changes the mutex, then the ticket,
//! then sleeps: either the notifier reads the new mutex, or the kernel finds another ticket, and it reads
//! both again. The address may be stale by then: nobody is asleep in that case, and the kernel does
//! not touch it.
//!
//! *Sent to a word:* the waiters that are woken, and each that wakes up on the mutex's word, take the mutex
//! as tasks that have slept for it, so that their unlock wakes the next. Who cannot know whether it was
//! sent (all were notified once) does likewise, at the price of a call at its unlock. *Sent to the kernel:*
//! it passes the mutex on from one to the next. The word, not the gate of [`Inherit`](crate::mutex::Inherit)
//! is where they sleep: each has to be woken once anyhow, so the gate, which spares the sleep, spares
//! nothing, and on the word their priorities count at once. *Sent to the relay:* the count is raised when they
//! sleep there, then the first two are woken. Each wake-up takes one from the count before; if nobody was found,
//! the count was of one that has given up, and the next is taken. So the count is too low only between
//! a notifier's sending and its counting, and then it wakes some itself. *Priorities on the relay:* each
//! notification of all wakes the two first in priority, and each of them, when it has the mutex, the first of
//! those left. So whoever sleeps there has two of its own or a higher priority in front of it, awake or
//! waiting for the mutex; if that inherits, they lend the holder as much as it would.
//!
//! *A deadline* ends the sleep wherever it goes on; the mutex is then taken in the usual way, however long
//! that takes. [`Waited::TimedOut`] means that no notification of one was used up: the kernel says who
//! was woken; who was sent on looks whether the ticket has moved. *A signal* whose handler runs may end a
//! sleep as if notified.
//!
//! *A waiter is killed* after it was chosen by `notify_one` and before it looked, or a notifier after
//! it changed the predicate and before it notified: in a region its death wakes the others (they
//! look again, as after any spurious wake-up), asleep or on their way (1): a task that died after the
//! waiter's look at the predicate is one whose death it has not counted. That is for tasks of the
//! region, which a notifier must be (see `sleep.rs`). Outside of one, between processes, that one
//! notification is lost, as with POSIX: use `notify_all` there. That is why processes wait in the crowd: a
//! chain of wake-ups would break with the one that dies, and stand still while one is stopped. The threads
//! of a gathering die, and are stopped, together. A leftover count (3) costs later notifications a system call. With a robust mutex a wait ends with what
//! the mutex says: `OwnerDied` if its holder died meanwhile.
//!
//! *The kernel's way to an inheriting mutex*, requeue-PI, has had faults that crash it, or hang a processor,
//! when a requeue meets a deadlock of the application's or a time-out. No test can tell them without
//! meeting them, so it is used in versions of Linux that are known to be without (6.18.36 and later of that
//! series; 7.1.1 and later), and unless something forbids the calls. Elsewhere there is the relay, which
//! differs in this: each waiter is woken while the one before it has the mutex, and may sleep again.
//! *What the kernel refuses* to send on (the mutex's owner has died, it would close a circle of waits, there
//! is no memory), and those behind it in that notification, it lets nobody wake by other means. So waiters
//! who are to be sent on take a nap of 10 s at a time, and come back if they find that the ticket has moved:
//! for they cannot know whether they were refused, or sent on, or have missed a notification between two
//! naps; it may as well have been somebody else's. That is one needless wake-up in 10 s at most, and costs a
//! sleeper its place among those of its own priority. *A mutex that is gone* is told to who is notified.
//!
//! *Several mutexes:* in turn, as many as one likes. With several at once the notifications of a private one
//! wake all who came while there were waiters with another mutex. The crowd of a shared one does not
//! know who has which mutex: there a notification of one may go to a waiter with another.
//!
//! *Progress of a notification:* lock-free, not bounded: one that finds the ticket moved by another begins
//! again. It allocates nothing and leaves `errno` alone, so a signal handler may notify.
//!
//! *Spurious wake-ups* happen: wait in a loop, or use `wait_while`. *Order:* as the kernel wakes, by
//! real-time priority, then first come; on the relay one of lower priority that was woken before may still
//! come first. *Fork:* as for the mutex; a count may stay too high in the child. A child
//! that comes back from its parent's wait (a signal handler has forked) leaves a shared count to it. *Frozen:*
//! size 24, alignment 8, zero = nobody waits. *Cost:* without waiters a notification is two loads.
//!
//! *Checked by:* `tests/loom_condvar.rs` (no lost notification, with one and two waiters, each way,
//! spurious wake-ups, deadlines, two and three mutexes, a death; negative twins), `tests/condvar.rs`,
//! `tests/condvar_release.rs` (sleeps counted, priorities), `tests/condvar_events.rs` (panics, forks, a
//! sandbox), and the kill tests. Left out of the models: naps.
#![allow(unsafe_code)]

mod crowd;
mod gathering;
#[cfg(all(feature = "foreign", not(loom)))]
pub(crate) mod steps;

use crate::atomic::{const_unless_loom, unless_fault};
use crate::hook::{ByFeature, Observer};
use crate::mutex::{Arrival, By, MutexGuard, Protocol, Queue, lock_of, reports};
use crate::sharing::{Private, Sharing};
use crate::sys::futex::Sharing as Flag;
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr;
use crowd::Crowd;
use gathering::Gathering;

/// How a timed wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A notification, or for no reason: look at the predicate.
    Woken,
    /// The deadline passed.
    TimedOut,
}

impl Waited {
    const fn unless(timed_out: bool) -> Self {
        if timed_out {
            Self::TimedOut
        } else {
            Self::Woken
        }
    }
}

/// A condition variable for any mutex of this crate.
///
/// Threads that wait for a private one with the same mutex are not woken all at once: who is released by
/// [`notify_all`](Self::notify_all) wakes up when it can have the mutex, or nearly. With a mutex that
/// inherits priority, the one of the highest priority has it first, and lends its priority to the holder
/// as soon as it is notified. Those of a [shared](Self::shared) one are woken together.
///
/// It may be used with one mutex after another. With several at a time nothing is lost by a private one,
/// but waiters are woken more often than needed; a shared one must then be told with
/// [`notify_all`](Self::notify_all), for another's waiter may have the notification of one.
///
/// Owner death, fork, signals: as for the mutex; a signal handler may end a wait as if notified. Who waits
/// with a mutex whose owner dies learns that when it is notified. A notification may be made in a signal
/// handler.
///
/// ```
/// use latchwork::condvar::Condvar;
/// use latchwork::mutex::Mutex;
///
/// static READY: Mutex<bool> = Mutex::new(false);
/// static CHANGED: Condvar = Condvar::new();
///
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         *READY.lock() = true;
///         CHANGED.notify_one();
///     });
///     let ready = CHANGED.wait_while(READY.lock(), |ready| !*ready);
///     assert!(*ready);
/// });
/// ```
#[repr(C)]
pub struct Condvar<S: Sharing = Private> {
    gathering: Gathering,
    crowd: Crowd,
    sharing: PhantomData<S>,
}

#[cfg(not(loom))]
impl Condvar<Private> {
    /// One that nobody waits for, for the threads of this process.
    #[must_use]
    pub const fn new() -> Self {
        Self::new_in()
    }
}

#[cfg(not(loom))]
impl Condvar<crate::sharing::Shared> {
    /// One that nobody waits for, for every process that maps it.
    ///
    /// In a region, a task that is killed while it waits, or between a change and its
    /// notification, leaves nobody asleep. A process that uses this after a fork, through references
    /// alone, is to [join](crate::region::Region::join) the region first.
    #[must_use]
    pub const fn shared() -> Self {
        Self::new_in()
    }
}

impl<S: Sharing> Condvar<S> {
    const_unless_loom! {
        /// One that nobody waits for.
        #[must_use]
        pub fn new_in() -> Self {
            Self { gathering: Gathering::new(), crowd: Crowd::new(), sharing: PhantomData }
        }
    }

    /// Wakes one waiter, if there is any. (A shared one that is used with several mutexes at a time may wake
    /// one that waits with another mutex.)
    pub fn notify_one(&self) {
        self.notify(false);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.notify(true);
    }

    #[inline]
    fn notify(&self, all: bool) {
        let enough = unless_fault!(CondvarSkipsSingleWaiter, 0, 1);
        let tell = || {
            #[cfg(not(loom))]
            crate::hook::notifies(self.as_lock(), all);
        };
        if self.gathering.waiters() > enough {
            tell();
            self.gathering.notify(all);
        }
        if self.crowd.waiters() > enough {
            tell();
            // Who waits there for a private one does not have the mutex of the others, nor need two of them
            // have the same.
            let is_mixed =
                S::FLAG == unless_fault!(CondvarWakesOneOfCrowd, Flag::Private, Flag::Shared);
            self.crowd
                .wake(if all || is_mixed { u32::MAX } else { 1 }, S::FLAG);
        }
    }

    /// What the checker calls it.
    fn as_lock(&self) -> crate::hook::Lock {
        use crate::hook::{Kind, Lock, Traits, traits_of};
        let traits = traits_of::<S>(Traits::empty());
        Lock::new(ptr::from_ref(self).addr(), Kind::Condvar).with(traits)
    }

    /// What all waits are: `release` lets the lock at this address go, `acquire` takes it again.
    fn pause<R>(
        &self,
        lock: *const (),
        queue: Queue<'_>,
        deadline: Option<Deadline>,
        release: impl FnOnce(),
        acquire: impl FnOnce(Arrival) -> R,
    ) -> (R, Waited) {
        if S::FLAG == Flag::Private
            && let Some(seat) = self.gathering.enter(lock, queue)
        {
            release();
            let (waited, arrival, _turn) = seat.sleep(deadline);
            return (acquire(arrival), waited);
        }
        let stay = self.crowd.enter(S::FLAG);
        release();
        let waited = stay.sleep(deadline);
        (acquire(Arrival(By::Itself)), waited)
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again.
    ///
    /// The guard comes in a `Result` if the mutex's protocol can fail; after an error the mutex is
    /// not held.
    #[track_caller]
    pub fn wait<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
    ) -> P::Outcome<MutexGuard<'a, T, P>> {
        P::outcome(self.wait_inner(guard, None).map(|(guard, _)| guard))
    }

    /// As [`Self::wait`], but no longer than until `deadline` (taking the mutex may last longer).
    #[track_caller]
    pub fn wait_until<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
        deadline: Deadline,
    ) -> P::Outcome<(MutexGuard<'a, T, P>, Waited)> {
        P::outcome(self.wait_inner(guard, Some(deadline)))
    }

    /// As [`Self::wait`], but no longer than for `timeout`.
    #[cfg(not(loom))]
    #[track_caller]
    pub fn wait_for<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
        timeout: core::time::Duration,
    ) -> P::Outcome<(MutexGuard<'a, T, P>, Waited)> {
        self.wait_until(guard, Deadline::after(timeout))
    }

    /// Waits as long as `condition` holds.
    #[track_caller]
    pub fn wait_while<'a, T: ?Sized, P: Protocol>(
        &self,
        mut guard: MutexGuard<'a, T, P>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> P::Outcome<MutexGuard<'a, T, P>> {
        while condition(&mut guard) {
            guard = match self.wait_inner(guard, None) {
                Ok((guard, _)) => guard,
                Err(fault) => return P::outcome(Err(fault)),
            };
        }
        P::outcome(Ok(guard))
    }

    #[track_caller]
    fn wait_inner<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
        deadline: Option<Deadline>,
    ) -> Result<(MutexGuard<'a, T, P>, Waited), P::Fault> {
        let site = crate::hook::Site::caller();
        // Not dropped if the lock cannot be taken again.
        let guard = ManuallyDrop::new(guard);
        let lock = MutexGuard::raw(&guard);
        // SAFETY: the guard holds the lock; it is kept but not used until the lock is taken again.
        let release = || unsafe { lock.release_to_wait(self.as_lock(), deadline.is_some(), site) };
        let address = ptr::from_ref(lock).cast();
        let (condvar, mutex) = (self.as_lock(), lock_of(lock));
        if reports::<P>() {
            let _ = ByFeature::condvar_begins(condvar, mutex, deadline.is_some(), site);
        }
        let (taken, waited) = self.pause(address, lock.queue(), deadline, release, |arrival| {
            lock.acquire_again(arrival)
        });
        if reports::<P>() {
            ByFeature::condvar_ends(condvar, mutex, taken.is_ok(), site);
        }
        taken?;
        Ok((ManuallyDrop::into_inner(guard), waited))
    }
}

#[cfg(not(loom))]
mod with_robust {
    use super::{Condvar, Deadline, Queue, Sharing, Waited, ptr};
    use crate::mutex::{LockError, RobustGuard, RobustProtocol};

    type Taken<'a, T, P> = Result<RobustGuard<'a, T, P>, LockError<'a, T, P>>;

    impl<S: Sharing> Condvar<S> {
        /// As [`Condvar::wait`], with a robust mutex.
        ///
        /// # Errors
        /// Those of the mutex: [`LockError::OwnerDied`] (with the mutex taken) if a holder died
        /// meanwhile.
        pub fn wait_robust<'a, T: ?Sized, P: RobustProtocol>(
            &self,
            guard: RobustGuard<'a, T, P>,
        ) -> Result<RobustGuard<'a, T, P>, LockError<'a, T, P>> {
            self.wait_robust_inner(guard, None).0
        }

        /// As [`Condvar::wait_until`], with a robust mutex.
        ///
        /// # Errors
        /// As for [`Self::wait_robust`].
        pub fn wait_robust_until<'a, T: ?Sized, P: RobustProtocol>(
            &self,
            guard: RobustGuard<'a, T, P>,
            deadline: Deadline,
        ) -> Result<(RobustGuard<'a, T, P>, Waited), LockError<'a, T, P>> {
            let (taken, waited) = self.wait_robust_inner(guard, Some(deadline));
            Ok((taken?, waited))
        }

        /// As [`Condvar::wait_for`], with a robust mutex.
        ///
        /// # Errors
        /// As for [`Self::wait_robust`].
        pub fn wait_robust_for<'a, T: ?Sized, P: RobustProtocol>(
            &self,
            guard: RobustGuard<'a, T, P>,
            timeout: core::time::Duration,
        ) -> Result<(RobustGuard<'a, T, P>, Waited), LockError<'a, T, P>> {
            self.wait_robust_until(guard, Deadline::after(timeout))
        }

        /// As [`Condvar::wait_while`], with a robust mutex.
        ///
        /// # Errors
        /// As for [`Self::wait_robust`]. Once the data is repaired, wait again: the condition is looked at
        /// first.
        pub fn wait_robust_while<'a, T: ?Sized, P: RobustProtocol>(
            &self,
            mut guard: RobustGuard<'a, T, P>,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> Result<RobustGuard<'a, T, P>, LockError<'a, T, P>> {
            while condition(&mut guard) {
                guard = self.wait_robust(guard)?;
            }
            Ok(guard)
        }

        fn wait_robust_inner<'a, T: ?Sized, P: RobustProtocol>(
            &self,
            guard: RobustGuard<'a, T, P>,
            deadline: Option<Deadline>,
        ) -> (Taken<'a, T, P>, Waited) {
            let mutex = RobustGuard::mutex(&guard);
            let address = ptr::from_ref(mutex.get_ref()).cast();
            let release = || RobustGuard::release(guard);
            self.pause(address, Queue::NONE, deadline, release, |_| mutex.lock())
        }
    }
}

#[cfg(not(loom))]
mod with_recursive {
    use super::{Condvar, Deadline, Sharing, Waited, ptr};
    use crate::mutex::{Protocol, RecursiveGuard};

    impl<S: Sharing> Condvar<S> {
        /// As [`Condvar::wait`], with a recursive mutex that this task has taken once.
        ///
        /// Aborts if it has taken it more often: those other guards would be left without the mutex.
        pub fn wait_recursive<'a, T: ?Sized, P: Protocol>(
            &self,
            guard: RecursiveGuard<'a, T, P>,
        ) -> P::Outcome<RecursiveGuard<'a, T, P>> {
            let waited = self.wait_recursive_inner(guard, None);
            P::outcome(waited.map(|(guard, _)| guard))
        }

        /// As [`Condvar::wait_until`], with a recursive mutex that this task has taken once.
        ///
        /// Aborts as [`Self::wait_recursive`].
        pub fn wait_recursive_until<'a, T: ?Sized, P: Protocol>(
            &self,
            guard: RecursiveGuard<'a, T, P>,
            deadline: Deadline,
        ) -> P::Outcome<(RecursiveGuard<'a, T, P>, Waited)> {
            P::outcome(self.wait_recursive_inner(guard, Some(deadline)))
        }

        /// As [`Condvar::wait_for`], with a recursive mutex that this task has taken once.
        ///
        /// Aborts as [`Self::wait_recursive`].
        pub fn wait_recursive_for<'a, T: ?Sized, P: Protocol>(
            &self,
            guard: RecursiveGuard<'a, T, P>,
            timeout: core::time::Duration,
        ) -> P::Outcome<(RecursiveGuard<'a, T, P>, Waited)> {
            self.wait_recursive_until(guard, Deadline::after(timeout))
        }

        /// As [`Condvar::wait_while`], with a recursive mutex that this task has taken once.
        ///
        /// Aborts as [`Self::wait_recursive`].
        pub fn wait_recursive_while<'a, T: ?Sized, P: Protocol>(
            &self,
            mut guard: RecursiveGuard<'a, T, P>,
            mut condition: impl FnMut(&T) -> bool,
        ) -> P::Outcome<RecursiveGuard<'a, T, P>> {
            while condition(&guard) {
                guard = match self.wait_recursive_inner(guard, None) {
                    Ok((guard, _)) => guard,
                    Err(fault) => return P::outcome(Err(fault)),
                };
            }
            P::outcome(Ok(guard))
        }

        fn wait_recursive_inner<'a, T: ?Sized, P: Protocol>(
            &self,
            guard: RecursiveGuard<'a, T, P>,
            deadline: Option<Deadline>,
        ) -> Result<(RecursiveGuard<'a, T, P>, Waited), P::Fault> {
            let mutex = RecursiveGuard::only(&guard);
            let raw = mutex.raw();
            let address = ptr::from_ref(raw).cast();
            let release = || drop(guard);
            let (taken, waited) = self.pause(address, raw.queue(), deadline, release, |arrival| {
                mutex.lock_again(arrival)
            });
            Ok((taken?, waited))
        }
    }
}

#[cfg(not(loom))]
impl Default for Condvar<Private> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Sharing> fmt::Debug for Condvar<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Condvar")
            .field(
                "waiters",
                &(self.gathering.waiters() + self.crowd.waiters()),
            )
            .finish()
    }
}
