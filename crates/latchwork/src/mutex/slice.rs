//! Holding a lock without being preempted: scheduler time-slice extensions (Linux 7.0).
//!
//! ```
//! use latchwork::mutex::{Mutex, Sliced, Throughput, slice};
//!
//! static HITS: Mutex<u64, Sliced<Throughput>> = Mutex::from_raw(Sliced::new(Throughput::new()), 0);
//! // Where the kernel does not know it, the lock is as any other.
//! let _ = slice::enable_for_this_thread();
//! *HITS.lock() += 1;
//! ```
//! A holder that is preempted keeps everybody waiting for as long as others run on its processor. Since
//! Linux 7.0 a thread can ask the kernel, by a byte in memory that both know, to be left alone for a
//! moment; if its time is up while it asks, the kernel may grant it some microseconds (5 by default, at
//! most 50), and the thread gives the processor back as soon as it is done. This avoids a preemption,
//! where [`throughput`](super::throughput) only notices it.
//!
//! Two steps, both explicit: each thread that is to ask calls [`enable_for_this_thread`], and each lock for
//! which it does is a [`Sliced`]. Locks of other types know nothing of it, and cost nothing more.
//!
//! *Source:* `Documentation/userspace-api/rseq.rst` of Linux 7.0: set the request, do the work, clear the
//! request, and call `rseq_slice_yield` if the grant is set. The request is made when the lock was got,
//! never while waiting for it (a waiter is not to be favoured, and a sleep ends the request), and
//! withdrawn after the release.
//!
//! *Nested sections* are one: the outermost asks. If something else in the thread asks already (a
//! library with a section of its own), it is left to that.
//!
//! *Limits.* One grant a section: who is still at it when that ends is preempted. Any other system call
//! ends a grant *before* it is done, so an unlock that has somebody to wake gives the processor away
//! first, and wakes when it gets it back. So this is for short sections without system calls, and locks
//! whose unlocks seldom wake: [`Throughput`](super::Throughput) and [`Spin`](crate::spin::Spin). With
//! [`WaitWake`](super::WaitWake) and many waiters it can do harm.
//!
//! *Hostile events:* a signal ends request and grant. A handler that takes a `Sliced` lock inside a section
//! is a nested one, or finds that the section is about to end and does not ask. A guard that is forgotten
//! leaves its thread not asking any more. Fork: the child's only thread goes on as its parent's did; should
//! the kernel have forgotten, its requests are not heard until it enables them again. The kernel may kill a
//! thread that writes `granted`; this does not.
//!
//! *Checked by:* unit tests against a control without a kernel behind it, and `tests/slice.rs`, which on
//! kernels before 7.0 can only see that it is refused. It has not been run on a kernel that grants.
#![allow(unsafe_code)]

use super::{Arrival, Interruptible, Queue, RawLock, Unfinished};
use crate::atomic::{Ordering, compiler_fence};
use crate::hook::Traits;
use crate::sys::each_thread::each_thread;
use crate::sys::rseq::{self, Control};
use crate::time::Deadline;
use core::cell::Cell;
use core::convert::Infallible;
use rustix::io::Errno;

/// Why a thread cannot ask for more time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    /// The kernel does not have it: Linux 7.0 does, unless it was built without, or started with
    /// `rseq_slice_ext=off`.
    #[error("the kernel has no time-slice extensions (Linux 7.0)")]
    Absent,
    /// The C library does not register the memory for it: glibc 2.41 does.
    #[error("the C library does not register the memory by which a thread asks (glibc 2.41)")]
    NoArea,
    /// The system refused.
    #[error("the system refuses time-slice extensions: {0}")]
    System(Errno),
}

/// Lets the calling thread ask for more time while it holds a [`Sliced`] lock. A second call does nothing.
///
/// Holds until the thread ends, for locks that it takes from now on. One system call; no privilege.
///
/// ```
/// use latchwork::mutex::{Mutex, Sliced, Throughput, slice};
///
/// static HITS: Mutex<u64, Sliced<Throughput>> =
///     Mutex::from_raw(Sliced::new(Throughput::new()), 0);
///
/// // Without it the lock works, as its inner one does.
/// if let Err(why) = slice::enable_for_this_thread() {
///     eprintln!("may be preempted in a section: {why}");
/// }
/// *HITS.lock() += 1;
/// ```
///
/// # Errors
/// [`SliceError`].
pub fn enable_for_this_thread() -> Result<(), SliceError> {
    // The kernel is asked first: an old one tells more than an old C library.
    rseq::enable_slice_extension().map_err(|error| {
        if rseq::is_unsupported(error) {
            SliceError::Absent
        } else if error == Errno::NXIO {
            SliceError::NoArea
        } else {
            SliceError::System(error)
        }
    })?;
    let control = rseq::slice_control().ok_or(SliceError::NoArea)?;
    // SAFETY: valid as long as the thread, and so is the only place where it is kept.
    let control = unsafe { control.as_ref() };
    SECTIONS.with(|sections| sections.control.set(Some(control)));
    Ok(())
}

each_thread! {
    static SECTIONS: Sections = Sections::new();
}

/// The sections that a thread is in.
struct Sections {
    /// `None`: the thread does not ask.
    control: Cell<Option<&'static Control>>,
    depth: Cell<u32>,
    /// The request is this outermost section's.
    asks: Cell<bool>,
}

impl Sections {
    const fn new() -> Self {
        Self {
            control: Cell::new(None),
            depth: Cell::new(0),
            asks: Cell::new(false),
        }
    }

    #[inline]
    fn begin(&self) {
        let Some(control) = self.control.get() else {
            return;
        };
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        if depth == 0 {
            let asks = control.is_idle();
            self.asks.set(asks);
            if asks {
                control.ask(true);
            }
        }
        // The section stays behind it; only interrupts of this thread look at the request.
        compiler_fence(Ordering::SeqCst);
    }

    /// Whether the processor is to be given back.
    #[inline]
    fn end(&self) -> bool {
        compiler_fence(Ordering::SeqCst);
        let Some(control) = self.control.get() else {
            return false;
        };
        // A signal handler's section between any two of these lines leaves the depth as it was. It may
        // change whose the request is; so that is read first.
        let asks = self.asks.get();
        match self.depth.get() {
            // It began before the thread was allowed to ask.
            0 => return false,
            depth => self.depth.set(depth - 1),
        }
        if self.depth.get() != 0 || !asks {
            return false;
        }
        control.ask(false);
        control.is_granted()
    }
}

#[inline]
fn begin() {
    SECTIONS.with(Sections::begin);
}

#[inline]
fn end() {
    if SECTIONS.with(Sections::end) {
        rseq::yield_slice();
    }
}

/// A lock whose holder asks not to be preempted, if its thread may: see the [module](self).
///
/// ```
/// use latchwork::mutex::{Mutex, Sliced, Throughput, slice};
///
/// static HITS: Mutex<u64, Sliced<Throughput>> = Mutex::from_raw(Sliced::new(Throughput::new()), 0);
/// // In each thread that is to ask. Where the kernel cannot do it, nothing else changes.
/// let _ = slice::enable_for_this_thread();
/// *HITS.lock() += 1;
/// ```
///
/// As large as the lock inside, and in all else like it. It may be used by threads that did not call
/// [`enable_for_this_thread`], and where the kernel has no such thing; they do not ask then. For
/// processes, too, if the inner one is; each of their threads asks for itself.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Sliced<P>(P);

impl<P> Sliced<P> {
    /// From an unlocked lock.
    #[must_use]
    pub const fn new(lock: P) -> Self {
        Self(lock)
    }

    /// The lock inside, for what it tells of itself. One that is taken by it does not ask.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.0
    }
}

// SAFETY: the inner lock's contract is the same; this adds nothing but a request to the scheduler.
unsafe impl<P: RawLock> RawLock for Sliced<P> {
    const TRAITS: Traits = P::TRAITS;

    #[inline]
    fn lock(&self) {
        self.0.lock();
        begin();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let got = self.0.try_lock();
        if got {
            begin();
        }
        got
    }

    #[inline]
    fn lock_until(&self, deadline: Deadline) -> bool {
        let got = self.0.lock_until(deadline);
        if got {
            begin();
        }
        got
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.unlock() }
        end();
    }

    fn sleepers(&self) -> Queue<'_> {
        self.0.sleepers()
    }

    fn lock_again(&self, arrival: Arrival) {
        self.0.lock_again(arrival);
        begin();
    }
}

// SAFETY: as above.
unsafe impl<P: RawLock + Interruptible<Fault = Infallible>> Interruptible for Sliced<P> {
    #[inline]
    fn acquire_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<Result<(), Unfinished>, Infallible> {
        let got = self.0.acquire_interruptible(deadline)?;
        if got.is_ok() {
            begin();
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> (Sections, &'static Control) {
        let control: &Control = Box::leak(Box::default());
        let sections = Sections::new();
        sections.control.set(Some(control));
        (sections, control)
    }

    #[test]
    fn the_outermost_section_asks_and_withdraws() {
        let (sections, control) = sections();
        sections.begin();
        sections.begin();
        assert!(!control.is_idle());
        assert!(!sections.end());
        assert!(!control.is_idle(), "the outer one goes on");
        assert!(!sections.end());
        assert!(control.is_idle());
    }

    #[test]
    fn a_grant_is_given_back_at_the_end_and_not_asked_for_again_before() {
        let (sections, control) = sections();
        sections.begin();
        control.act_as_kernel(true);
        sections.begin();
        assert!(!sections.end(), "nested");
        assert!(sections.end());
        control.act_as_kernel(false);
        assert!(control.is_idle());
    }

    #[test]
    fn a_grant_that_has_ended_is_over() {
        let (sections, control) = sections();
        sections.begin();
        control.act_as_kernel(true);
        control.act_as_kernel(false);
        assert!(!sections.end());
        assert!(control.is_idle());
    }

    #[test]
    fn somebody_elses_request_is_left_alone() {
        let (sections, control) = sections();
        control.ask(true);
        sections.begin();
        assert!(!sections.end());
        assert!(!control.is_idle());
        control.act_as_kernel(true);
        sections.begin();
        assert!(!sections.end(), "nor is the grant given back");
    }

    #[test]
    fn a_section_that_began_before_the_thread_could_ask_ends_without() {
        let (sections, control) = sections();
        assert!(!sections.end());
        sections.begin();
        assert!(!control.is_idle());
        assert!(!sections.end());
        assert!(control.is_idle());
    }

    #[test]
    fn a_thread_that_does_not_ask_has_no_sections() {
        let sections = Sections::new();
        sections.begin();
        assert!(!sections.end());
        assert_eq!(sections.depth.get(), 0);
    }
}
