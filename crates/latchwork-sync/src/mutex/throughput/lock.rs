//! The throughput lock itself: its fast paths, and how it is a protocol. The argument is in [the parent](super).
#![allow(unsafe_code)]

use super::gate::Gate;
#[cfg(not(loom))]
use super::trace::Counters;
use super::trace::{Acquisition, Counting, Event, Released, Uncounted};
#[cfg(not(loom))]
use super::words::stored_threshold;
use super::words::{Words, release_contended, take};
use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::hook::{Traits, traits_of};
use crate::mutex::protocol::Attempt;
use crate::mutex::{
    Interruptible, Mutex, MutexGuard, RawLock, TID_MASK, Unfinished, WaitMode, constructors, report,
};
use crate::sharing::{Private, Sharing};
use crate::sys::slow_paths;
use crate::task::Me;
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

/// The calling task's ID. (If the thread's record cannot be made, each call asks the kernel.)
fn task_id() -> u32 {
    #[cfg(loom)]
    return Me::current_or_none().tid();
    #[cfg(not(loom))]
    Me::get().map_or_else(|_| crate::sys::thread::thread_id(), Me::tid)
}

/// The throughput protocol, as the parameter of a [`Mutex`]: for short critical sections and many tasks.
///
/// Waiters poll while the owner runs, and sleep while it does not. Newcomers may take a free lock ahead of the waiters;
/// a task that has waited for 5 ms as the first in the queue gets the lock handed off, past the newcomers.
///
/// ```
/// use latchwork::mutex::Mutex;
///
/// static HITS: Mutex<u64, latchwork::mutex::Throughput> = Mutex::throughput(0);
/// *HITS.lock() += 1;
/// let (hits, how) = HITS.lock_traced();
/// assert_eq!((*hits, how.sleeps), (1, 0));
/// ```
///
/// Sixteen bytes; zero is unlocked; movable while unlocked. For processes that map it, within one PID namespace
/// (a region for any namespace refuses it):
/// `Mutex::from_raw(Throughput::<Shared>::new(), value)`. With [`Counters`] it counts what its slow paths do.
///
/// Owner death leaves it locked: a waiter reports it once on standard error, and waits on. Fork: see [`Private`] and [`Shared`](crate::sharing::Shared). The guard that a child
/// inherits is the parent's: dropping it in the child aborts if the lock is held, and does nothing if it is free.
/// Locking a private one again aborts. [The module](super) says how it works, and how long a wait may take.
#[repr(C)]
pub struct Throughput<S: Sharing = Private, C: Counting = Uncounted> {
    word: AtomicU32,
    gate: AtomicU32,
    request: AtomicU32,
    /// After how many microseconds a top waiter sets the request; 0 is the default.
    threshold: u32,
    counts: C,
    sharing: PhantomData<S>,
}

constructors! {
    /// An unlocked mutex for short critical sections and many threads of this process.
    throughput: Throughput;
}

impl<S: Sharing> Throughput<S> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self::with(Uncounted)
        }
    }
}

#[cfg(not(loom))]
impl<S: Sharing> Throughput<S, Counters> {
    /// An unlocked lock that counts.
    #[must_use]
    pub const fn counted() -> Self {
        Self::with(Counters::new())
    }

    /// The counters of the lock.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counts
    }
}

impl<S: Sharing, C: Counting> Throughput<S, C> {
    const_unless_loom! {
        fn with(counts: C) -> Self {
            let (word, gate, request) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
            Self { word, gate, request, threshold: 0, counts, sharing: PhantomData }
        }
    }

    /// Sets after what time the first waiter in the queue gets the lock handed off: 5 ms by default. Exact to the
    /// microsecond; zero is "at once"; `None` is "never", also for real-time tasks, and the wait then has no bound.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn hand_off_after(mut self, threshold: Option<core::time::Duration>) -> Self {
        self.threshold = stored_threshold(threshold);
        self
    }

    /// The task that holds the lock at this moment, by its thread ID.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        // Relaxed: the answer may be stale before it arrives.
        let tid = self.word.load(Ordering::Relaxed) & TID_MASK;
        (tid != 0).then_some(tid)
    }

    /// Whether the task that holds the lock has ended. The lock then stays locked.
    ///
    /// For a supervisor: the call takes some microseconds, and needs no privilege. If another task got the owner's ID
    /// before this call, that task counts as the owner, as does a task of another PID namespace with the same ID.
    #[cfg(not(loom))]
    #[must_use]
    pub fn owner_is_gone(&self) -> bool {
        let now = crate::sys::clock::since_boot();
        self.owner().is_some_and(|tid| {
            // The kernel reports no owner's death without a robust list. Read again: the owner may have released the
            // lock and ended in between.
            crate::sys::running::has_ended(tid, now) && self.owner() == Some(tid)
        })
    }

    /// Takes a free word; returns whether it did.
    #[inline(always)]
    fn take_free(&self) -> bool {
        let tid = Me::current_or_none().tid();
        // A thread without a record has the ID 0; its CAS 0→0 would succeed and take nothing.
        tid != 0 && take(&self.word, tid, 0)
    }

    fn words(&self) -> Words<'_, S, C, false> {
        Words {
            word: &self.word,
            gate: Gate(&self.gate),
            request: &self.request,
            threshold: &self.threshold,
            counts: &self.counts,
            sharing: PhantomData,
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, wait_mode: WaitMode) -> Result<Acquisition, Unfinished> {
        let mut me = Me::current_or_none().tid();
        // A thread's first lock call comes here although the lock may be free: it had no ID yet.
        if me == 0 {
            me = task_id();
            if take(&self.word, me, 0) {
                return Ok(Acquisition::FREE);
            }
        }
        slow_paths::acquisition();
        self.words().lock(me, wait_mode)
    }

    /// A `try_lock` whose CAS 0→TID failed: the lock is held, the thread has no ID yet, or the word is reserved.
    #[cold]
    #[inline(never)]
    fn try_lock_contended(&self) -> bool {
        self.words().try_lock(task_id())
    }

    /// # Safety
    /// The calling task holds the lock, unless it is the child of a fork.
    #[cold]
    #[inline(never)]
    unsafe fn unlock_contended(&self) -> Released {
        let me = task_id();
        if self.owner() != Some(me) {
            crate::fatal(format_args!(
                "unlock of a throughput mutex by task {me}, which does not hold it (a guard inherited across fork is the parent's)"
            ));
        }
        self.counts.count(Event::UnlockSlowPath);
        release_contended::<S, false>(&self.word, &self.request)
    }

    /// Frees a word that has no sleepers; returns whether it did.
    #[inline(always)]
    fn give(&self) -> bool {
        let tid = Me::current_or_none().tid();
        // Release: pairs with the Acquire in `take`. A thread without a record, such as the child of a fork, has the ID
        // 0: the compare-and-swap then changes nothing, and the slow path finds out whose lock it is.
        let release = unless_fault!(
            ThroughputUnlockRelaxed,
            Ordering::Release,
            Ordering::Relaxed
        );
        self.word
            .compare_exchange(tid, 0, release, Ordering::Relaxed)
            .is_ok()
    }

    /// As `lock`, and returns how the lock was taken.
    #[inline]
    pub(crate) fn acquire_traced(&self) -> Acquisition {
        if self.take_free() {
            return Acquisition::FREE;
        }
        // Without a deadline only success ends it.
        self.lock_contended(WaitMode::FOREVER)
            .unwrap_or(Acquisition::FREE)
    }

    /// As `unlock`, and returns what it did for the waiters.
    ///
    /// # Safety
    /// As for `unlock`.
    #[inline]
    pub(crate) unsafe fn release_traced(&self) -> Released {
        if self.give() {
            return Released::NoSleeper;
        }
        // SAFETY: the same contract.
        unsafe { self.unlock_contended() }
    }
}

// SAFETY: by invariant 1 one task has the word, which it takes with Acquire and releases with Release.
unsafe impl<S: Sharing, C: Counting> RawLock for Throughput<S, C> {
    const TRAITS: Traits = traits_of::<S>(Traits::empty());

    #[inline]
    fn lock(&self) {
        if !self.take_free() {
            // Without a deadline only success ends it.
            let _ = self.lock_contended(WaitMode::FOREVER);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.take_free() || self.try_lock_contended()
    }

    #[inline]
    fn lock_until(&self, deadline: Deadline) -> bool {
        self.take_free() || self.lock_contended(WaitMode::until(Some(deadline))).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if !self.give() {
            // SAFETY: the caller holds the lock, by the contract of `unlock`.
            unsafe { self.unlock_contended() };
        }
    }
}

// SAFETY: it takes the word by the same compare-and-swap as `lock`; see `RawLock` above.
unsafe impl<S: Sharing, C: Counting> Interruptible for Throughput<S, C> {
    #[inline]
    fn acquire_interruptible(&self, deadline: Option<Deadline>) -> Attempt<Self::Fault> {
        if self.take_free() {
            return Ok(Ok(()));
        }
        Ok(self
            .lock_contended(WaitMode::interruptible(deadline))
            .map(drop))
    }
}

impl<T: ?Sized, S: Sharing, C: Counting> Mutex<T, Throughput<S, C>> {
    /// Takes the lock, and returns how it was taken.
    #[inline]
    #[track_caller]
    pub fn lock_traced(&self) -> (MutexGuard<'_, T, Throughput<S, C>>, Acquisition) {
        let acquisition =
            report::acquire_by(self.raw(), Acquisition::FREE, Throughput::acquire_traced);
        (MutexGuard::new(self), acquisition)
    }

    /// The lock itself: its owner, its counters.
    #[must_use]
    pub fn protocol(&self) -> &Throughput<S, C> {
        self.raw()
    }
}

impl<T: ?Sized, S: Sharing, C: Counting> MutexGuard<'_, T, Throughput<S, C>> {
    /// Releases the lock, and returns what that did for the tasks that wait. It takes the path of a drop, and aborts
    /// where a drop does.
    ///
    /// ```
    /// use latchwork::mutex::throughput::Released;
    /// use latchwork::mutex::{Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::throughput(0);
    /// let mut hits = mutex.lock();
    /// *hits += 1;
    /// assert_eq!(MutexGuard::unlock_traced(hits), Released::NoSleeper);
    /// ```
    #[inline]
    pub fn unlock_traced(this: Self) -> Released {
        let this = ManuallyDrop::new(this);
        report::releasing(Self::raw(&this));
        // SAFETY: the guard holds the lock, and is never used again.
        unsafe { Self::raw(&this).release_traced() }
    }
}

impl<S: Sharing> Default for Throughput<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Sharing, C: Counting> fmt::Debug for Throughput<S, C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Throughput")
            .field("owner", &self.owner())
            .finish()
    }
}

#[cfg(not(loom))]
crate::relocatable::relocatable_locks!(Throughput);
#[cfg(not(loom))]
crate::mutex::implement_lock_api!({S: Sharing} Throughput<S>, |lock: &Throughput<S>| lock.owner().is_some(), lock_api::GuardNoSend);
