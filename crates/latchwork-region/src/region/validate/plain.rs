//! Plain values, arrays and tuples.
#![allow(unsafe_code)]

use super::{Unsound, Validate, Validator};
use crate::atomic::{AtomicBool, AtomicU64};
use core::any::TypeId;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Validates a number or an atomic, or a `bool`, which has fewer values than bit patterns.
#[inline(always)]
fn number<T: 'static>(place: NonNull<T>, region: &mut Validator<'_>) -> Result<(), Unsound> {
    let is = |other| TypeId::of::<T>() == other;
    if is(TypeId::of::<AtomicU64>()) {
        region.meet_cell(place.addr().get());
    }
    if is(TypeId::of::<bool>()) || is(TypeId::of::<AtomicBool>()) {
        // SAFETY: a byte of the place.
        if unsafe { place.cast::<u8>().read() } > 1 {
            return Err(region.unsound(place, "a bool is neither true nor false"));
        }
    }
    Ok(())
}

macro_rules! numbers {
    ($($ty:ty),* $(,)?) => {$(
        // SAFETY: there is no pointer, and every bit pattern is a value, except of a `bool`.
        unsafe impl Validate for $ty {
            #[inline(always)]
            unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
                number(place, region)
            }
        }
    )*};
}
crate::torn_safe::each_number!(numbers);

// SAFETY: the number is a character's.
unsafe impl Validate for char {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: four aligned bytes of the place.
        let number = unsafe { place.cast::<u32>().read() };
        char::from_u32(number)
            .map(drop)
            .ok_or_else(|| region.unsound(place, "a character has a number that there is not"))
    }
}

// SAFETY: the content need not be valid.
unsafe impl<T: super::Shareable> Validate for MaybeUninit<T> {
    unsafe fn validate(_: NonNull<Self>, _: &mut Validator<'_>) -> Result<(), Unsound> {
        Ok(())
    }
}

// SAFETY: each element is validated.
unsafe impl<T: Validate, const N: usize> Validate for [T; N] {
    #[inline]
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        (0..N).try_for_each(|index| {
            // SAFETY: an element of the array.
            unsafe { T::validate(place.cast::<T>().add(index), region) }
        })
    }
}

macro_rules! each_part {
    ($($name:ident $index:tt),*) => {
        // SAFETY: each part is validated.
        unsafe impl<$($name: Validate),*> Validate for ($($name,)*) {
            unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
                // SAFETY: a part of the tuple.
                $(unsafe {
                    let part = NonNull::new_unchecked(&raw mut (*place.as_ptr()).$index);
                    <$name as Validate>::validate(part, region)?;
                })*
                Ok(())
            }
        }
    };
}
each_part!(A 0);
each_part!(A 0, B 1);
each_part!(A 0, B 1, C 2);
each_part!(A 0, B 1, C 2, D 3);
each_part!(A 0, B 1, C 2, D 3, E 4);
each_part!(A 0, B 1, C 2, D 3, E 4, F 5);
each_part!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
each_part!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
