//! A lock whose writer died inside, with data that may be torn.
#![allow(unsafe_code)]

use super::guard::RobustWriteGuard;
use super::parts::{Part, SeatLock};
use crate::edit::Edit;
use crate::mutex::throughput::{Counting, Uncounted};
use crate::mutex::{Robust, methods_of_owner_died};
use crate::relocatable::Relocatable;
use crate::rwlock::trace::Event;
use crate::torn_safe::{self, TornSafe};
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::pin::Pin;

/// A robust reader/writer lock acquired to write from a dead writer, with data that may be torn.
///
/// As with [`OwnerDied`](crate::mutex::OwnerDied) of a mutex, [`TornSafe`] data can be read as it is and repaired; any
/// other data must be [replaced](Self::replace) whole, or vouched for. Dropping this guard gives the lock up: from then
/// on every call returns `NotRecoverable`. (If a panic drops it, the lock stays inconsistent, and the next task gets
/// `OwnerDied`.)
#[must_use = "dropping it unrepaired gives the lock up for good"]
pub struct OwnerDied<
    'a,
    T: ?Sized,
    const READERS: usize = 16,
    C: Counting<Event> = Uncounted,
    K: SeatLock = Robust,
> {
    guard: ManuallyDrop<RobustWriteGuard<'a, T, READERS, C, K>>,
}

impl<T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock>
    RobustWriteGuard<'_, T, READERS, C, K>
{
    /// The gate. An [`OwnerDied`] holds it; if it releases the gate, `writing` stays 1.
    fn robust(&self) -> &K::Gate {
        self.lock.raw.gate()
    }

    /// In the child of a fork the guard belongs to the parent: this aborts there.
    fn assert_owned(&self) {
        K::assert_owner(self.lock.raw.gate(), self.owner);
    }

    /// Nothing: no observer follows robust reader/writer locks.
    #[allow(clippy::unused_self)]
    fn report_releasing(&self) {}
}

methods_of_owner_died!(
    {const READERS: usize, C: Counting<Event>, K: SeatLock} {READERS, C, K} RobustWriteGuard, lock
);
