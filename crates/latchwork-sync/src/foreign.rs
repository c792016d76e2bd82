//! Locks for a C interface: without guards, with error numbers as results, and with waits in steps ([`Pause`]). Not for
//! Rust programs, whose types express the same at compile time.
//!
//! *Misuse* that aborts elsewhere returns an error number here where the lock knows its owner.
#![allow(unsafe_code, missing_docs)]

use crate::TaskError;
pub use crate::condvar::steps::{Awake, Call, Pause, nap_in_region};
use crate::mutex::throughput::{Acquisition, Released};
use crate::mutex::{
    Acquired, Inherit, InheritFault, InheritPlain, Interruptible, Protect, ProtectFault, Protocol,
    RawError, RecursiveMutex, Robust, RobustProtocol, SleepPlace, Throughput, Unfinished, WaitMode,
    WaitWake,
};
pub use crate::rwlock::robust::{
    robust_rwlock_consistent, robust_rwlock_enter, robust_rwlock_enter_traced,
    robust_rwlock_is_used, robust_rwlock_leave, robust_rwlock_leave_inconsistent,
    robust_rwlock_leave_traced,
};
use crate::sharing::Sharing;
use crate::spin::Spin;
pub use crate::sys::cancellation::{Undisturbed, cancellable};
pub use crate::sys::process_mark::ProcessMark;
use crate::task::{self, Me};
pub use crate::task::{id as task_id, stamp as task_stamp};
use crate::time::Deadline;
use core::convert::Infallible;
use libc::{
    EAGAIN, EBUSY, EDEADLK, EINTR, EINVAL, ENOMEM, ENOSYS, ENOTRECOVERABLE, ENOTSUP, EOWNERDEAD,
    EPERM, ETIMEDOUT, c_int,
};

mod region_lock;

/// How long a lock call waits. (As [`WaitMode`], which slow paths use, but in a form that can be matched.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    Forever,
    Try,
    Until(Deadline),
    /// Until a signal handler has run, or the deadline, if there is one, has passed.
    Interruptible(Option<Deadline>),
}

impl Blocking {
    pub(crate) fn wait_mode(self) -> WaitMode {
        match self {
            Self::Forever => WaitMode::FOREVER,
            Self::Try => WaitMode::TRY,
            Self::Until(deadline) => WaitMode::until(Some(deadline)),
            Self::Interruptible(deadline) => WaitMode::interruptible(deadline),
        }
    }
}

/// A lock of any protocol. Results are 0 or an error number.
pub trait ForeignLock {
    fn lock(&self, blocking: Blocking) -> c_int;
    /// # Safety
    /// The calling task holds the lock; the implementation checks it where the lock knows its owner.
    unsafe fn unlock(&self) -> c_int;
    /// Acquires the lock again after a wait for a condition variable.
    fn lock_again(&self, awake: &Awake<'_>) -> c_int;
    fn is_locked(&self) -> bool;
    /// Whether the calling task holds it, as far as the lock knows.
    fn may_be_held_by_me(&self) -> bool {
        self.is_owned_by_me()
    }
    /// Whether the word names the calling task as its owner.
    fn is_owned_by_me(&self) -> bool {
        false
    }
    fn consistent(&self) -> c_int {
        EINVAL
    }
    /// Releases the lock with its data in an unknown state, or returns `EPERM`: the next owner gets `EOWNERDEAD`.
    fn unlock_inconsistent(&self) -> c_int {
        EINVAL
    }
    /// Completes an unlock whose compare-and-swap has failed.
    ///
    /// # Safety
    /// The calling task has announced the lock, and unlinked it.
    unsafe fn free_unlinked(&self, _before: usize) {}
    /// # Safety
    /// The calling task holds it.
    unsafe fn give_back_unclean(&self) {}
    /// Where a condition variable may requeue its waiters for this lock.
    fn sleep_place(&self) -> SleepPlace<'_> {
        SleepPlace::NONE
    }
    fn address(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }
}

/// The error number of a failure.
pub(crate) trait ErrorNumber {
    fn error_number(self) -> c_int;
}

impl ErrorNumber for Infallible {
    fn error_number(self) -> c_int {
        match self {}
    }
}

impl ErrorNumber for InheritFault {
    fn error_number(self) -> c_int {
        match self {
            Self::Deadlock => EDEADLK,
            Self::OwnerGone => ENOTRECOVERABLE,
            Self::NoMemory => ENOMEM,
            Self::Unsupported => ENOSYS,
            Self::Corrupt => EINVAL,
        }
    }
}

impl ErrorNumber for ProtectFault {
    fn error_number(self) -> c_int {
        match self {
            Self::AboveCeiling { .. } | Self::Deadline => EINVAL,
            Self::Permission { .. } => EPERM,
            _ => ENOSYS,
        }
    }
}

impl ErrorNumber for TaskError {
    fn error_number(self) -> c_int {
        match self {
            Self::Memory(_) => ENOMEM,
            Self::RobustList(_) => ENOSYS,
            Self::ForeignLayout(_) => ENOTSUP,
            Self::Ended => EPERM,
        }
    }
}

impl<F: ErrorNumber> ErrorNumber for RawError<F> {
    fn error_number(self) -> c_int {
        match self {
            Self::WouldBlock => EBUSY,
            Self::TimedOut => ETIMEDOUT,
            Self::Interrupted => EINTR,
            Self::NotRecoverable => ENOTRECOVERABLE,
            Self::Deadlock => EDEADLK,
            Self::TooManyHeld => EAGAIN,
            Self::Unavailable(error) => error.error_number(),
            Self::Refused(fault) => fault.error_number(),
        }
    }
}

fn status(result: Result<bool, impl ErrorNumber>, otherwise: c_int) -> c_int {
    match result {
        Ok(true) => 0,
        Ok(false) => otherwise,
        Err(fault) => fault.error_number(),
    }
}

fn lock_uninterruptibly<P: Protocol<Fault: ErrorNumber>>(lock: &P, blocking: Blocking) -> c_int {
    match blocking {
        Blocking::Forever => status(lock.acquire().map(|()| true), 0),
        Blocking::Try => status(lock.try_acquire(), EBUSY),
        Blocking::Until(deadline) => status(lock.acquire_until(deadline), ETIMEDOUT),
        Blocking::Interruptible(_) => ENOTSUP,
    }
}

fn lock_interruptibly<P: Interruptible<Fault: ErrorNumber>>(lock: &P, blocking: Blocking) -> c_int {
    match blocking {
        Blocking::Interruptible(deadline) => match lock.acquire_interruptible(deadline) {
            Ok(Ok(())) => 0,
            Ok(Err(Unfinished::TimedOut)) => ETIMEDOUT,
            Ok(Err(Unfinished::Interrupted)) => EINTR,
            Err(fault) => fault.error_number(),
        },
        blocking => lock_uninterruptibly(lock, blocking),
    }
}

/// The result of a robust lock at this address; `Ok(true)`: it was taken from a dead owner.
pub(crate) fn robust_status(
    taken: Result<bool, RawError<impl ErrorNumber>>,
    lock: *const (),
    blocking: Blocking,
) -> c_int {
    match taken {
        Ok(false) => 0,
        Ok(true) => {
            task::after_owner_death(lock.addr());
            EOWNERDEAD
        }
        // This task holds it: for `Try` that is no deadlock.
        Err(RawError::Deadlock) if blocking == Blocking::Try => EBUSY,
        Err(error) => error.error_number(),
    }
}

/// What a traced lock call has taken.
pub struct Traced {
    pub acquisition: Acquisition,
    /// 0, or `EOWNERDEAD`.
    pub status: c_int,
}

/// A throughput lock of either form: its calls say how they went. Errors are error numbers.
pub trait TracedLock: ForeignLock {
    /// As [`ForeignLock::lock`], without a time limit.
    fn lock_traced(&self) -> Result<Traced, c_int>;
    /// As [`ForeignLock::unlock`].
    ///
    /// # Safety
    /// As for [`ForeignLock::unlock`].
    unsafe fn unlock_traced(&self) -> Result<Released, c_int>;
}

impl<S: Sharing> TracedLock for Throughput<S> {
    fn lock_traced(&self) -> Result<Traced, c_int> {
        if self.is_owned_by_me() {
            return Err(EDEADLK);
        }
        let acquisition = self.acquire_traced();
        let status = 0;
        Ok(Traced {
            acquisition,
            status,
        })
    }

    unsafe fn unlock_traced(&self) -> Result<Released, c_int> {
        if !self.is_owned_by_me() {
            return Err(EPERM);
        }
        // SAFETY: the word names this task as the owner.
        Ok(unsafe { self.release_traced() })
    }
}

impl<S: Sharing> TracedLock for Robust<Throughput<S>> {
    fn lock_traced(&self) -> Result<Traced, c_int> {
        // SAFETY: a C lock does not move while it is held, as its manual requires.
        let (taken, acquisition) = unsafe { self.acquire_traced() };
        let is_taken = taken.is_ok();
        let died = taken.map(|taken| taken == Acquired::OwnerDied);
        let status = robust_status(died, ForeignLock::address(self), Blocking::Forever);
        is_taken
            .then_some(Traced {
                acquisition,
                status,
            })
            .ok_or(status)
    }

    unsafe fn unlock_traced(&self) -> Result<Released, c_int> {
        if !self.is_owned_by_me() {
            return Err(EPERM);
        }
        // SAFETY: the word names this task as the owner.
        Ok(unsafe { self.unlock_raw_traced() })
    }
}

/// The plain locks. Those with their owner's ID in the word detect misuse; the others only an unlock of a free lock.
macro_rules! plain_locks {
    ($($lock:ident$(<$S:ident>)?: $take:ident, $owner:ident;)*) => { $(
        impl$(<$S: Sharing>)? ForeignLock for $lock$(<$S>)? {
            fn lock(&self, blocking: Blocking) -> c_int {
                if self.is_owned_by_me() {
                    return if blocking == Blocking::Try { EBUSY } else { EDEADLK };
                }
                $take(self, blocking)
            }

            unsafe fn unlock(&self) -> c_int {
                if !self.may_be_held_by_me() {
                    return EPERM;
                }
                // SAFETY: by the caller's contract.
                unsafe { self.release() };
                0
            }

            fn lock_again(&self, awake: &Awake<'_>) -> c_int {
                status(self.acquire_again(awake.arrival).map(|()| true), 0)
            }

            fn sleep_place(&self) -> SleepPlace<'_> {
                Protocol::sleep_place(self)
            }

            plain_locks!($owner);
        }
    )* };
    (owned) => {
        fn is_locked(&self) -> bool {
            self.owner().is_some()
        }

        fn is_owned_by_me(&self) -> bool {
            self.owner() == Some(task::id())
        }
    };
    (ownerless) => {
        fn is_locked(&self) -> bool {
            self.is_locked()
        }

        fn may_be_held_by_me(&self) -> bool {
            self.is_locked()
        }
    };
}
plain_locks! {
    WaitWake<S>: lock_interruptibly, ownerless;
    Protect<S>: lock_interruptibly, ownerless;
    Spin: lock_uninterruptibly, ownerless;
    Throughput<S>: lock_interruptibly, owned;
    Inherit<S>: lock_uninterruptibly, owned;
    InheritPlain<S>: lock_uninterruptibly, owned;
}

impl ForeignLock for RecursiveMutex<()> {
    fn lock(&self, blocking: Blocking) -> c_int {
        if self.own_depth() == u32::MAX {
            return EAGAIN;
        }
        let (guard, otherwise) = match blocking {
            Blocking::Forever => (Some(RecursiveMutex::lock(self)), 0),
            Blocking::Try => (self.try_lock(), EBUSY),
            Blocking::Until(deadline) => (self.lock_until(deadline), ETIMEDOUT),
            Blocking::Interruptible(_) => return ENOTSUP,
        };
        match guard {
            Some(guard) => {
                core::mem::forget(guard);
                0
            }
            None => otherwise,
        }
    }

    unsafe fn unlock(&self) -> c_int {
        if self.own_depth() == 0 {
            return EPERM;
        }
        // SAFETY: this task has acquired the lock and has forgotten the guard.
        drop(unsafe { self.guard() });
        0
    }

    fn lock_again(&self, awake: &Awake<'_>) -> c_int {
        core::mem::forget(RecursiveMutex::lock_again(self, awake.arrival));
        0
    }

    fn is_locked(&self) -> bool {
        RecursiveMutex::is_locked(self)
    }

    /// A wait releases the lock once, so the depth must be 1.
    fn may_be_held_by_me(&self) -> bool {
        self.own_depth() == 1
    }

    fn sleep_place(&self) -> SleepPlace<'_> {
        Protocol::sleep_place(self.raw())
    }

    fn address(&self) -> *const () {
        core::ptr::from_ref(self.raw()).cast()
    }
}

impl<P: RobustProtocol<Fault: ErrorNumber>> ForeignLock for Robust<P> {
    fn lock(&self, blocking: Blocking) -> c_int {
        // SAFETY: a C lock does not move while it is held, as its manual requires.
        if unsafe { self.acquire_free() }.is_some() {
            return 0;
        }
        // SAFETY: as above.
        let taken = unsafe { self.acquire_in_budget(blocking.wait_mode()) };
        let died = taken.map(|taken| taken == Acquired::OwnerDied);
        robust_status(died, ForeignLock::address(self), blocking)
    }

    unsafe fn unlock(&self) -> c_int {
        if !self.is_owned_by_me() {
            return EPERM;
        }
        // SAFETY: the word names this task as the owner.
        unsafe { self.unlock_raw() };
        0
    }

    fn lock_again(&self, _: &Awake<'_>) -> c_int {
        self.lock(Blocking::Forever)
    }

    fn is_locked(&self) -> bool {
        self.owner().is_some()
    }

    fn is_owned_by_me(&self) -> bool {
        // `Me::get` registers a thread that acquired the lock through another copy of this library and is still
        // unknown to this one.
        self.owner()
            .is_some_and(|owner| Me::get().is_ok_and(|me| me.tid() == owner))
    }

    unsafe fn free_unlinked(&self, before: usize) {
        // SAFETY: by the caller's contract.
        unsafe { Robust::free_unlinked(self, before) };
    }

    unsafe fn give_back_unclean(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.release_unclean() };
    }

    fn consistent(&self) -> c_int {
        if self.is_owned_by_me() && self.is_inconsistent() {
            self.mark_consistent();
            0
        } else {
            EINVAL
        }
    }

    fn unlock_inconsistent(&self) -> c_int {
        if !self.is_owned_by_me() {
            return EPERM;
        }
        // SAFETY: the word names this task as the owner.
        unsafe { Robust::unlock_inconsistent(self) };
        0
    }
}
