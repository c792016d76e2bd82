//! What robust locks report, to the [observer](Slow::Observer) of their protocol.

use super::Slow;
use crate::hook::{How, Kind, Lock, Mode, Observer, Site, Traits, Verdict};

/// Whether any of it is reported.
pub(super) const fn is_on<P: Slow>() -> bool {
    P::Observer::IS_ON
}

/// The calling task is about to wait for the lock at this address, for at most some time if `timed`; whether it must
/// not, since it would wait for ever.
pub(super) fn wants<P: Slow>(lock: usize, timed: bool, site: Site) -> bool {
    P::Observer::wants(at::<P>(lock), Mode::Exclusive, timed, site) == Verdict::Deadlock
}

/// It has taken it; by a call that never waits, if `tried`.
pub(super) fn taken<P: Slow>(lock: usize, tried: bool, site: Site) {
    let how = if tried { How::Tried } else { How::Locked };
    P::Observer::taken(at::<P>(lock), Mode::Exclusive, how, site);
}

/// It does not wait any more.
pub(super) fn gave_up<P: Slow>(lock: usize) {
    P::Observer::gave_up(at::<P>(lock));
}

/// It is about to release it.
pub(super) fn releasing<P: Slow>(lock: usize) {
    // A guard that does not hold it aborts, whatever is said here.
    let _ = P::Observer::releasing(at::<P>(lock), Site::UNKNOWN);
}

fn at<P: Slow>(address: usize) -> Lock {
    let traits = P::TRAITS.union(Traits::ROBUST).union(Traits::SHARED);
    Lock::new(address, Kind::Mutex).with(traits)
}
