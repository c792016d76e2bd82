//! Completions: one task says that something is done, others wait for it.
//!
//! Source: `Documentation/scheduler/completion.rst` of Linux.
//!
//! | `done` | meaning | changed by |
//! | --- | --- | --- |
//! | 0 | nothing is done | [`Completion::reset`]; the last token taken |
//! | n | n tokens, one for a waiter each | `complete` (Release): +1; a waiter (Acquire): −1 |
//! | `ALL` | done for everybody, until reset | `complete_all` (Release) |
//!
//! *No wake-up is lost.* A waiter counts itself, then sleeps while `done` is 0, which the kernel
//! compares. A completer adds its token, then looks at the count. Both are SeqCst: either the
//! completer sees the waiter, and wakes it, or the waiter's sleep sees the token.
//!
//! *Death:* a waiter that is killed takes no token. In a region its death wakes the other waiters,
//! should it have consumed a wake-up; so does that of a completer between token and wake-up, if its
//! process has a task of the region (see `sleep.rs`). One that dies first completes nothing.
//! *Frozen:* size 8, alignment 4, zero = nothing done. *Cost:* `complete` without waiters is one
//! read-modify-write; `wait` for what is done, one compare-and-swap. *Checked by:*
//! `tests/loom_completion.rs` (one and two waiters, spurious wake-ups, deadlines; negative twins).

use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::hook::{Kind, Waiting};
#[cfg(not(loom))]
use crate::sharing::Shared;
use crate::sharing::{Private, Sharing};
use crate::sys::futex::{self, Wait};
use crate::time::Deadline;
use core::marker::PhantomData;

const ALL: u32 = u32::MAX;

/// Something that will be done, once, several times, or for everybody.
///
/// ```
/// use latchwork::completion::Completion;
///
/// static LOADED: Completion = Completion::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| LOADED.complete());
///     LOADED.wait();
/// });
/// assert!(!LOADED.try_wait());
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct Completion<S: Sharing = Private> {
    done: AtomicU32,
    waiters: AtomicU32,
    sharing: PhantomData<S>,
}

#[cfg(not(loom))]
impl Completion<Private> {
    /// Nothing is done yet; for the threads of this process.
    #[must_use]
    pub const fn new() -> Self {
        Self::new_in()
    }
}

#[cfg(not(loom))]
impl Completion<Shared> {
    /// Nothing is done yet; for every process that maps it.
    ///
    /// In a region, a task that is killed while it waits, or as it completes, leaves nobody asleep. A
    /// process that uses this after a fork, through references alone, is to
    /// [join](crate::region::Region::join) the region first.
    #[must_use]
    pub const fn shared() -> Self {
        Self::new_in()
    }
}

#[cfg(not(loom))]
impl Default for Completion<Private> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Sharing> Completion<S> {
    const_unless_loom! {
        /// Nothing is done yet.
        #[must_use]
        pub fn new_in() -> Self {
            Self { done: AtomicU32::new(0), waiters: AtomicU32::new(0), sharing: PhantomData }
        }
    }

    /// Lets one waiter pass, now or later. Safe in a signal handler.
    pub fn complete(&self) {
        // SeqCst (includes Release): pairs with the waiter's Acquire, and orders the look at
        // `waiters` behind it.
        let order = unless_fault!(CompleteRelaxed, Ordering::SeqCst, Ordering::Relaxed);
        let before = self.done.fetch_update(order, Ordering::Relaxed, |done| {
            (done < ALL - 1).then(|| done + 1)
        });
        if before.is_ok() && self.waiting() > unless_fault!(CompleterSkipsSingleWaiter, 0, 1) {
            futex::wake(&raw const self.done, 1, S::FLAG);
        }
    }

    /// Lets all waiters pass, now and later, until [`Self::reset`]. Safe in a signal handler.
    pub fn complete_all(&self) {
        self.done.store(ALL, Ordering::SeqCst);
        if self.waiting() != 0 {
            futex::wake(&raw const self.done, u32::MAX, S::FLAG);
        }
    }

    /// How many wait, seen after `done` was changed.
    fn waiting(&self) -> u32 {
        // Loom knows a single order of fences only, not of loads.
        #[cfg(loom)]
        if !crate::model::has(crate::model::Fault::CompleterLooksUnordered) {
            crate::atomic::fence(Ordering::SeqCst);
        }
        self.waiters.load(Ordering::SeqCst)
    }

    /// Nothing is done any more.
    pub fn reset(&self) {
        self.done.store(0, Ordering::Relaxed);
    }

    /// Whether a waiter would pass at this moment.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) != 0
    }

    /// Takes a token if there is one at this moment.
    pub fn try_wait(&self) -> bool {
        let take = |done| match done {
            0 => None,
            ALL => Some(ALL),
            tokens => Some(tokens - 1),
        };
        // Acquire: pairs with the completer's Release.
        self.done
            .fetch_update(Ordering::Acquire, Ordering::Acquire, take)
            .is_ok()
    }

    /// Waits until something is done, and takes its token.
    pub fn wait(&self) {
        self.wait_inner(None);
    }

    /// As [`Self::wait`], but returns false at `deadline`.
    pub fn wait_until(&self, deadline: Deadline) -> bool {
        self.wait_inner(Some(deadline))
    }

    /// As [`Self::wait`], but returns false after `timeout`.
    #[cfg(not(loom))]
    pub fn wait_for(&self, timeout: core::time::Duration) -> bool {
        self.try_wait() || self.wait_until(Deadline::after(timeout))
    }

    fn wait_inner(&self, deadline: Option<Deadline>) -> bool {
        loop {
            if self.try_wait() {
                return true;
            }
            // SeqCst: see above.
            self.waiters.fetch_add(1, Ordering::SeqCst);
            let object = core::ptr::from_ref(self).addr();
            let _waiting = Waiting::begin(Kind::Completion, object, deadline.is_some());
            let ended = crate::sleep::sleep(&self.done, 0, S::FLAG, deadline);
            self.waiters.fetch_sub(1, Ordering::Relaxed);
            if ended == Wait::TimedOut {
                return self.try_wait();
            }
        }
    }
}
