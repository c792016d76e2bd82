//! The condition variable, and its waits with plain mutexes. The argument is in [the parent](super).
#![allow(unsafe_code)]

use super::Waited;
use super::crowd::Crowd;
use super::gathering::Gathering;
use crate::atomic::{const_unless_loom, unless_fault};
use crate::hook::{ByFeature, Observer};
use crate::mutex::{MutexGuard, Protocol, Relock, RelockAs, SleepPlace, lock_of, reports};
use crate::sharing::{Private, Sharing, constructors};
use crate::sys::futex::Sharing as Flag;
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr;

/// A condition variable for any mutex of this crate: see the [module](super) for an example.
///
/// `notify_all` does not wake all threads that wait for a private condition variable with the same mutex at
/// once: each is woken when it can have the mutex, or shortly before. With a mutex that inherits priority, the
/// waiter of the highest priority acquires it first, and lends its priority to the owner from the notification
/// on. The waiters of a [shared](Self::shared) one are woken together.
///
/// It may be used with one mutex after another. With several at a time a private one loses no notification, but each wakes all waiters that came while others waited with another mutex. A shared one does not know which waiter has which mutex: `notify_one` may go to a waiter with another mutex, so use [`notify_all`](Self::notify_all).
///
/// Owner death, fork, signals: as for the mutex. A signal handler may end a wait as if notified. A waiter whose
/// mutex's owner died learns of that when it is notified. A signal handler may notify.
#[repr(C)]
pub struct Condvar<S: Sharing = Private> {
    pub(super) gathering: Gathering,
    pub(super) crowd: Crowd,
    sharing: PhantomData<S>,
}

constructors!(Condvar, "A condition variable without waiters", a death "while it waits, or between a change and its notification,");

impl<S: Sharing> Condvar<S> {
    const_unless_loom! {
        /// A condition variable without waiters.
        #[must_use]
        pub fn new_in() -> Self {
            Self { gathering: Gathering::new(), crowd: Crowd::new(), sharing: PhantomData }
        }
    }

    /// Wakes one waiter, if there is any. (With several mutexes at a time: see the type.)
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
        let report = || {
            #[cfg(not(loom))]
            crate::hook::notifies(self.as_lock(), all);
        };
        if self.gathering.waiters() > enough {
            report();
            self.gathering.notify(all);
        }
        if self.crowd.waiters() > enough {
            report();
            // A waiter of a private condition variable is in the crowd because it has another mutex than the
            // gathering, and two waiters there may have different mutexes: so all are woken.
            let is_mixed =
                S::FLAG == unless_fault!(CondvarWakesOneOfCrowd, Flag::Private, Flag::Shared);
            self.crowd
                .wake(if all || is_mixed { u32::MAX } else { 1 }, S::FLAG);
        }
    }

    /// The condition variable, as the checker identifies it.
    fn as_lock(&self) -> crate::hook::Lock {
        use crate::hook::{Kind, Lock, Traits, traits_of};
        let traits = traits_of::<S>(Traits::empty());
        Lock::new(ptr::from_ref(self).addr(), Kind::Condvar).with(traits)
    }

    /// The common part of all waits: `release` unlocks the lock at this address, `acquire` locks it again.
    pub(super) fn pause<R>(
        &self,
        lock: *const (),
        queue: SleepPlace<'_>,
        deadline: Option<Deadline>,
        release: impl FnOnce(),
        acquire: impl FnOnce(Relock) -> R,
    ) -> (R, Waited) {
        if S::FLAG == Flag::Private
            && let Some(waiter) = self.gathering.enter(lock, queue)
        {
            release();
            let (waited, arrival, _turn) = waiter.sleep(deadline);
            return (acquire(arrival), waited);
        }
        let waiter = self.crowd.enter(S::FLAG);
        release();
        let waited = waiter.sleep(deadline);
        (acquire(Relock(RelockAs::Newcomer)), waited)
    }

    /// Releases the mutex, waits for a notification, and acquires the mutex again.
    ///
    /// Returns the guard in a `Result` if the mutex's protocol can fail; after an error the mutex is not held.
    #[track_caller]
    pub fn wait<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
    ) -> P::Outcome<MutexGuard<'a, T, P>> {
        P::outcome(self.wait_inner(guard, None).map(|(guard, _)| guard))
    }

    /// As [`Self::wait`], but waits at most until `deadline` (acquiring the mutex may last longer).
    #[track_caller]
    pub fn wait_until<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
        deadline: Deadline,
    ) -> P::Outcome<(MutexGuard<'a, T, P>, Waited)> {
        P::outcome(self.wait_inner(guard, Some(deadline)))
    }

    /// As [`Self::wait`], but waits at most for `timeout`.
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
        // Not dropped if the lock cannot be acquired again.
        let guard = ManuallyDrop::new(guard);
        let lock = MutexGuard::raw(&guard);
        // SAFETY: the guard holds the lock; it is kept, but not used until the lock is acquired again.
        let release = || unsafe { lock.release_to_wait(self.as_lock(), deadline.is_some(), site) };
        let address = ptr::from_ref(lock).cast();
        let (condvar, mutex) = (self.as_lock(), lock_of(lock));
        if reports::<P>() {
            let _ = ByFeature::condvar_begins(condvar, mutex, deadline.is_some(), site);
        }
        let (taken, waited) =
            self.pause(address, lock.sleep_place(), deadline, release, |arrival| {
                lock.acquire_again(arrival)
            });
        if reports::<P>() {
            ByFeature::condvar_ends(condvar, mutex, taken.is_ok(), site);
        }
        taken?;
        Ok((ManuallyDrop::into_inner(guard), waited))
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
