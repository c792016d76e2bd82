//! Condition variables: wait for a change of what a mutex protects.
//!
//! Ours, not pthread's: a process-shared pthread condition variable hangs its next broadcast when a
//! waiter was killed. Source of the form: U. Drepper, *Futexes are tricky*; the counter of std's.
//!
//! | word | meaning | changed by |
//! | --- | --- | --- |
//! | `ticket` | what waiters compare | +1 by each notification that finds waiters |
//! | `waiters` | at least as many as wait | +1 by a waiter under the mutex, −1 when it returns |
//!
//! Invariants
//! 1. A waiter counts itself, reads the ticket, and begins its watch over deaths, while it holds the
//!    mutex.
//! 2. A notification moves the ticket on before it wakes.
//! 3. `waiters` is too high by the number of waiters that were killed, never too low.
//!
//! *No wake-up is lost.* The predicate changes under the mutex. If the notifier locked before the
//! waiter, the waiter has seen the change. If after, the mutex orders the waiter's count before the
//! notifier's look at it (so Relaxed suffices there), and the kernel either finds the waiter asleep
//! or refuses its sleep, since the ticket moved (1, 2). The ticket wraps after 2³² notifications
//! within one instant of a waiter's descheduling, which is not a case.
//!
//! *A waiter is killed* after it was chosen by `notify_one` and before it looked, or a notifier after
//! it changed the predicate and before it notified: in a region its death wakes the others (they
//! look again, as after any spurious wake-up), asleep or on their way (1): a task that died after the
//! waiter's look at the predicate is one whose death it has not counted. That is for tasks of the
//! region, which a notifier must be (see `sleep.rs`). Outside of one, between processes, that one
//! notification is lost, as with POSIX: use `notify_all` there. A leftover count
//! (3) costs later notifications a system call. With a robust mutex a wait ends with what the mutex
//! says: `OwnerDied` if its holder died meanwhile.
//!
//! *Spurious wake-ups* happen: wait in a loop, or use `wait_while`. *Order:* as the kernel wakes, by
//! real-time priority, then first come. *Fork, signals:* as for the mutex. *Frozen:* size 8,
//! alignment 4, zero = nobody waits. *Cost:* without waiters a notification is one load.
//!
//! *Checked by:* `tests/loom_condvar.rs` (no lost notification with one and two waiters, spurious
//! wake-ups; negative twin: the ticket does not move), and the kill tests.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::mutex::{MutexGuard, Protocol};
use crate::sharing::{Private, Sharing};
use crate::sleep::Watch;
use crate::sys::futex::{self, Wait};
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

/// How a timed wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A notification, or for no reason: look at the predicate.
    Woken,
    /// The deadline passed.
    TimedOut,
}

/// A condition variable for any mutex of this crate.
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
    ticket: AtomicU32,
    waiters: AtomicU32,
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
            Self { ticket: AtomicU32::new(0), waiters: AtomicU32::new(0), sharing: PhantomData }
        }
    }

    /// Wakes one waiter, if there is any.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.notify(u32::MAX);
    }

    #[inline]
    fn notify(&self, count: u32) {
        // Relaxed: ordered by the mutex, see above.
        if self.waiters.load(Ordering::Relaxed) > unless_fault!(CondvarSkipsSingleWaiter, 0, 1) {
            self.wake(count);
        }
    }

    #[cold]
    fn wake(&self, count: u32) {
        // Relaxed: the kernel orders its comparison with the wake.
        self.ticket
            .fetch_add(unless_fault!(CondvarTicketStays, 1, 0), Ordering::Relaxed);
        futex::wake(&raw const self.ticket, count, S::FLAG);
    }

    /// Counts the caller in, and returns the sleep to come and its ticket. Under the mutex.
    fn enter(&self) -> (Watch<'_>, u32) {
        let watch = Watch::begin(&self.ticket, S::FLAG);
        self.waiters.fetch_add(1, Ordering::Relaxed);
        (watch, self.ticket.load(Ordering::Relaxed))
    }

    fn sleep(&self, watch: &Watch<'_>, ticket: u32, deadline: Option<Deadline>) -> Waited {
        let ended = watch.sleep(ticket, deadline);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        if ended == Wait::TimedOut {
            Waited::TimedOut
        } else {
            Waited::Woken
        }
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again.
    ///
    /// The guard comes in a `Result` if the mutex's protocol can fail; after an error the mutex is
    /// not held.
    pub fn wait<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
    ) -> P::Outcome<MutexGuard<'a, T, P>> {
        P::outcome(self.wait_inner(guard, None).map(|(guard, _)| guard))
    }

    /// As [`Self::wait`], but no longer than until `deadline` (taking the mutex may last longer).
    pub fn wait_until<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
        deadline: Deadline,
    ) -> P::Outcome<(MutexGuard<'a, T, P>, Waited)> {
        P::outcome(self.wait_inner(guard, Some(deadline)))
    }

    /// As [`Self::wait`], but no longer than for `timeout`.
    #[cfg(not(loom))]
    pub fn wait_for<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
        timeout: core::time::Duration,
    ) -> P::Outcome<(MutexGuard<'a, T, P>, Waited)> {
        self.wait_until(guard, Deadline::after(timeout))
    }

    /// Waits as long as `condition` holds.
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

    fn wait_inner<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: MutexGuard<'a, T, P>,
        deadline: Option<Deadline>,
    ) -> Result<(MutexGuard<'a, T, P>, Waited), P::Fault> {
        let (watch, ticket) = self.enter();
        // Not dropped if the lock cannot be taken again.
        let guard = ManuallyDrop::new(guard);
        let lock = MutexGuard::raw(&guard);
        // SAFETY: the guard holds the lock; it is kept but not used until the lock is taken again.
        unsafe { lock.release() };
        let compared = unless_fault!(
            CondvarTicketReadLate,
            ticket,
            self.ticket.load(Ordering::Relaxed)
        );
        let waited = self.sleep(&watch, compared, deadline);
        lock.acquire()?;
        Ok((ManuallyDrop::into_inner(guard), waited))
    }
}

#[cfg(not(loom))]
mod with_robust {
    use super::{Condvar, Deadline, Sharing, Waited};
    use crate::mutex::{LockError, RobustGuard, RobustProtocol};

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
            let (watch, ticket) = self.enter();
            let mutex = RobustGuard::mutex(&guard);
            drop(guard);
            self.sleep(&watch, ticket, None);
            mutex.lock()
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
            let (watch, ticket) = self.enter();
            let mutex = RobustGuard::mutex(&guard);
            drop(guard);
            let waited = self.sleep(&watch, ticket, Some(deadline));
            Ok((mutex.lock()?, waited))
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
            .field("waiters", &self.waiters.load(Ordering::Relaxed))
            .finish()
    }
}
