//! The kinds that the checker assigns to the protocols of this crate.

use crate::hook::Kind;
use crate::mutex::throughput::Counting;
use crate::mutex::{Inherit, InheritPlain, Protect, ProtectFault, Protocol, Throughput, WaitWake};
use crate::sharing::Sharing;
use crate::spin::Spin;

/// A protocol that can be [checked](crate::check::Checked).
pub trait Checkable: Protocol {
    /// The kind that reports name.
    const KIND: Kind = Kind::Mutex;

    /// The caller's priority and the ceiling that is below it, if that is why the lock was not taken.
    #[doc(hidden)]
    fn above_ceiling(_: &Self::Fault) -> Option<(u8, u8)> {
        None
    }

    /// Whether it may be free, by a load: polling by compare-and-swap would take the cache line from the holder each
    /// time.
    #[doc(hidden)]
    fn looks_free(&self) -> bool {
        true
    }
}

impl<S: Sharing> Checkable for WaitWake<S> {
    #[inline]
    fn looks_free(&self) -> bool {
        !self.is_locked()
    }
}

impl<S: Sharing, C: Counting> Checkable for Throughput<S, C> {}
impl<S: Sharing> Checkable for Inherit<S> {}
impl<S: Sharing> Checkable for InheritPlain<S> {}

impl<S: Sharing> Checkable for Protect<S> {
    fn above_ceiling(fault: &ProtectFault) -> Option<(u8, u8)> {
        match *fault {
            ProtectFault::AboveCeiling { own, ceiling } => Some((own, ceiling)),
            _ => None,
        }
    }
}

impl Checkable for Spin {
    const KIND: Kind = Kind::Spin;
}
