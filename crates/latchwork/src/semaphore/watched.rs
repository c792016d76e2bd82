//! What semaphores report to whatever observer is registered: see [`hook`].
//!
//! The reports are made on paths that are slow anyway. A handle on a semaphore with an owner that is made while an
//! observer is registered has no other path, so all that its users do is reported; one that was made before reports
//! waits, and what is refused. So without an observer a free pair is what it is without all this.

use super::object::{Core, Kind, is_of, owner_of};
use super::owned::{self, Told};
use super::wait::{Me, Patience};
use super::{Refusal, ReleaseError, UseError};
use crate::atomic::Ordering::Relaxed;
use crate::hook::{
    self, How, Lock, Misuse, Mode, Observer, Registered, Site, Traits, Verdict, Waiting,
};

/// What the observer calls it.
fn lock_of(core: &Core) -> Lock {
    let shared = Traits::SHARED.union(Traits::ROBUST);
    let (kind, traits) = match core.form().kind() {
        Kind::Counting | Kind::SimpleBinary => (hook::Kind::Semaphore, Traits::SHARED),
        Kind::Binary => (hook::Kind::OwnedSemaphore, shared.union(Traits::RECURSIVE)),
        Kind::Ceiling | Kind::Inherit => {
            let lends = shared.union(Traits::LENDS);
            (hook::Kind::OwnedSemaphore, lends.union(Traits::RECURSIVE))
        }
        Kind::Mrsp => (hook::Kind::OwnedSemaphore, shared.union(Traits::LENDS)),
    };
    Lock::new(core::ptr::from_ref(core).addr(), kind).with(traits)
}

/// There is a semaphore of this name.
pub(super) fn named(core: &Core, name: &str, site: Site) {
    if hook::is_observed() {
        Registered::named(lock_of(core), name, site);
    }
}

/// The calling task owns a semaphore from its making on.
pub(super) fn made(core: &Core, site: Site) {
    if hook::is_observed() {
        Registered::taken(lock_of(core), Mode::Exclusive, How::Tried, site);
    }
}

/// Obtains what has an owner by `obtain`, which is called twice where it has to wait.
pub(super) fn obtain(
    core: &Core,
    patience: Patience,
    site: Site,
    obtain: impl Fn(Patience) -> Result<Told, Refusal>,
) -> Result<Told, Refusal> {
    if !hook::is_observed() {
        return obtain(patience);
    }
    let lock = lock_of(core);
    let mut obtained = obtain(Patience::Try);
    let waits = !matches!(patience, Patience::Try) && obtained == Err(Refusal::WouldBlock);
    // Who has a MrsP semaphore is refused at once.
    if waits || obtained == Err(Refusal::Deadlock) {
        let is_timed = patience.deadline().is_some();
        let verdict = Registered::wants(lock, Mode::Exclusive, is_timed, site);
        obtained = match waits && verdict != Verdict::Deadlock {
            true => obtain(patience),
            false => Err(Refusal::Deadlock),
        };
    }
    match obtained {
        Ok(_) => {
            let how = match patience {
                Patience::Try => How::Tried,
                Patience::Until(_) => How::Locked,
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

/// The same of a unit of a count.
pub(super) fn obtain_unit(
    core: &Core,
    patience: Patience,
    site: Site,
    obtain: impl Fn(Patience) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if !hook::is_observed() {
        return obtain(patience);
    }
    let mut obtained = obtain(Patience::Try);
    if let Patience::Until(deadline) = patience
        && obtained == Err(Refusal::WouldBlock)
    {
        let (kind, object) = (hook::Kind::Semaphore, core::ptr::from_ref(core).addr());
        let _waiting = Waiting::begin_at(kind, object, deadline.is_some(), site);
        obtained = obtain(patience);
    }
    if let Err(refusal) = obtained {
        refused(core, refusal, site);
    }
    obtained
}

/// An obtain was refused.
fn refused(core: &Core, refusal: Refusal, site: Site) {
    match refusal {
        Refusal::NoObject => misused(core, Misuse::AfterEnd, site),
        Refusal::AboveCeiling { own, ceiling } => {
            misused(core, Misuse::AboveCeiling { own, ceiling }, site);
        }
        _ => {}
    }
}

/// The calling task is about to release what has an owner, if it is that.
pub(super) fn releases(core: &Core, key: u64, me: Me<'_>, site: Site) {
    if hook::is_observed() && owned::own_word(core, key, me).is_ok() {
        Registered::releases(lock_of(core), site);
    }
}

/// How a release ended that was not a guard's: that of a guard may come too late, and does nothing then.
pub(super) fn has_released<T>(
    core: &Core,
    key: u64,
    released: &Result<T, ReleaseError>,
    site: Site,
) {
    match released {
        Err(ReleaseError::NotOwner) => {
            // Relaxed: who owns it may change at any moment, but not to the calling task.
            let word = core.word.load(Relaxed);
            let owned = is_of(word, key) && owner_of(word) != 0;
            misused(core, Misuse::NotOwner { owned }, site);
        }
        Err(ReleaseError::Deleted) => misused(core, Misuse::AfterEnd, site),
        _ => {}
    }
}

/// How a flush or deletion ended. `waiting`: how many waited before it was deleted.
pub(super) fn has_used<T>(
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
