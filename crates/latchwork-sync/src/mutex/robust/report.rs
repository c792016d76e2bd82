//! The reports of robust locks to the [observer](RobustOps::Observer) of their protocol.

use super::RobustOps;
use crate::hook::{How, Kind, Lock, Mode, Observer, Site, Traits, Verdict};

/// Whether the protocol has an observer.
pub(super) const fn is_on<P: RobustOps>() -> bool {
    P::Observer::IS_ON
}

/// Reports that the calling task is about to wait for the lock at this address, with a deadline if `timed`. Returns
/// whether the wait would be a deadlock, and the task must not wait.
pub(super) fn wants<P: RobustOps>(lock: usize, timed: bool, site: Site) -> bool {
    P::Observer::wants(at::<P>(lock), Mode::Exclusive, timed, site) == Verdict::Deadlock
}

/// Reports that the calling task has acquired the lock; if `tried`, by a call that never waits.
pub(super) fn taken<P: RobustOps>(lock: usize, tried: bool, site: Site) {
    let how = if tried { How::Tried } else { How::Locked };
    P::Observer::taken(at::<P>(lock), Mode::Exclusive, how, site);
}

/// Reports that the calling task has ended its wait without the lock.
pub(super) fn gave_up<P: RobustOps>(lock: usize) {
    P::Observer::gave_up(at::<P>(lock));
}

/// Reports that the calling task is about to release the lock.
pub(super) fn releasing<P: RobustOps>(lock: usize) {
    // The verdict is not needed: a guard that does not hold the lock aborts in any case.
    let _ = P::Observer::releasing(at::<P>(lock), Site::UNKNOWN);
}

fn at<P: RobustOps>(address: usize) -> Lock {
    let traits = P::TRAITS.union(Traits::ROBUST).union(Traits::SHARED);
    Lock::new(address, Kind::Mutex).with(traits)
}
