//! Reports of semaphores to the registered observer, such as the checker: see [`hook`].
//!
//! Reports are made on paths that are slow already. A handle on a semaphore with an owner that is created while an
//! observer is registered has no other path, so it reports all that its users do; one that was created before reports
//! waits and refusals. So without an observer an uncontended obtain and release cost nothing more.

use super::object::{is_of, owner_of};
use super::{Access, Core, Kind, Obtained, Refusal, ReleaseError, UseError, WaitLimit, owned};
use crate::atomic::Ordering::Relaxed;
use crate::hook::{
    self, How, Lock, Misuse, Mode, Observer, Registered, Site, Traits, Verdict, Waiting,
};

/// The semaphore, as the observer identifies it.
fn lock_of(core: &Core) -> Lock {
    let shared = Traits::SHARED.union(Traits::ROBUST);
    let (kind, traits) = match core.form().kind() {
        Kind::Counting | Kind::SimpleBinary => (hook::Kind::Semaphore, Traits::SHARED),
        Kind::Binary => (hook::Kind::OwnedSemaphore, shared.union(Traits::RECURSIVE)),
        Kind::Ceiling | Kind::Inherit => {
            let lends = shared.union(Traits::LENDS);
            match core.form().has_data() {
                true => (hook::Kind::Mutex, lends),
                false => (hook::Kind::OwnedSemaphore, lends.union(Traits::RECURSIVE)),
            }
        }
        Kind::Mrsp => (hook::Kind::OwnedSemaphore, shared.union(Traits::LENDS)),
    };
    Lock::new(core::ptr::from_ref(core).addr(), kind).with(traits)
}

/// Reports the name of a semaphore.
pub(super) fn named(core: &Core, name: &str, site: Site) {
    if hook::is_observed() {
        Registered::named(lock_of(core), name, site);
    }
}

/// Reports that the calling task owns a semaphore from its creation on.
pub(super) fn created(core: &Core, site: Site) {
    if hook::is_observed() {
        Registered::taken(lock_of(core), Mode::Exclusive, How::Tried, site);
    }
}

/// Obtains a semaphore with an owner by `obtain`, which is called twice if it has to wait, and reports it.
#[inline]
pub(super) fn obtain(
    core: &Core,
    limit: WaitLimit,
    site: Site,
    obtain: impl Fn(WaitLimit) -> Result<Obtained, Refusal>,
) -> Result<Obtained, Refusal> {
    if !hook::is_observed() {
        return obtain(limit);
    }
    let lock = lock_of(core);
    let mut obtained = obtain(WaitLimit::Try);
    let waits = !matches!(limit, WaitLimit::Try) && matches!(obtained, Err(Refusal::WouldBlock));
    // An obtain of a MrsP semaphore by its owner is refused at once.
    if waits || matches!(obtained, Err(Refusal::Deadlock)) {
        let is_timed = limit.deadline().is_some();
        let verdict = Registered::wants(lock, Mode::Exclusive, is_timed, site);
        obtained = match waits && verdict != Verdict::Deadlock {
            true => obtain(limit),
            false => Err(Refusal::Deadlock),
        };
    }
    match &obtained {
        Ok(_) => {
            let how = match limit {
                WaitLimit::Try => How::Tried,
                WaitLimit::Until(_) => How::Locked,
            };
            Registered::taken(lock, Mode::Exclusive, how, site);
        }
        Err(refusal) => {
            Registered::gave_up(lock);
            refused(core, refusal, site);
        }
    }
    obtained
}

/// The same for a unit of a count.
pub(super) fn obtain_unit(
    core: &Core,
    limit: WaitLimit,
    site: Site,
    obtain: impl Fn(WaitLimit) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if !hook::is_observed() {
        return obtain(limit);
    }
    let mut obtained = obtain(WaitLimit::Try);
    if let WaitLimit::Until(deadline) = limit
        && matches!(obtained, Err(Refusal::WouldBlock))
    {
        let (kind, object) = (hook::Kind::Semaphore, core::ptr::from_ref(core).addr());
        let waiting = Waiting::begin_at(kind, object, deadline.is_some(), site);
        let blocks = |obtained: &Result<(), Refusal>| matches!(obtained, Err(Refusal::WouldBlock));
        waiting.report_if_alone(|| {
            obtained = obtain(WaitLimit::Try);
            blocks(&obtained)
        });
        if blocks(&obtained) {
            obtained = obtain(limit);
        }
    }
    if let Err(refusal) = &obtained {
        refused(core, refusal, site);
    }
    obtained
}

/// Reports a refused obtain, if it is a misuse.
fn refused(core: &Core, refusal: &Refusal, site: Site) {
    match *refusal {
        Refusal::NoObject => misused(core, Misuse::AfterEnd, site),
        Refusal::AboveCeiling { own, ceiling } => {
            misused(core, Misuse::AboveCeiling { own, ceiling }, site);
        }
        _ => {}
    }
}

/// Reports that the calling task is about to release a semaphore, if it owns it.
#[inline]
pub(super) fn releasing<T>(access: &Access<'_, T>, site: Site) {
    if hook::is_observed() && owned::word_if_owned(access).is_ok() {
        Registered::releases(lock_of(access.core), site);
    }
}

/// Reports a release that was not a guard's, if it failed. (A guard's may come too late, and then does nothing.)
#[inline]
pub(super) fn released<T>(core: &Core, key: u64, released: &Result<T, ReleaseError>, site: Site) {
    match released {
        Err(ReleaseError::NotOwner) => {
            // Relaxed: the owner may change at any moment, but not to the calling task.
            let word = core.word.load(Relaxed);
            let owned = is_of(word, key) && owner_of(word) != 0;
            misused(core, Misuse::NotOwner { owned }, site);
        }
        Err(ReleaseError::Deleted) => misused(core, Misuse::AfterEnd, site),
        _ => {}
    }
}

/// Reports the end of a flush or deletion. `deleted`: the number of waiters before the deletion, if it was one.
pub(super) fn flushed_or_deleted<T>(
    core: &Core,
    used: &Result<T, UseError>,
    deleted: Option<u32>,
    site: Site,
) {
    match (used, deleted) {
        (Err(UseError::Deleted), _) => misused(core, Misuse::AfterEnd, site),
        (Err(UseError::InUse), _) => misused(core, Misuse::DeleteOwned, site),
        (Ok(_), Some(waiting)) => {
            if waiting > 0 {
                misused(core, Misuse::DeleteAwaited { waiting }, site);
            }
            if hook::is_observed() {
                Registered::ended(lock_of(core));
            }
        }
        _ => {}
    }
}

fn misused(core: &Core, misuse: Misuse, site: Site) {
    if hook::is_observed() {
        Registered::misused(lock_of(core), misuse, site);
    }
}
