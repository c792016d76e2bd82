//! The locks that may move while nobody uses them: all that the kernel's list of robust locks never links.
#![allow(unsafe_code)]

use super::{Relocatable, relocatable_locks};
use crate::barrier::Barrier;
use crate::completion::Completion;
use crate::condvar::Condvar;
use crate::mutex::throughput::Counting;
use crate::mutex::{DataState, InRegion, Mutex};
use crate::once::{Once, RegionOnce};
use crate::rwlock::{Event, Preference, RawRwLock, RobustRwLock, RwLock};
use crate::sharing::Sharing;
use crate::spin::Spin;

relocatable_locks!(Barrier, Completion, Condvar);

// SAFETY: as for the other locks.
unsafe impl Relocatable for Once {}
// SAFETY: as for the other locks.
unsafe impl Relocatable for RegionOnce {}
// SAFETY: as for the other locks.
unsafe impl Relocatable for Spin {}
// SAFETY: as for the other locks.
unsafe impl<S: Sharing, P: Preference, C: Counting<Event>> Relocatable for RawRwLock<S, P, C> {}
// SAFETY: the parts are a lock and data that may move.
unsafe impl<T: Relocatable + ?Sized, P: DataState + Relocatable> Relocatable for Mutex<T, P> {
    const SETTLES: bool = T::SETTLES;
    unsafe fn settle(place: *mut Self) {
        if T::SETTLES {
            // SAFETY: the data, to which the caller has exclusive access.
            unsafe { T::settle(&raw mut **(*place).data.get_mut()) };
        }
    }
}
// SAFETY: the parts are a lock and data that may move.
unsafe impl<T: Relocatable + ?Sized, S: Sharing, P: Preference, C: Counting<Event>> Relocatable
    for RwLock<T, S, P, C>
{
    const SETTLES: bool = T::SETTLES;
    unsafe fn settle(place: *mut Self) {
        if T::SETTLES {
            // SAFETY: the data, to which the caller has exclusive access.
            unsafe { T::settle((*place).data.get_mut()) };
        }
    }
}
// SAFETY: the parts are locks and data that may move.
unsafe impl<T: Relocatable + ?Sized, const READERS: usize, C: Counting<Event>> Relocatable
    for RobustRwLock<T, READERS, C, InRegion>
{
    const SETTLES: bool = T::SETTLES;
    unsafe fn settle(place: *mut Self) {
        if T::SETTLES {
            // SAFETY: the data, to which the caller has exclusive access.
            unsafe { T::settle(&raw mut **(*place).data.get_mut()) };
        }
    }
}
