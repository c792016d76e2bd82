//! Completions: one task announces that something is done, others wait for it.
//!
//! For one event that others depend on: a start, an end, a result that is there. [`Completion::complete`] lets
//! one waiter pass, [`Completion::complete_all`] all of them, also those that come later.
//!
//! ```
//! use latchwork::completion::Completion;
//!
//! static LOADED: Completion = Completion::new();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| LOADED.complete());
//!     LOADED.wait();
//! });
//! // The waiter has taken the token. All waiters pass from now on:
//! assert!(!LOADED.try_wait());
//! LOADED.complete_all();
//! assert!(LOADED.try_wait() && LOADED.try_wait());
//! ```
//!
//! # How it works
//! Source: `Documentation/scheduler/completion.rst` of Linux.
//!
//! One word of 64 bits has two halves.
//!
//! | half | meaning | changed by |
//! | --- | --- | --- |
//! | done (high) | 0: nothing is done; n: n tokens, one for a waiter each; `ALL`: every waiter passes | +1 by `complete`, `ALL` by `complete_all` (both Release); −1 by a waiter that takes a token (Acquire); 0 by `reset` |
//! | waiters (low) | at least the number of waiters that sleep, or are about to | +1 by a waiter that found nothing done; −1 in the step that takes its token, or gives up |
//!
//! *No wake-up is lost.* A waiter counts itself in the step that finds nothing done, then sleeps while the high
//! half is 0, which the kernel compares. A completer learns the number of waiters from the step that adds its
//! token. Both steps are read-modify-writes of one word, so they are ordered. If the waiter's step comes first,
//! the completer wakes the waiter; otherwise the waiter finds the token.
//!
//! *Lifetime.* A completer's last access is the step that makes its token visible; afterwards it passes only the
//! address to the kernel, and that memory may already have another use. A waiter's last access is the step that takes
//! the token. So a waiter that has returned may free the completion at once, as [`Completion`] says. *Orderings:* a
//! completer's Release pairs with a waiter's Acquire through a chain of read-modify-writes. No step is a plain store.
//!
//! *Death:* a waiter that is killed takes no token and stays counted, which costs needless wake-ups. In a
//! region its death wakes the other waiters, since it may have consumed a wake-up. So does the death of a
//! completer between token and wake-up, if its process has a task of the region (see `sleep.rs`). A completer
//! that dies before it adds its token completes nothing. *Frozen:* size 8, alignment 8, zero = nothing done.
//! *Cost:* `complete` without waiters is one read-modify-write; `wait` for something already done, one
//! compare-and-swap. *Checked by:* `tests/loom_completion.rs` (one and two waiters, spurious wake-ups,
//! deadlines, waiters that free it; negative twins).

use crate::atomic::{AtomicU64, Ordering, const_unless_loom, unless_fault};
use crate::hook::{Kind, Waiting};
use crate::sharing::{Private, Sharing, constructors};
use crate::sys::futex::{self, Wait};
use crate::time::Deadline;
use core::marker::PhantomData;

const ALL: u32 = u32::MAX;
const TOKEN: u64 = 1 << 32;

fn done_in(state: u64) -> u32 {
    (state >> 32) as u32
}

fn waiters_in(state: u64) -> u32 {
    state as u32
}

/// The state after one token is taken, if there is one.
fn taken(state: u64) -> Option<u64> {
    match done_in(state) {
        0 => None,
        ALL => Some(state),
        _ => Some(state - TOKEN),
    }
}

/// Something that will be done once, several times, or for all waiters: see the [module](self).
///
/// A waiter that has returned may free the completion, or unmap its memory, at once, even if the call that let
/// it pass has not returned. The condition is that no other task waits for it and no task will complete it
/// again. After [`Self::complete_all`] all waiters must have returned. A waiter that is killed takes no token.
/// A task that is killed before it completes leaves the others waiting; use deadlines where that can happen.
#[derive(Debug)]
#[repr(C)]
pub struct Completion<S: Sharing = Private> {
    state: AtomicU64,
    sharing: PhantomData<S>,
}

constructors!(Completion, "A completion with nothing done yet", a death "while it waits, or as it completes,");

impl<S: Sharing> Completion<S> {
    const_unless_loom! {
        /// A completion with nothing done yet.
        #[must_use]
        pub fn new_in() -> Self {
            Self { state: AtomicU64::new(0), sharing: PhantomData }
        }
    }

    /// Lets one waiter pass, now or later. Async-signal-safe.
    pub fn complete(&self) {
        // Release: pairs with the waiter's Acquire.
        let order = unless_fault!(CompleteRelaxed, Ordering::Release, Ordering::Relaxed);
        let before = self.state.fetch_update(order, Ordering::Relaxed, |state| {
            (done_in(state) < ALL - 1).then(|| state + TOKEN)
        });
        if let Ok(before) = before {
            self.wake(before, 1);
        }
    }

    /// Lets all waiters pass, now and later, until [`Self::reset`]. Async-signal-safe.
    pub fn complete_all(&self) {
        // Release: pairs with the waiter's Acquire.
        let before = self.state.fetch_or(u64::from(ALL) << 32, Ordering::Release);
        self.wake(before, u32::MAX);
    }

    /// Wakes up to `count` of the tasks that waited when `done` changed. The word may already be freed here.
    fn wake(&self, before: u64, count: u32) {
        let seen = unless_fault!(
            CompleterReadsAgain,
            before,
            self.state.load(Ordering::Relaxed)
        );
        if waiters_in(seen) > unless_fault!(CompleterSkipsSingleWaiter, 0, 1) {
            futex::wake_high(&raw const self.state, count, u32::MAX, S::FLAG);
        }
    }

    /// Removes all tokens: waiters wait again.
    pub fn reset(&self) {
        // Relaxed: it passes no data to another task.
        self.state.fetch_and(u64::from(u32::MAX), Ordering::Relaxed);
    }

    /// Whether a waiter would pass at this moment.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // Acquire: pairs with the completer's Release.
        done_in(self.state.load(Ordering::Acquire)) != 0
    }

    /// Takes a token if there is one at this moment.
    pub fn try_wait(&self) -> bool {
        // Acquire: pairs with the completer's Release. Relaxed: no token was taken.
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, taken)
            .is_ok()
    }

    /// Waits until something is done, and takes its token.
    pub fn wait(&self) {
        self.wait_inner(None);
    }

    /// As [`Self::wait`], but returns false once `deadline` has passed.
    pub fn wait_until(&self, deadline: Deadline) -> bool {
        self.wait_inner(Some(deadline))
    }

    /// As [`Self::wait`], but returns false after `timeout`.
    #[cfg(not(loom))]
    pub fn wait_for(&self, timeout: core::time::Duration) -> bool {
        self.try_wait() || self.wait_until(Deadline::after(timeout))
    }

    fn wait_inner(&self, deadline: Option<Deadline>) -> bool {
        let take_or_enter = |state| {
            // Saturating: the counts of killed waiters must not carry into the tokens.
            let entered = || state + u64::from(waiters_in(state) != u32::MAX);
            Some(taken(state).unwrap_or_else(entered))
        };
        // Acquire: pairs with the completer's Release.
        let (Ok(before) | Err(before)) =
            self.state
                .fetch_update(Ordering::Acquire, Ordering::Relaxed, take_or_enter);
        if done_in(before) != 0 {
            return true;
        }
        loop {
            let gives_up = self.sleep(deadline) == Wait::TimedOut;
            let leave = |state| match taken(state) {
                Some(left) => Some(left - 1),
                None => gives_up.then(|| state - 1),
            };
            // Acquire: pairs with the completer's Release. Relaxed: no token was taken, the waiter sleeps again.
            let before = self
                .state
                .fetch_update(Ordering::Acquire, Ordering::Relaxed, leave);
            if let Ok(before) = before {
                return done_in(before) != 0;
            }
        }
    }

    /// Sleeps while nothing is done; may wake up spuriously.
    fn sleep(&self, deadline: Option<Deadline>) -> Wait {
        let object = core::ptr::from_ref(self).addr();
        let _waiting = Waiting::begin(Kind::Completion, object, deadline.is_some());
        #[cfg(not(loom))]
        #[allow(unsafe_code, reason = "half of a word, for a wait")]
        // SAFETY: the half is slept on, and not accessed.
        let done = unsafe { futex::high_word(&self.state) };
        #[cfg(not(loom))]
        return crate::sleep::sleep(done, 0, S::FLAG, deadline);
        #[cfg(loom)]
        return futex::wait_high(&self.state, 0, u32::MAX, S::FLAG, deadline).0;
    }
}

#[cfg(loom)]
impl<S: Sharing> Completion<S> {
    /// Ends the completion's lifetime in a model: any later access is an error.
    #[track_caller]
    pub fn end(&mut self) {
        self.state.end();
    }
}

#[cfg(not(loom))]
impl crate::mutex::at_rest::sealed::Sealed for Completion<crate::sharing::Shared> {}

#[cfg(not(loom))]
impl crate::mutex::at_rest::AtRest for Completion<crate::sharing::Shared> {
    fn put_to_rest(&mut self) -> Result<(), &'static str> {
        // The tokens stay; whoever waited is gone.
        *self.state.get_mut() &= !(TOKEN - 1);
        Ok(())
    }
}
