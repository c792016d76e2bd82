//! [`Checked`]: a lock that reports to the checker.
//!
//! It wraps a lock of any protocol, and does not change how that is acquired, waited for and released: it tries first,
//! and reports the wait where that fails. While it waits, the inner lock's call returns at the times at which something
//! may have to be reported, and is repeated.
//!
//! *Cost:* for each acquisition and release, the check of the [tag](crate::check::record::tag) and an update of the
//! thread's own list of locks; see [`order`](crate::check::detect::order) for what is done while other locks are held.
//! *Checked by:* `tests/check_faults`, `tests/check_feature.rs`.
#![allow(unsafe_code)]

use super::observer::{self, Checker, destroyed, introduced, uses_no_lock};
use crate::backoff::{HAND_OVER, REST, pause, rest_if_contended};
use crate::check::kinds::Checkable;
use crate::check::observe::lookup::NoLock;
use crate::check::record::tag::{State, Tag};
use crate::hook::{How, Kind, Lock, Misuse, Mode, Observer, Site, Traits, Verdict};
use crate::mutex::{
    Interruptible, Protocol, RawError, Relock, RobustOps, SleepPlace, Unfinished, WaitMode,
};
use crate::region::{Relocatable, Shareable, fingerprint};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;
use crate::time::Deadline;
use core::convert::Infallible;
use core::error::Error;
use core::marker::PhantomData;
use core::panic::Location;
use core::ptr;

/// A call that would deadlock waits nevertheless, after the report.
#[derive(Debug)]
pub struct Reports;

/// A call that would deadlock fails with [`Refused::Deadlock`], after the report.
#[derive(Debug)]
pub struct Refuses;

/// A lock that is checked, as the parameter of a [`Mutex`](crate::mutex::Mutex).
///
/// It wraps any protocol: `Checked<WaitWake>`, `Checked<Inherit<Shared>>`, `Checked<Spin>`; into
/// [`Robust`](crate::mutex::Robust), whose parameter it is (`Robust<Checked<WaitWake<Shared>>>`, without a tag); and
/// into a [`RecursiveMutex`](crate::mutex::RecursiveMutex). With `A` = [`Refuses`] lock calls return a `Result`, and
/// fail instead of completing a wait-for cycle.
///
/// Every breach of a [rule](crate::check::Rule) is reported, and the program goes on as it would without the checker;
/// except that a lock that no task holds is not released.
///
/// Owner death, fork, signals: as for `P`. In the child of a fork, its thread holds the private locks that the forking
/// thread held.
///
/// ```
/// use latchwork::check::Checked;
/// use latchwork::mutex::{Mutex, WaitWake};
///
/// static ACCOUNTS: Mutex<u32, Checked<WaitWake>> =
///     Mutex::from_raw(Checked::named("accounts", WaitWake::new()), 0);
/// *ACCOUNTS.lock() += 1;
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct Checked<P, A = Reports> {
    pub(crate) tag: Tag,
    lock: P,
    answer: PhantomData<fn() -> A>,
}

/// Why a lock of a [`Checked<P, Refuses>`](Checked) was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused<F> {
    /// Waiting would complete a wait-for cycle, which was reported.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// The protocol cannot acquire the lock.
    #[error("{0}")]
    Fault(F),
}

impl<P, A> Checked<P, A> {
    /// Wraps an unlocked lock. Reports name it by the place of this call, or by the object of a region that it lies in.
    #[must_use]
    #[track_caller]
    pub const fn new(lock: P) -> Self {
        Self::named("", lock)
    }

    /// Wraps an unlocked lock, with a name for reports; at most 24 bytes of it are kept.
    ///
    /// Locks of one name are of one class: see [`Rule::OneOrder`](crate::check::Rule::OneOrder).
    #[must_use]
    #[track_caller]
    pub const fn named(name: &str, lock: P) -> Self {
        Self {
            tag: Tag::new(name, Location::caller()),
            lock,
            answer: PhantomData,
        }
    }

    /// The wrapped lock, to query its state. The checker does not see acquisitions through it.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.lock
    }
}

impl<P: Default, A> Default for Checked<P, A> {
    #[track_caller]
    fn default() -> Self {
        Self::new(P::default())
    }
}

/// How [`Reports`] and [`Refuses`] convert a protocol's results.
pub trait Answer {
    type Fault<F: Error>: Error;
    type Outcome<P: Protocol, G>;
    /// Whether a call fails that would complete a wait-for cycle.
    const REFUSES: bool;

    fn outcome<P: Protocol, G>(result: Result<G, Self::Fault<P::Fault>>) -> Self::Outcome<P, G>;
    fn fault<F: Error>(refused: Refused<F>) -> Self::Fault<F>;
}

impl Answer for Reports {
    type Fault<F: Error> = F;
    type Outcome<P: Protocol, G> = P::Outcome<G>;
    const REFUSES: bool = false;

    #[inline]
    fn outcome<P: Protocol, G>(result: Result<G, P::Fault>) -> P::Outcome<G> {
        P::outcome(result)
    }

    fn fault<F: Error>(refused: Refused<F>) -> F {
        match refused {
            Refused::Fault(fault) => fault,
            Refused::Deadlock => unreachable!("`Reports` refuses no call"),
        }
    }
}

impl Answer for Refuses {
    type Fault<F: Error> = Refused<F>;
    type Outcome<P: Protocol, G> = Result<G, Refused<P::Fault>>;
    const REFUSES: bool = true;

    #[inline]
    fn outcome<P: Protocol, G>(
        result: Result<G, Refused<P::Fault>>,
    ) -> Result<G, Refused<P::Fault>> {
        result
    }

    fn fault<F: Error>(refused: Refused<F>) -> Refused<F> {
        refused
    }
}

/// Checks the tag of a lock, before each use of the lock.
#[inline]
pub(super) fn verify(tag: &Tag, lock: impl FnOnce() -> Lock, site: Site) {
    if !tag.is_in_place() {
        explain(tag, lock(), site);
    }
}

#[cold]
pub(super) fn explain(tag: &Tag, lock: Lock, site: Site) {
    let what = match tag.state() {
        State::Unused => return introduced(lock, tag),
        // Another task used it for the first time after the check that led here.
        State::InUse => return,
        State::Copied => NoLock::Copied,
        State::Zeroed => NoLock::Zeroed,
        State::Dropped => NoLock::Ended,
        State::Overwritten => NoLock::Overwritten,
    };
    uses_no_lock(lock, what, site);
}

impl<P: Checkable, A: Answer> Checked<P, A> {
    #[inline]
    fn me(&self) -> Lock {
        self.tag.lock(P::KIND, P::TRAITS)
    }

    #[inline]
    fn verify(&self, site: Site) {
        verify(&self.tag, || self.me(), site);
    }

    /// Acquires the lock: first by a try, and then by `wait`, which waits at most until the deadline that it is given,
    /// and returns whether it has acquired the lock, or why it is unfinished.
    #[inline]
    fn take<U>(
        &self,
        site: Site,
        deadline: Option<Deadline>,
        wait: impl Fn(Option<Deadline>) -> Result<Result<bool, U>, P::Fault>,
    ) -> Result<Result<bool, U>, Refused<P::Fault>> {
        self.verify(site);
        let taken = self.lock.try_acquire();
        if taken.map_err(|fault| Refused::Fault(self.fault(fault, site)))? {
            Checker::taken(self.me(), Mode::Exclusive, How::Locked, site);
            return Ok(Ok(true));
        }
        self.take_contended(site, deadline, wait)
    }

    /// Returns the fault, and reports it if it is a breach of a rule.
    #[cold]
    fn fault(&self, fault: P::Fault, site: Site) -> P::Fault {
        if let Some((own, ceiling)) = P::above_ceiling(&fault) {
            let (own, ceiling) = (own.into(), ceiling.into());
            Checker::misused(self.me(), Misuse::AboveCeiling { own, ceiling }, site);
        }
        fault
    }

    #[cold]
    fn take_contended<U>(
        &self,
        site: Site,
        deadline: Option<Deadline>,
        wait: impl Fn(Option<Deadline>) -> Result<Result<bool, U>, P::Fault>,
    ) -> Result<Result<bool, U>, Refused<P::Fault>> {
        let me = self.me();
        // Polls for about as long as a short critical section takes, so only longer waits are reported. (Not for a lock
        // that lends priority, since its holder must be lent the waiter's priority at once; and not for a lock that the
        // task holds itself.)
        if !P::TRAITS.contains(Traits::LENDS) && !observer::holds(me) {
            let _collision = rest_if_contended(REST);
            let mut polls = 0;
            while polls < HAND_OVER {
                if self.lock.looks_free() && self.lock.try_acquire().map_err(Refused::Fault)? {
                    Checker::taken(me, Mode::Exclusive, How::Locked, site);
                    return Ok(Ok(true));
                }
                polls += pause(polls);
            }
        }
        let verdict = Checker::wants(me, Mode::Exclusive, deadline.is_some(), site);
        if A::REFUSES && verdict == Verdict::Deadlock {
            Checker::gave_up(me);
            return Err(Refused::Deadlock);
        }
        let ended = loop {
            let report = observer::report_before(deadline);
            match wait(report.or(deadline)) {
                Ok(Ok(true)) => {
                    Checker::taken(me, Mode::Exclusive, How::Locked, site);
                    return Ok(Ok(true));
                }
                Ok(Ok(false)) if report.is_some() => observer::still_waits(),
                ended => break ended,
            }
        };
        Checker::gave_up(me);
        ended.map_err(Refused::Fault)
    }

    /// Acquires the lock, at most until the deadline.
    #[inline]
    fn take_until(
        &self,
        site: Site,
        deadline: Option<Deadline>,
    ) -> Result<bool, A::Fault<P::Fault>> {
        let wait = |deadline| match deadline {
            Some(deadline) => self.lock.acquire_until(deadline).map(Ok::<_, Infallible>),
            None => self.lock.acquire().map(|()| Ok(true)),
        };
        let Ok(taken) = self.take(site, deadline, wait).map_err(A::fault)?;
        Ok(taken)
    }

    /// # Safety
    /// As for [`Protocol::release`].
    #[inline]
    unsafe fn release_at(&self, site: Site) {
        self.verify(site);
        if let Some(since) = observer::releasing_as_usual(self.me(), site) {
            // SAFETY: by the caller's contract.
            unsafe { self.lock.release() }
            since.is_over();
        } else if observer::releasing_slowly(self.me(), site) != Verdict::NotHeld {
            // SAFETY: by the caller's contract; a lock that another task holds is released as without the checker.
            unsafe { self.lock.release() }
        }
    }
}

// SAFETY: the inner lock acquires and releases; the wrapper adds reports only, and may skip a release of a free lock.
unsafe impl<P: Checkable, A: Answer> Protocol for Checked<P, A> {
    type Fault = A::Fault<P::Fault>;
    type Outcome<G> = A::Outcome<P, G>;
    const TRAITS: Traits = P::TRAITS;
    const CHECKS_ITSELF: bool = true;

    #[inline]
    fn outcome<G>(result: Result<G, Self::Fault>) -> Self::Outcome<G> {
        A::outcome::<P, G>(result)
    }

    #[inline]
    #[track_caller]
    fn acquire(&self) -> Result<(), Self::Fault> {
        self.take_until(Site::caller(), None).map(|_| ())
    }

    #[inline]
    #[track_caller]
    fn try_acquire(&self) -> Result<bool, Self::Fault> {
        let site = Site::caller();
        self.verify(site);
        let taken = self.lock.try_acquire();
        let taken = taken.map_err(|fault| A::fault(Refused::Fault(self.fault(fault, site))))?;
        if taken {
            Checker::taken(self.me(), Mode::Exclusive, How::Tried, site);
        }
        Ok(taken)
    }

    #[inline]
    #[track_caller]
    fn acquire_until(&self, deadline: Deadline) -> Result<bool, Self::Fault> {
        self.take_until(Site::caller(), Some(deadline))
    }

    #[inline]
    #[track_caller]
    unsafe fn release(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.release_at(Site::caller()) }
    }

    #[inline]
    unsafe fn release_of_guard(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.release_at(Site::UNKNOWN) }
    }

    fn sleep_place(&self) -> SleepPlace<'_> {
        self.lock.sleep_place()
    }

    unsafe fn release_to_wait(&self, condvar: Lock, timed: bool, site: Site) {
        self.verify(site);
        if Checker::condvar_begins(condvar, self.me(), timed, site) != Verdict::NotHeld {
            // SAFETY: by the caller's contract.
            unsafe { self.lock.release() }
        }
    }

    fn acquire_again(&self, arrival: Relock) -> Result<(), Self::Fault> {
        let taken = self.lock.acquire_again(arrival);
        observer::condvar_wait_ends(self.me(), taken.is_ok());
        taken.map_err(|fault| A::fault(Refused::Fault(fault)))
    }
}

// SAFETY: the inner lock acquires; the wrapper adds reports only.
unsafe impl<P: Checkable + Interruptible> Interruptible for Checked<P, Reports> {
    #[inline]
    #[track_caller]
    fn acquire_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<Result<(), Unfinished>, P::Fault> {
        let wait = |until| {
            Ok(match self.lock.acquire_interruptible(until)? {
                Ok(()) => Ok(true),
                Err(Unfinished::TimedOut) => Ok(false),
                Err(unfinished) => Err(unfinished),
            })
        };
        let ended = self.take(Site::caller(), deadline, wait);
        Ok(match ended.map_err(Reports::fault)? {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unfinished::TimedOut),
            Err(unfinished) => Err(unfinished),
        })
    }
}

// A robust lock has the size of libc's mutex, 40 bytes, so it carries no tag: the checker knows the lock only by its
// address, and cannot detect that it was copied or overwritten. A call that would complete a wait-for cycle fails with
// `LockError::Deadlock`, as does a recursive call by the lock's own check.
// SAFETY: the wrapped protocol acquires and releases the word.
unsafe impl<P: RobustOps + Checkable> RobustOps for Checked<P, Reports> {
    type Observer = Checker;
    type Counts = P::Counts;
    const MARK: usize = P::MARK;
    const HIDES_STATE: bool = P::HIDES_STATE;

    fn take(
        node: &Node,
        counts: &P::Counts,
        me: Me,
        wait_mode: WaitMode,
    ) -> Result<(), RawError<P::Fault>> {
        P::take(node, counts, me, wait_mode)
    }

    fn free(node: &Node, head: &Head, before: usize) {
        P::free(node, head, before);
    }

    fn pass_on(node: &Node) {
        P::pass_on(node);
    }

    fn enter(node: &Node, wait_mode: WaitMode) -> Result<(), RawError<P::Fault>> {
        P::enter(node, wait_mode)
    }

    fn ceiling(node: &Node) -> u8 {
        P::ceiling(node)
    }

    fn leave(ceiling: u8) {
        P::leave(ceiling);
    }
}

// SAFETY: the inner lock is shareable; the tag in front of it consists of numbers and text, without pointers.
unsafe impl<P: Shareable, A: 'static> Shareable for Checked<P, A> {
    const FINGERPRINT: u64 = fingerprint(
        "Checked",
        size_of::<Self>(),
        align_of::<Self>(),
        &[P::FINGERPRINT],
    );
    const NAMES_THREADS: bool = P::NAMES_THREADS;
}

// SAFETY: the inner lock may move; the tag in front of it is about the lock at its address, and is made anew elsewhere.
unsafe impl<P: Relocatable, A> Relocatable for Checked<P, A> {}

impl<P, A> Drop for Checked<P, A> {
    fn drop(&mut self) {
        // The kind does not matter: the entry on the board has it.
        if self.tag.end() {
            let lock = Lock::new(ptr::from_ref(self).addr(), Kind::Mutex);
            destroyed(lock, Site::UNKNOWN);
        }
    }
}
