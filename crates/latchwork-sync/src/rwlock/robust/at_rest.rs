//! Robust reader/writer locks in memory that no task uses: see `mutex/at_rest.rs`.
#![allow(unsafe_code)]

use super::RobustRwLock;
use crate::mutex::at_rest::AtRest;
use crate::mutex::{DataState, InRegion, Robust};
use crate::rwlock::at_rest::WithData;
use crate::rwlock::{Counting, Event};
use core::ptr::NonNull;

macro_rules! of_parts {
    ($($kind:ty),*) => {$(
        // SAFETY: `data` is the field of that name; `UnsafeCell` and `ManuallyDrop` have the layout of what they contain.
        unsafe impl<T, const READERS: usize, C: Counting<Event>> WithData for RobustRwLock<T, READERS, C, $kind>
        {
            type Data = T;

            unsafe fn settle(place: NonNull<Self>) -> Result<NonNull<T>, &'static str> {
                let lock = place.as_ptr();
                // SAFETY: two fields; the lock's own consists of atomics and numbers, of which every value is valid, and
                // nothing else uses it.
                let (raw, data) = unsafe { (&mut (*lock).raw, (&raw mut (*lock).data).cast()) };
                raw.gate.put_to_rest()?;
                for seat in &mut raw.seats {
                    seat.0.put_to_rest()?;
                }
                if raw.is_torn() && raw.gate.is_whole() {
                    return Err("a reader/writer lock has a writer inside who does not hold its gate");
                }
                // SAFETY: a field is not null.
                Ok(unsafe { NonNull::new_unchecked(data) })
            }
        }
    )*};
}
of_parts!(Robust, InRegion);
