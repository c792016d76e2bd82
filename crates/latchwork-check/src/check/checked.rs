//! [`Checked`]: a lock that explains itself.
//!
//! It stands in front of a lock of any protocol, and changes nothing about how that is taken, waited for and
//! released: it tries first, and says what it is about to do where that fails. While it waits it comes back
//! from the inner lock when there is something to report.
//!
//! *Cost:* the [tag](super::tag) and the thread's own stack, each way; see [`order`](super::order) for what is done
//! while other locks are held. *Checked by:* `tests/check_faults`, `tests/check_feature.rs`.
#![allow(unsafe_code)]

use super::kinds::Checkable;
use super::observer::Checker;
use super::tag::Tag;
use super::tell;
use crate::backoff::{HAND_OVER, REST, pause, rest_if_contended};
use crate::hook::{How, Lock, Misuse, Mode, Observer, Site, Traits, Verdict};
use crate::mutex::{Interruptible, Protocol, Relock, SleepPlace, Unfinished};
use crate::region::{Shareable, fingerprint};
use crate::time::Deadline;
use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::panic::Location;
use core::ptr;

/// What a checked lock does with a call that would wait for ever: it waits, after the report.
#[derive(Debug)]
pub struct Reports;

/// What a checked lock does with a call that would wait for ever: it fails with [`Refused::Deadlock`], after the
/// report.
#[derive(Debug)]
pub struct Refuses;

/// A lock that is checked, as the parameter of a [`Mutex`](crate::mutex::Mutex).
///
/// It goes around any protocol: `Checked<WaitWake>`, `Checked<Inherit<Shared>>`, `Checked<Spin>`; into
/// [`Robust`](crate::mutex::Robust), whose parameter it is (`Robust<Checked<WaitWake<Shared>>>`, without a tag); and into a
/// [`RecursiveMutex`](crate::mutex::RecursiveMutex). With `A` = [`Refuses`] lock calls return a
/// `Result`, and fail instead of closing a circle of waits.
///
/// Every breach of a [rule](super::Rule) is reported, and the program goes on as it would without the checker;
/// but what nobody holds is not released.
///
/// Owner death, fork, signals: as for `P`. In the child of a fork the private locks that the forking thread held
/// are its own.
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
    pub(super) tag: Tag,
    lock: P,
    answer: PhantomData<fn() -> A>,
}

/// Why a lock of a [`Checked<P, Refuses>`](Checked) was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused<F> {
    /// To wait would close a circle of waits; which was reported.
    Deadlock,
    /// The protocol cannot do its part.
    Fault(F),
}

impl<F: fmt::Display> fmt::Display for Refused<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock => formatter.write_str("waiting for the lock would be a deadlock"),
            Self::Fault(fault) => fault.fmt(formatter),
        }
    }
}

impl<F: Error> Error for Refused<F> {}

impl<P, A> Checked<P, A> {
    /// From an unlocked lock. Reports name it by the place of this call, or by the object of a region that it
    /// lies in.
    #[must_use]
    #[track_caller]
    pub const fn new(lock: P) -> Self {
        Self::named("", lock)
    }

    /// From an unlocked lock, with the name that reports call it by; at most 24 bytes are kept.
    ///
    /// Locks of one name are of one class: see [`Rule::OneOrder`](super::Rule::OneOrder).
    #[must_use]
    #[track_caller]
    pub const fn named(name: &str, lock: P) -> Self {
        Self {
            tag: Tag::new(name, Location::caller()),
            lock,
            answer: PhantomData,
        }
    }

    /// The lock inside, for what it tells of itself. What is taken by it is not seen.
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

mod sealed {
    use super::{Error, Protocol, Refused, Refuses, Reports};

    /// How a call ended that was ready to wait.
    #[derive(Debug)]
    pub enum Failed<F, U> {
        Deadlock,
        Fault(F),
        Unfinished(U),
    }

    /// What [`Reports`] and [`Refuses`] make of a protocol's results.
    pub trait Answer {
        type Fault<F: Error>: Error;
        type Outcome<P: Protocol, G>;
        /// Whether a call fails that would close a circle of waits.
        const REFUSES: bool;

        fn outcome<P: Protocol, G>(result: Result<G, Self::Fault<P::Fault>>)
        -> Self::Outcome<P, G>;
        fn fault<F: Error>(fault: F) -> Self::Fault<F>;
        fn deadlock<F: Error>() -> Self::Fault<F>;
    }

    impl Answer for Reports {
        type Fault<F: Error> = F;
        type Outcome<P: Protocol, G> = P::Outcome<G>;
        const REFUSES: bool = false;

        #[inline]
        fn outcome<P: Protocol, G>(result: Result<G, P::Fault>) -> P::Outcome<G> {
            P::outcome(result)
        }

        fn fault<F: Error>(fault: F) -> F {
            fault
        }

        fn deadlock<F: Error>() -> F {
            unreachable!("it refuses nothing")
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

        fn fault<F: Error>(fault: F) -> Refused<F> {
            Refused::Fault(fault)
        }

        fn deadlock<F: Error>() -> Refused<F> {
            Refused::Deadlock
        }
    }
}
use sealed::{Answer, Failed};

impl<P: Checkable, A> Checked<P, A> {
    #[inline]
    fn me(&self) -> Lock {
        self.tag.lock(P::KIND, P::TRAITS)
    }

    #[inline]
    fn verify(&self, site: Site) {
        self.tag.verify(|| self.me(), site);
    }

    /// Takes the lock, first at once and then by `wait`, which is ready to wait until the deadline that it is
    /// given, and says whether it has the lock.
    #[inline]
    fn take<U>(
        &self,
        site: Site,
        refuses: bool,
        deadline: Option<Deadline>,
        wait: impl Fn(Option<Deadline>) -> Result<Result<bool, U>, P::Fault>,
    ) -> Result<bool, Failed<P::Fault, U>> {
        self.verify(site);
        let taken = self.lock.try_acquire();
        if taken.map_err(|fault| Failed::Fault(self.fault(fault, site)))? {
            Checker::taken(self.me(), Mode::Exclusive, How::Locked, site);
            return Ok(true);
        }
        self.take_contended(site, refuses, deadline, wait)
    }

    /// The same, with a word if it is a breach of a rule.
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
        refuses: bool,
        deadline: Option<Deadline>,
        wait: impl Fn(Option<Deadline>) -> Result<Result<bool, U>, P::Fault>,
    ) -> Result<bool, Failed<P::Fault, U>> {
        let me = self.me();
        // As long as a holder in a short section takes; a wait is told of where it lasts. (But the holder of a lock
        // that lends priority is to have it at once, and a task does not poll for what it holds itself.)
        if !P::TRAITS.contains(Traits::LENDS) && !tell::holds(me) {
            rest_if_contended(REST, || self.lock.looks_free());
            for poll in 0..HAND_OVER {
                if self.lock.looks_free() && self.lock.try_acquire().map_err(Failed::Fault)? {
                    Checker::taken(me, Mode::Exclusive, How::Locked, site);
                    return Ok(true);
                }
                pause(poll);
            }
        }
        let verdict = Checker::wants(me, Mode::Exclusive, deadline.is_some(), site);
        if refuses && verdict == Verdict::Deadlock {
            Checker::gave_up(me);
            return Err(Failed::Deadlock);
        }
        loop {
            let report = tell::patience().map(Deadline::from_nanoseconds);
            let report = report.filter(|report| deadline.is_none_or(|deadline| *report < deadline));
            let ended = wait(report.or(deadline));
            match ended {
                Ok(Ok(true)) => {
                    Checker::taken(me, Mode::Exclusive, How::Locked, site);
                    return Ok(true);
                }
                Ok(Ok(false)) if report.is_some() => tell::still_waits(),
                Ok(Ok(false)) => {
                    Checker::gave_up(me);
                    return Ok(false);
                }
                Ok(Err(unfinished)) => {
                    Checker::gave_up(me);
                    return Err(Failed::Unfinished(unfinished));
                }
                Err(fault) => {
                    Checker::gave_up(me);
                    return Err(Failed::Fault(fault));
                }
            }
        }
    }

    /// Waits as long as it is told.
    fn wait(&self, deadline: Option<Deadline>) -> Result<Result<bool, Never>, P::Fault> {
        match deadline {
            Some(deadline) => self.lock.acquire_until(deadline).map(Ok),
            None => self.lock.acquire().map(|()| Ok(true)),
        }
    }

    #[inline]
    fn try_take(&self, site: Site) -> Result<bool, P::Fault> {
        self.verify(site);
        let taken = self.lock.try_acquire();
        let taken = taken.map_err(|fault| self.fault(fault, site))?;
        if taken {
            Checker::taken(self.me(), Mode::Exclusive, How::Tried, site);
        }
        Ok(taken)
    }

    /// # Safety
    /// As for [`Protocol::release`].
    #[inline]
    unsafe fn give_back(&self, site: Site) {
        self.verify(site);
        if let Some(since) = tell::releasing_as_usual(self.me(), site) {
            // SAFETY: by the caller's contract.
            unsafe { self.lock.release() }
            since.is_over();
        } else if tell::releasing_slowly(self.me(), site) != Verdict::NotHeld {
            // SAFETY: as above, or as the program would have it.
            unsafe { self.lock.release() }
        }
    }

    /// # Safety
    /// As for [`Protocol::release`].
    unsafe fn give_back_to_wait(&self, condvar: Lock, timed: bool, site: Site) {
        self.verify(site);
        if Checker::condvar_begins(condvar, self.me(), timed, site) != Verdict::NotHeld {
            // SAFETY: as above.
            unsafe { self.lock.release() }
        }
    }

    fn take_again(&self, arrival: Relock) -> Result<(), P::Fault> {
        let taken = self.lock.acquire_again(arrival);
        tell::condvar_wait_ends(self.me(), taken.is_ok());
        taken
    }
}

/// There is no such way for it to end.
#[derive(Clone, Copy, Debug)]
enum Never {}

fn answer_of<A: Answer, F: Error>(failed: Failed<F, Never>) -> A::Fault<F> {
    match failed {
        Failed::Fault(fault) => A::fault(fault),
        Failed::Unfinished(never) => match never {},
        Failed::Deadlock => A::deadlock(),
    }
}

// SAFETY: the inner lock's contract is the same; what is added are words and looks.
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
        let wait = |deadline| self.wait(deadline);
        let taken = self.take(Site::caller(), A::REFUSES, None, wait);
        taken.map(|_| ()).map_err(answer_of::<A, _>)
    }

    #[inline]
    #[track_caller]
    fn try_acquire(&self) -> Result<bool, Self::Fault> {
        self.try_take(Site::caller()).map_err(A::fault)
    }

    #[inline]
    #[track_caller]
    fn acquire_until(&self, deadline: Deadline) -> Result<bool, Self::Fault> {
        let wait = |deadline| self.wait(deadline);
        let taken = self.take(Site::caller(), A::REFUSES, Some(deadline), wait);
        taken.map_err(answer_of::<A, _>)
    }

    #[inline]
    #[track_caller]
    unsafe fn release(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.give_back(Site::caller()) }
    }

    #[inline]
    unsafe fn release_of_guard(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.give_back(Site::UNKNOWN) }
    }

    fn sleep_place(&self) -> SleepPlace<'_> {
        self.lock.sleep_place()
    }

    unsafe fn release_to_wait(&self, condvar: Lock, timed: bool, site: Site) {
        // SAFETY: by the caller's contract.
        unsafe { self.give_back_to_wait(condvar, timed, site) }
    }

    fn acquire_again(&self, arrival: Relock) -> Result<(), Self::Fault> {
        self.take_again(arrival).map_err(A::fault)
    }
}

// SAFETY: as above.
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
        match self.take(Site::caller(), false, deadline, wait) {
            Ok(true) => Ok(Ok(())),
            Ok(false) => Ok(Err(Unfinished::TimedOut)),
            Err(Failed::Unfinished(unfinished)) => Ok(Err(unfinished)),
            Err(Failed::Fault(fault)) => Err(fault),
            Err(Failed::Deadlock) => unreachable!("only calls that may be refused are"),
        }
    }
}

// SAFETY: the lock is shareable by itself; the tag in front of it is numbers and text.
unsafe impl<P: Shareable, A: 'static> Shareable for Checked<P, A> {
    const FINGERPRINT: u64 = fingerprint(
        "Checked",
        size_of::<Self>(),
        align_of::<Self>(),
        &[P::FINGERPRINT],
    );
}

impl<P, A> Drop for Checked<P, A> {
    fn drop(&mut self) {
        // What kind it is the board knows.
        let lock = Lock::new(ptr::from_ref(self).addr(), crate::hook::Kind::Mutex);
        self.tag.end(lock);
    }
}
