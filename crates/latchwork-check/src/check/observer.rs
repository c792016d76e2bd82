//! The checker as an [`Observer`]: what reports to the checker reports to this. `Checked` does so by its name, other locks
//! of this library by the table that [`begin`](crate::check::begin) registers, and foreign locks by the functions below.

use crate::check::observe::tell;
use crate::check::observe::thread_end;
use crate::hook::{How, Lock, Misuse, Mode, Observer, Site, Verdict};
use core::ops::Range;

/// See the head of this file.
pub struct Checker;

impl Observer for Checker {
    #[inline(always)]
    fn wants(lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict {
        tell::wants(lock, mode, timed, site)
    }

    #[inline(always)]
    fn taken(lock: Lock, mode: Mode, how: How, site: Site) {
        tell::taken(lock, mode, how, site);
    }

    #[inline(always)]
    fn gave_up(lock: Lock) {
        tell::gave_up(lock);
    }

    #[inline(always)]
    fn releasing(lock: Lock, site: Site) -> Verdict {
        tell::releasing(lock, site)
    }

    #[inline(always)]
    fn releases(lock: Lock, site: Site) {
        tell::releases(lock, site);
    }

    #[inline(always)]
    fn destroyed(lock: Lock, site: Site) {
        tell::destroyed(lock, site);
    }

    #[inline(always)]
    fn condvar_begins(condvar: Lock, mutex: Lock, timed: bool, site: Site) -> Verdict {
        tell::condvar_begins(condvar, mutex, timed, site)
    }

    #[inline(always)]
    fn condvar_ends(condvar: Lock, mutex: Lock, has_mutex: bool, site: Site) {
        tell::condvar_ends(condvar, mutex, has_mutex, site);
    }

    #[inline(always)]
    fn notifies(condvar: Lock, all: bool) {
        tell::condvar_notifies(condvar, all);
    }

    #[inline(always)]
    fn waits(object: Lock, timed: bool, site: Site) {
        tell::waits(object, timed, site);
    }

    #[inline(always)]
    fn has_waited(object: Lock) {
        tell::has_waited(object);
    }

    #[inline(always)]
    fn named(object: Lock, name: &str, site: Site) {
        tell::named(object, name, site);
    }

    #[inline(always)]
    fn ended(object: Lock) {
        tell::ended(object);
    }

    #[inline(always)]
    fn misused(object: Lock, misuse: Misuse, site: Site) {
        tell::misused(object, misuse, site);
    }

    #[inline(always)]
    fn freed(range: Range<usize>) {
        tell::freed(range, Site::UNKNOWN);
    }

    #[inline(always)]
    fn task_ends() -> bool {
        thread_end::task_ends()
    }
}

/// Functions by which foreign locks report: each calls a method of the observer.
macro_rules! reports {
    ($($(#[$meta:meta])* fn $name:ident = $method:ident($($argument:ident: $Type:ty),*) $(-> $Answer:ty)?;)*) => {$(
        $(#[$meta])*
        #[inline]
        pub fn $name($($argument: $Type),*) $(-> $Answer)? {
            Checker::$method($($argument),*)
        }
    )*};
}

reports! {
    /// The calling task cannot have a lock at once, and is about to wait for it: for at most some time, if
    /// `timed`.
    fn wants = wants(lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict;
    /// The calling task has taken a lock.
    fn taken = taken(lock: Lock, mode: Mode, how: How, site: Site);
    /// The wait that [`wants`] began is over without the lock.
    fn gave_up = gave_up(lock: Lock);
    /// The calling task is about to release a lock.
    fn releasing = releasing(lock: Lock, site: Site) -> Verdict;
    /// A lock is about to be destroyed, by the interface.
    fn destroyed = destroyed(lock: Lock, site: Site);
    /// The calling task is about to release a mutex and wait for a condition.
    fn condvar_begins = condvar_begins(condvar: Lock, mutex: Lock, timed: bool, site: Site) -> Verdict;
    /// That wait is over, and the mutex taken again, unless it could not be.
    fn condvar_ends = condvar_ends(condvar: Lock, mutex: Lock, has_mutex: bool, site: Site);
    /// A condition variable is about to be notified: one of its waiters, or all. (By whomever: a signal handler may.)
    fn condvar_notifies = notifies(condvar: Lock, all: bool);
    /// The calling task is about to sleep for an object that has no owner.
    fn waits = waits(object: Lock, timed: bool, site: Site);
    /// That sleep is over.
    fn has_waited = has_waited(object: Lock);
}
