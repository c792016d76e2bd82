//! Reader/writer locks in memory that no task uses: see `mutex/at_rest.rs`.
#![allow(unsafe_code)]

use super::{Preference, RwLock, Uncounted};
use crate::sharing::Shared;
use core::ptr::NonNull;

/// A lock with data whose own words a checked attach can make sound, apart from the data.
///
/// # Safety
/// `settle` returns the place of the data.
#[doc(hidden)]
pub unsafe trait WithData {
    /// Makes the lock one that no task holds or waits for, and returns the place of its data.
    ///
    /// # Safety
    /// The place is aligned, mapped, and used by nothing else; its bytes may be anything.
    ///
    /// # Errors
    /// What is wrong with the lock.
    unsafe fn settle(place: NonNull<Self>) -> Result<NonNull<Self::Data>, &'static str>;
    /// What the lock protects.
    type Data;
}

// SAFETY: `data` is the field of that name; `UnsafeCell` has the layout of what it contains.
unsafe impl<T, P: Preference> WithData for RwLock<T, Shared, P, Uncounted> {
    type Data = T;

    unsafe fn settle(place: NonNull<Self>) -> Result<NonNull<T>, &'static str> {
        let lock = place.as_ptr();
        // SAFETY: two fields; the lock's own is an atomic, of which every value is valid, and nothing else uses it.
        let (raw, data) = unsafe { (&mut (*lock).raw, (&raw mut (*lock).data).cast()) };
        if !raw.put_to_rest() {
            return Err(
                "a reader/writer lock that is not robust is held, and no task lives that would release it",
            );
        }
        // SAFETY: a field is not null.
        Ok(unsafe { NonNull::new_unchecked(data) })
    }
}
