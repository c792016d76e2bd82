//! Reader/writer locks that are checked: a [`RawRwLock`] in a [`Checked`], to be used through [`lock_api`].
#![allow(unsafe_code)]

use super::checked::Checked;
use super::observer::Checker;
use super::tag::Tag;
use super::tell;
use crate::hook::{How, Kind, Lock, Mode, Observer, Site, Traits, Verdict};
use crate::mutex::WaitMode;
use crate::rwlock::{Preference, RawRwLock};
use crate::sharing::{Private, Sharing};
use crate::sys::futex::Sharing as Flag;
use crate::time::Deadline;
use core::time::Duration;

/// Data that many tasks may read at a time, or one may change, with a lock that is checked.
///
/// ```
/// use latchwork::check::CheckedRwLock;
///
/// static TABLE: CheckedRwLock<u32> = CheckedRwLock::new(1);
/// assert_eq!(*TABLE.read(), 1);
/// *TABLE.write() += 1;
/// ```
///
/// A task that reads may read again, unless a writer waits meanwhile, which is found as the deadlock that it is. A
/// name can be given with `CheckedRwLock::from_raw(Checked::named("table", RawRwLock::new()), data)`.
pub type CheckedRwLock<T, S = Private, P = crate::rwlock::WritersFirst> =
    lock_api::RwLock<Checked<RawRwLock<S, P>>, T>;

impl<S: Sharing, P: Preference> Checked<RawRwLock<S, P>> {
    fn lock(&self) -> Lock {
        let shared = match S::FLAG {
            Flag::Private => Traits::empty(),
            Flag::Shared => Traits::SHARED,
        };
        let first = if P::READERS_FIRST {
            Traits::empty()
        } else {
            Traits::WRITERS_FIRST
        };
        self.tag().lock(Kind::RwLock, shared.union(first))
    }

    fn verify(&self, site: Site) -> Lock {
        let lock = self.lock();
        self.tag().verify(|| lock, site);
        lock
    }

    fn try_enter(&self, mode: Mode) -> bool {
        match mode {
            Mode::Shared => self.inner().try_read(),
            Mode::Exclusive => self.inner().try_write(),
        }
    }

    fn enter(&self, mode: Mode, deadline: Option<Deadline>, site: Site) -> bool {
        let lock = self.verify(site);
        let taken = self.try_enter(mode) || {
            // After its report a deadlock is what the program would have.
            let _ = Checker::wants(lock, mode, deadline.is_some(), site);
            self.wait(mode, deadline)
        };
        if taken {
            Checker::taken(lock, mode, How::Locked, site);
        } else {
            Checker::gave_up(lock);
        }
        taken
    }

    /// Waits, and comes back when there is something to report.
    fn wait(&self, mode: Mode, deadline: Option<Deadline>) -> bool {
        loop {
            let report = tell::patience().map(Deadline::from_nanoseconds);
            let report = report.filter(|report| deadline.is_none_or(|deadline| *report < deadline));
            let patience = WaitMode::until(report.or(deadline));
            let entered = match mode {
                Mode::Shared => self.inner().read(patience),
                Mode::Exclusive => self.inner().write(patience),
            };
            match entered {
                Ok(()) => return true,
                // Who could enter by now waits for nobody.
                Err(_) if report.is_some() && self.try_enter(mode) => return true,
                Err(_) if report.is_some() => tell::still_waits(),
                Err(_) => return false,
            }
        }
    }

    fn try_at(&self, mode: Mode, site: Site) -> bool {
        let lock = self.verify(site);
        let taken = self.try_enter(mode);
        if taken {
            Checker::taken(lock, mode, How::Tried, site);
        }
        taken
    }

    /// Whether there is something to release.
    fn leave(&self, site: Site) -> bool {
        let lock = self.verify(site);
        Checker::releasing(lock, site) != Verdict::NotHeld
    }
}

impl<P, A> Checked<P, A> {
    pub(super) fn tag(&self) -> &Tag {
        &self.tag
    }
}

// SAFETY: the inner lock's contract is the same.
unsafe impl<S: Sharing, P: Preference> lock_api::RawRwLock for Checked<RawRwLock<S, P>> {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the trait's way to spell a constructor"
    )]
    const INIT: Self = Self::new(RawRwLock::new());
    type GuardMarker = lock_api::GuardNoSend;

    #[track_caller]
    fn lock_shared(&self) {
        self.enter(Mode::Shared, None, Site::caller());
    }

    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        self.try_at(Mode::Shared, Site::caller())
    }

    #[track_caller]
    unsafe fn unlock_shared(&self) {
        if self.leave(Site::caller()) {
            // SAFETY: by the caller's contract, which is the same, or as the program would have it.
            unsafe { self.inner().unlock_read() }
        }
    }

    #[track_caller]
    fn lock_exclusive(&self) {
        self.enter(Mode::Exclusive, None, Site::caller());
    }

    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        self.try_at(Mode::Exclusive, Site::caller())
    }

    #[track_caller]
    unsafe fn unlock_exclusive(&self) {
        if self.leave(Site::caller()) {
            // SAFETY: as above.
            unsafe { self.inner().unlock_write() }
        }
    }
}

// SAFETY: a timed lock that succeeds is a lock.
unsafe impl<S: Sharing, P: Preference> lock_api::RawRwLockTimed for Checked<RawRwLock<S, P>> {
    type Duration = Duration;
    type Instant = Deadline;

    #[track_caller]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.enter(Mode::Shared, Some(Deadline::after(timeout)), Site::caller())
    }

    #[track_caller]
    fn try_lock_shared_until(&self, deadline: Deadline) -> bool {
        self.enter(Mode::Shared, Some(deadline), Site::caller())
    }

    #[track_caller]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.enter(
            Mode::Exclusive,
            Some(Deadline::after(timeout)),
            Site::caller(),
        )
    }

    #[track_caller]
    fn try_lock_exclusive_until(&self, deadline: Deadline) -> bool {
        self.enter(Mode::Exclusive, Some(deadline), Site::caller())
    }
}
