//! Locks, with what they protect, and the other primitives: their words become those of a lock at rest.
#![allow(unsafe_code)]

use super::{Shareable, Unsound, Validate, Validator};
use crate::barrier::Barrier;
use crate::completion::Completion;
use crate::condvar::Condvar;
use crate::mutex::at_rest::AtRest;
use crate::mutex::{DataState, InRegion, Mutex, Robust, WaitWake};
use crate::once::{Once, RegionOnce};
use crate::rwlock::at_rest::WithData;
use crate::rwlock::{self, Counting, Preference, RobustRwLock, RwLock, Uncounted};
use crate::sharing::Shared;
use crate::spin::Spin;
use core::ptr::NonNull;

/// A lock by itself.
unsafe fn at_rest<L: AtRest>(place: NonNull<L>, region: &mut Validator<'_>) -> Result<(), Unsound> {
    // SAFETY: the caller's place, which nothing else uses. A lock consists of atomics and numbers, of which every value is
    // valid.
    let settled = unsafe { (*place.as_ptr()).put_to_rest() };
    settled.map_err(|what| region.unsound(place, what))
}

// SAFETY: the lock is at rest, and the data is validated.
unsafe impl<T: Validate, P: DataState + AtRest + Shareable> Validate for Mutex<T, P> {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the caller's place, and the parts of it.
        unsafe {
            let (lock, data) = Self::parts_of(place);
            at_rest(lock, region)?;
            T::validate(data, region)
        }
    }
}

/// The lock, and then its data.
unsafe fn with_data<L: WithData<Data: Validate>>(
    place: NonNull<L>,
    region: &mut Validator<'_>,
) -> Result<(), Unsound> {
    // SAFETY: the caller's place, and a part of it.
    unsafe {
        let data = L::settle(place).map_err(|what| region.unsound(place, what))?;
        L::Data::validate(data, region)
    }
}

// SAFETY: the lock is at rest, and the data is validated.
unsafe impl<T: Validate, P: Preference> Validate for RwLock<T, Shared, P, Uncounted> {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the caller's place.
        unsafe { with_data(place, region) }
    }
}

macro_rules! robust_rwlocks {
    ($($kind:ty),*) => {$(
        // SAFETY: the lock is at rest, and the data is validated.
        unsafe impl<T: Validate, const READERS: usize, C: Counting<rwlock::Event>> Validate
            for RobustRwLock<T, READERS, C, $kind>
        {
            unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
                // SAFETY: the caller's place.
                unsafe { with_data(place, region) }
            }
        }
    )*};
}
robust_rwlocks!(InRegion, Robust);

// SAFETY: it is replaced by one without waiters, which is what a death of all of them leaves.
unsafe impl Validate for Condvar<Shared> {
    unsafe fn validate(place: NonNull<Self>, _: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the caller's place; what is there is nothing that had to be dropped.
        unsafe { place.write(Self::new_in()) };
        Ok(())
    }
}

macro_rules! alone {
    ($($primitive:ty),* $(,)?) => {$(
        // SAFETY: it is made one at rest.
        unsafe impl Validate for $primitive {
            unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
                // SAFETY: the caller's place.
                unsafe { at_rest(place, region) }
            }
        }
    )*};
}
alone!(
    Barrier<Shared>,
    Completion<Shared>,
    Once,
    RegionOnce,
    Spin,
    WaitWake<Shared>
);

// SAFETY: it is made one at rest.
unsafe impl<P: crate::mutex::RegionProtocol> Validate for InRegion<P> {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the caller's place.
        unsafe { at_rest(place, region) }
    }
}
