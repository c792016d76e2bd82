//! Locks in memory that no task uses: what a checked attach of a region makes of their words.
//!
//! No task of the region lives, so no lock has an owner that will release it. But a word may name one: a task that died,
//! or, in a file that somebody has written into, one that lives somewhere else or is still to come. A robust lock is
//! therefore left free; if its word named an owner, or its data was not whole, the next owner gets the report of a death.
//! A lock that is not robust cannot report; if it is held, it stays so for ever, and is refused.
#![allow(unsafe_code)]

use super::{DataState, Mutex, RawLock, WaitWake};
use crate::sharing::Shared;
use crate::spin::Spin;
use core::ptr::NonNull;

/// A lock of whose words a checked attach can make a sound state.
#[doc(hidden)]
pub trait AtRest: sealed::Sealed {
    /// Makes the lock one that no task holds or waits for.
    ///
    /// # Errors
    /// What is wrong with it.
    fn put_to_rest(&mut self) -> Result<(), &'static str>;
}

pub(crate) mod sealed {
    /// Locks of this crate, of whose words every value is valid.
    pub trait Sealed {}
}

/// Refuses a lock that is held.
fn is_free<L: RawLock>(lock: &L) -> Result<(), &'static str> {
    if !lock.try_lock() {
        return Err("a lock that is not robust is held, and no task lives that would release it");
    }
    // SAFETY: acquired just now.
    unsafe { lock.unlock() };
    Ok(())
}

macro_rules! not_robust {
    ($($lock:ty),*) => {$(
        impl sealed::Sealed for $lock {}
        impl AtRest for $lock {
            fn put_to_rest(&mut self) -> Result<(), &'static str> {
                is_free(self)
            }
        }
    )*};
}
not_robust!(WaitWake<Shared>, Spin);

impl<T, P: DataState> Mutex<T, P> {
    /// The lock of a mutex that no other task uses.
    pub(crate) fn raw_mut(&mut self) -> &mut P {
        &mut self.raw
    }

    /// The lock and the data of a mutex whose bytes may be anything.
    ///
    /// # Safety
    /// The place is in memory that is mapped, and aligned.
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn parts_of(place: NonNull<Self>) -> (NonNull<P>, NonNull<T>) {
        let place = place.as_ptr();
        // SAFETY: two fields of the mutex. (`UnsafeCell` and `ManuallyDrop` have the layout of what they contain.)
        unsafe {
            let data = (&raw mut (*place).data).cast();
            (
                NonNull::new_unchecked(&raw mut (*place).raw),
                NonNull::new_unchecked(data),
            )
        }
    }
}
