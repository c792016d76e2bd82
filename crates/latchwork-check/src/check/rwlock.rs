//! Checked reader/writer locks: a [`RawRwLock`] in a [`Checked`], used through [`lock_api`].
#![allow(unsafe_code)]

use super::observer::{self, Checker};
use crate::check::checked::{self, Checked};
use crate::hook::{How, Kind, Lock, Mode, Observer, Site, Traits, Verdict};
use crate::mutex::WaitMode;
use crate::rwlock::{Preference, RawRwLock};
use crate::sharing::{Private, Sharing};
use crate::sys::futex::Sharing as Flag;
use crate::time::Deadline;
use core::time::Duration;

/// Data behind a checked reader/writer lock: several readers, or one writer at a time.
///
/// ```
/// use latchwork::check::CheckedRwLock;
///
/// static TABLE: CheckedRwLock<u32> = CheckedRwLock::new(1);
/// assert_eq!(*TABLE.read(), 1);
/// *TABLE.write() += 1;
/// ```
///
/// A reader may acquire the lock again as a reader, unless a writer waits meanwhile: that is a deadlock, and is
/// reported as one. A name can be given with `CheckedRwLock::from_raw(Checked::named("table", RawRwLock::new()),
/// data)`.
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
        self.tag.lock(Kind::RwLock, shared.union(first))
    }

    fn verify(&self, site: Site) -> Lock {
        let lock = self.lock();
        checked::verify(&self.tag, || lock, site);
        lock
    }

    fn try_enter(&self, mode: Mode) -> bool {
        match mode {
            Mode::Shared => self.inner().try_enter::<false>(),
            Mode::Exclusive => self.inner().try_enter::<true>(),
        }
    }

    fn enter(&self, mode: Mode, deadline: Option<Deadline>, site: Site) -> bool {
        let lock = self.verify(site);
        let taken = self.try_enter(mode) || {
            // A deadlock is reported, and then happens as it would without the checker.
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

    /// Waits; the inner call returns at the times at which something may have to be reported.
    fn wait(&self, mode: Mode, deadline: Option<Deadline>) -> bool {
        loop {
            let report = observer::report_before(deadline);
            let wait_mode = WaitMode::until(report.or(deadline));
            let entered = match mode {
                Mode::Shared => self.inner().enter::<false>(wait_mode),
                Mode::Exclusive => self.inner().enter::<true>(wait_mode),
            };
            match entered {
                Ok(()) => return true,
                // The lock became available at the time of the report, so there is nothing to report.
                Err(_) if report.is_some() && self.try_enter(mode) => return true,
                Err(_) if report.is_some() => observer::still_waits(),
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

    /// Reports a release. Returns whether the lock is to be released.
    fn leave(&self, site: Site) -> bool {
        let lock = self.verify(site);
        Checker::releasing(lock, site) != Verdict::NotHeld
    }
}

// SAFETY: the inner lock excludes tasks; the wrapper adds reports only, and may skip a release of a free lock.
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
            // SAFETY: by the caller's contract; a lock that another task holds is released as without the checker.
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
            // SAFETY: by the caller's contract, as in `unlock_shared`.
            unsafe { self.inner().unlock_write() }
        }
    }
}

// SAFETY: a timed call that succeeds has acquired the inner lock as an untimed one does.
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
        let deadline = Deadline::after(timeout);
        self.enter(Mode::Exclusive, Some(deadline), Site::caller())
    }

    #[track_caller]
    fn try_lock_exclusive_until(&self, deadline: Deadline) -> bool {
        self.enter(Mode::Exclusive, Some(deadline), Site::caller())
    }
}
