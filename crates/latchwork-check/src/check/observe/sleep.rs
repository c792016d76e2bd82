//! The calling task sleeps for an object without an owner: a condition variable, a semaphore, a queue, and the like.

use super::lookup::{is_known, know};
use super::release::release_mine;
use crate::atomic::Ordering;
use crate::check::detect::lasting::is_unsignallable;
use crate::check::detect::visible_tasks::VisibleTasks;
use crate::check::record::own::Own;
use crate::check::record::rule::Rule;
use crate::check::record::{board, condition};
use crate::check::report::findings::{self, Deed};
use crate::hook::record::{TIMED, pack};
use crate::hook::{Lock, Mode, Site, Verdict};

pub(crate) fn condvar_begins(
    own: &Own,
    condvar: Lock,
    mutex: Lock,
    timed: bool,
    site: Site,
) -> Verdict {
    let entry = know(own, condvar, site);
    if let Some(entry) = entry
        && !condition::begins(own, entry, mutex)
        && !condvar.is_shared()
    {
        let after = format_args!(" with a mutex that its other waiters do not use");
        let what = Deed::around(format_args!("waits for"), after);
        findings::misuse(own, Rule::OneMutexPerCondition, condvar, site, None, what);
    }
    let released = release_mine(own, mutex, site) || own.unrecorded.get() > 0 || !is_known(mutex);
    if !released {
        let other = VisibleTasks::holder(own, mutex);
        let what = format_args!("waits for a condition variable without holding");
        findings::misuse(own, Rule::WaitsWithMutex, mutex, site, other, what);
    }
    let timed = if timed { TIMED } else { 0 };
    own.begin_wait_with(condvar, pack(condvar, Mode::Exclusive) | timed, site, mutex);
    if released {
        Verdict::Go
    } else {
        Verdict::NotHeld
    }
}

/// The wait for a condition is over. The mutex is reported separately.
pub(crate) fn condvar_ends(own: &Own, condvar: Lock) {
    if let Some(entry) = board::board().and_then(|board| board.lock(condvar.address())) {
        condition::ends(own, entry);
    }
    own.end_wait();
}

/// The address of the object that the calling task waits for, and the site of that wait.
pub(crate) fn current(own: &Own) -> (usize, Site) {
    let site = own.record().wanted.site.load(Ordering::Relaxed);
    // SAFETY: the task's own record, in which only this process's sites are written.
    let site = unsafe { Site::of_own_record(site) };
    (own.wanted.get(), site)
}

/// A condition variable is about to be notified: one of its waiters, or all. The caller may be a signal handler.
pub fn condvar_notifies(condvar: Lock, all: bool) {
    // Made for a signal handler, this does not enter the calling thread.
    let entry = board::made().and_then(|board| board.lock(condvar.address()));
    if let Some(entry) = entry {
        condition::notified(entry, all);
    }
}

pub(crate) fn waits(own: &Own, object: Lock, timed: bool, site: Site) -> bool {
    know(own, object, site);
    let timed = if timed { TIMED } else { 0 };
    own.begin_wait(object, pack(object, Mode::Exclusive) | timed, site);
    timed == 0 && is_unsignallable(object)
}

pub(crate) fn waits_alone(own: &Own, object: Lock, site: Site) {
    findings::unsignallable_wait(own, object, site);
}
