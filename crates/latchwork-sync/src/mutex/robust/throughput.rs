//! The robust form of the throughput protocol: stealing, one top waiter, hand-off. See the [parent](super), and
//! [`Throughput`] for the protocol.
//!
//! | field of the node | is |
//! | --- | --- |
//! | word | the word of both: it holds only the bits that the kernel knows, which is all that a throughput lock has there |
//! | `queue` | the gate |
//! | `extra` | the request |
//! | `setting` | the threshold |
//!
//! The counters, if the lock has any, are behind the node.
//!
//! New in the word: `OWNER_DIED` (+ `WAITERS`) without a TID may be taken by every task, newcomers included.
//! `OWNER_DIED` beside a TID says that the lock was taken from a dead owner; it stays until the unlock. `WAITERS` alone
//! is *reserved*, as in the protocol, but a `try_lock` takes it, and a waiter that gives up at the gate: the top waiter may
//! be dead, or stopped. (So the bounds of the protocol do not count their critical sections.)
//!
//! *A kill between any two lines.* For the word, as the parent says: each release, for one sleeper or for all, and its
//! wake-up happen while the lock is announced. (An unlock that wakes all is one system call.) For the gate:
//! - *The top waiter is killed*, asleep, woken, polling, or about to leave the gate. Its TID stays in the gate. A task
//!   that sleeps there wakes up after 50 ms, and takes the gate away. A newcomer meanwhile steals; or, before it sleeps
//!   on the gate, it checks whether there is a task with that TID (a killed one exists until it is reaped), and if not
//!   takes the gate away at once. A word that was reserved for the dead task waits for either of them, for a `try_lock`,
//!   or for the end of the first timed wait.
//! - *A task that was woken at the gate is killed*: the gate then has no TID. The next newcomer enters it, or the first
//!   task whose sleep ends.
//! - *The owner dies.* The kernel wakes one task that sleeps on the word: the top waiter. A top waiter that polls reads
//!   the change. If there is none, a newcomer takes the word, or the next top waiter does within 50 ms.
//!
//! So the death of a waiter costs the others 50 ms at most, once. The gate is no robust lock itself: a task has one
//! announcement, which is the word's at that time, and the gate gives its owner no right but to poll and to take a
//! reserved word.
//!
//! *Without the robust list*, too, a dead owner is detected: a top waiter checks every 100 ms of its sleep, and at its
//! deadline, whether there is a task with the owner's ID (needed after exec by a thread that is not the first).
#![allow(unsafe_code)]

use super::ops::owner_died;
use super::{LockError, OWNER_DIED, RawError, Robust, RobustGuard, RobustOps, TID_MASK, WAITERS};
use crate::atomic::Ordering;
use crate::hook::ByFeature;
use crate::mutex::throughput::{
    Acquisition, Event, Gate, Released, Tally, Words, release_contended, take,
};
#[cfg(not(loom))]
use crate::mutex::throughput::{Counters, stored_threshold};
use crate::mutex::{Mutex, Throughput, WaitMode, constructors};
use crate::sharing::{Shared, Sharing};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;
use core::cell::Cell;
use core::marker::PhantomData;
use core::pin::Pin;

// SAFETY: the word of the node names one owner, which a compare-and-swap enters.
unsafe impl<S: Sharing, C: Tally> RobustOps for Throughput<S, C> {
    type Observer = ByFeature;
    type Counts = C;
    const RESERVES: bool = true;

    fn take(node: &Node, counts: &C, me: Me, wait_mode: WaitMode) -> Result<(), RawError> {
        take_traced(node, counts, me, wait_mode).map(drop)
    }

    #[cold]
    #[inline(never)]
    fn free(node: &Node, head: &Head, before: usize) {
        free_traced(node, head, before);
    }
}

/// As [`RobustOps::take`], and returns how the word was taken.
fn take_traced<C: Tally>(
    node: &Node,
    counts: &C,
    me: Me,
    wait_mode: WaitMode,
) -> Result<Acquisition, RawError> {
    // Relaxed: only a compare-and-swap takes the lock.
    let mut word = node.word.load(Ordering::Relaxed);
    if word & TID_MASK == me.tid() {
        return Err(RawError::Deadlock);
    }
    let acquisition = if wait_mode.is_try() {
        while word & TID_MASK != 0 || !take(&node.word, me.tid(), word) {
            if word & TID_MASK != 0 {
                return Err(RawError::WouldBlock);
            }
            word = node.word.load(Ordering::Relaxed);
        }
        Acquisition::FREE
    } else {
        // All waits must be shared: the kernel's wake-up at a death is never private.
        let words = Words::<Shared, C, true> {
            word: &node.word,
            gate: Gate(&node.queue),
            request: &node.extra,
            threshold: &node.setting,
            counts,
            sharing: PhantomData,
        };
        words.lock(me.tid(), wait_mode)?
    };
    // Relaxed: this task wrote the word itself, when it took the lock from the dead owner.
    if node.word.load(Ordering::Relaxed) & OWNER_DIED != 0 {
        crate::atomic::unless_disabled!(RobustThroughputReportsDeath, owner_died(node), ());
    }
    Ok(acquisition)
}

/// As [`RobustOps::free`], and returns what it did for the waiters.
fn free_traced(node: &Node, head: &Head, before: usize) -> Released {
    // All wakes must be shared, as the waits are.
    let released = release_contended::<Shared, true>(&node.word, &node.extra);
    head.settle(before);
    released
}

constructors! {
    /// An unlocked robust mutex for short critical sections and many tasks, threads and processes alike.
    robust_throughput: Robust<Throughput<Shared>>;
}

#[cfg(not(loom))]
impl<S: Sharing> Robust<Throughput<S, Counters>> {
    /// An unlocked lock that counts, as [`Throughput::counted`]: of 104 bytes instead of 40.
    ///
    /// ```
    /// use core::pin::pin;
    /// use latchwork::mutex::throughput::{Counters, Event};
    /// use latchwork::mutex::{Mutex, Robust, Throughput};
    /// use latchwork::sharing::Shared;
    ///
    /// let lock = Robust::<Throughput<Shared, Counters>>::counted();
    /// let mutex = pin!(Mutex::from_raw(lock, 0));
    /// *mutex.as_ref().lock().unwrap() += 1;
    /// assert_eq!(mutex.protocol().counters().of(Event::LockSlowPath), 0);
    /// ```
    ///
    /// Owner death: a task that dies in a lock call may have counted some of its events and not others.
    #[must_use]
    pub const fn counted() -> Self {
        Self::with_extra(0)
    }

    /// The counters of the lock.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counts
    }
}

impl<S: Sharing, C: Tally> Robust<Throughput<S, C>> {
    /// Sets after what time the first waiter in the queue gets the lock handed off: see
    /// [`Throughput::hand_off_after`].
    ///
    /// ```
    /// use core::pin::pin;
    /// use core::time::Duration;
    /// use latchwork::mutex::{Mutex, Robust, Throughput};
    /// use latchwork::sharing::Shared;
    ///
    /// let lock = Robust::<Throughput<Shared>>::new();
    /// let lock = lock.hand_off_after(Some(Duration::from_micros(500)));
    /// let mutex = pin!(Mutex::from_raw(lock, 0));
    /// *mutex.as_ref().lock().unwrap() += 1;
    /// ```
    #[cfg(not(loom))]
    #[must_use]
    pub const fn hand_off_after(mut self, threshold: Option<core::time::Duration>) -> Self {
        self.set_hand_off(threshold);
        self
    }

    /// As [`Self::hand_off_after`], in place.
    #[cfg(not(loom))]
    pub(crate) const fn set_hand_off(&mut self, threshold: Option<core::time::Duration>) {
        self.node.setting = stored_threshold(threshold);
    }

    /// Releases a lock with whole data, and returns what that did for the waiters.
    ///
    /// # Safety
    /// `me` is the calling task, and holds the lock.
    unsafe fn release_traced(&self, me: Me) -> Released {
        // SAFETY: the same contract.
        let (head, before) = unsafe { self.unlink(me) };
        if self.give(me.tid()) {
            head.settle(before);
            return Released::NoSleeper;
        }
        self.counts.count(Event::UnlockSlowPath);
        free_traced(&self.node, head, before)
    }

    /// By `release`, which releases a lock with data that is not whole, and wakes one sleeper if there is one.
    fn release_unclean_traced(&self, release: impl FnOnce()) -> Released {
        // Relaxed: a task that sets the bit after this finds the lock free, or is woken.
        let has_sleepers = self.node.word.load(Ordering::Relaxed) & WAITERS != 0;
        release();
        if has_sleepers {
            Released::Woke
        } else {
            Released::NoSleeper
        }
    }
}

type TracedResult<'a, T, P> = Result<(RobustGuard<'a, T, P>, Acquisition), LockError<'a, T, P>>;

impl<T: ?Sized, S: Sharing, C: Tally> Mutex<T, Robust<Throughput<S, C>>> {
    /// As [`lock`](Self::lock), and returns how the lock was taken.
    ///
    /// ```
    /// use core::pin::pin;
    /// use latchwork::mutex::Mutex;
    /// use latchwork::mutex::throughput::Entry;
    ///
    /// let mutex = pin!(Mutex::robust_throughput(0));
    /// let (mut hits, how) = mutex.as_ref().lock_traced()?;
    /// *hits += 1;
    /// assert_eq!((how.entry, how.sleeps), (Entry::Free, 0));
    /// # drop(hits);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As of [`lock`](Self::lock). A lock that is taken from a dead owner comes without the account.
    #[track_caller]
    pub fn lock_traced(self: Pin<&Self>) -> TracedResult<'_, T, Throughput<S, C>> {
        let acquisition = Cell::new(Acquisition::FREE);
        let guard = self.lock_by(|node, counts, me, wait_mode| {
            acquisition.set(take_traced(node, counts, me, wait_mode)?);
            Ok(())
        })?;
        Ok((guard, acquisition.get()))
    }

    /// The lock itself: its owner, its counters.
    #[must_use]
    pub fn protocol(&self) -> &Robust<Throughput<S, C>> {
        self.raw()
    }
}

impl<T: ?Sized, S: Sharing, C: Tally> RobustGuard<'_, T, Throughput<S, C>> {
    /// Releases the lock, and returns what that did for the tasks that wait. While the thread panics, the lock is
    /// released as inconsistent, as by a drop. In the child of a fork it aborts, as a drop does.
    ///
    /// ```
    /// use core::pin::pin;
    /// use latchwork::mutex::throughput::Released;
    /// use latchwork::mutex::{Mutex, RobustGuard};
    ///
    /// let mutex = pin!(Mutex::robust_throughput(0));
    /// let guard = mutex.as_ref().lock().unwrap();
    /// assert_eq!(RobustGuard::unlock_traced(guard), Released::NoSleeper);
    /// ```
    pub fn unlock_traced(this: Self) -> Released {
        let (lock, me) = Self::into_held(this);
        if std::thread::panicking() {
            // SAFETY: the guard held the lock, and is gone.
            return lock.release_unclean_traced(|| unsafe { lock.unlock_inconsistent() });
        }
        // SAFETY: the guard held the lock, and is gone.
        unsafe { lock.release_traced(me) }
    }
}

/// Without guards: for C, and for the gate of a reader/writer lock.
#[cfg(not(loom))]
impl<S: Sharing, C: Tally> Robust<Throughput<S, C>> {
    /// As [`Self::lock_raw`] within the budget and without a time limit; also returns how the lock was taken, if it was.
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    #[cfg(feature = "foreign")]
    pub(crate) unsafe fn acquire_traced(
        &self,
    ) -> (super::ops::Taken<core::convert::Infallible>, Acquisition) {
        // SAFETY: the same contract.
        unsafe {
            match self.acquire_free() {
                Some(_) => (Ok(super::Acquired::Clean), Acquisition::FREE),
                None => self.acquire_slowly_traced(WaitMode::FOREVER),
            }
        }
    }

    /// As [`Self::acquire_in_budget_by`], and returns how the lock was taken, if it was.
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    pub(crate) unsafe fn acquire_slowly_traced(
        &self,
        wait_mode: WaitMode,
    ) -> (super::ops::Taken<core::convert::Infallible>, Acquisition) {
        let mut acquisition = Acquisition::FREE;
        // SAFETY: the same contract.
        let taken = unsafe {
            self.acquire_in_budget_by(wait_mode, |node, counts, me, wait_mode| {
                acquisition = take_traced(node, counts, me, wait_mode)?;
                Ok(())
            })
        };
        (taken, acquisition)
    }

    /// As [`Self::unlock_raw`], and returns what that did for the waiters.
    ///
    /// # Safety
    /// As for [`Self::unlock_raw`].
    pub(crate) unsafe fn unlock_raw_traced(&self) -> Released {
        // SAFETY: the caller holds the lock; a task that holds a robust lock has a record.
        unsafe {
            if self.node.state.load(Ordering::Relaxed) == super::ops::CONSISTENT {
                self.release_traced(Me::current_or_none().task_unchecked())
            } else {
                self.release_unclean_traced(|| self.release_not_recoverable())
            }
        }
    }

    /// As [`Self::unlock_inconsistent`], and returns what that did for the waiters.
    ///
    /// # Safety
    /// As for [`Self::unlock_inconsistent`].
    pub(crate) unsafe fn unlock_inconsistent_traced(&self) -> Released {
        // SAFETY: the same contract.
        self.release_unclean_traced(|| unsafe { self.unlock_inconsistent() })
    }
}
