//! Plain values, arrays and tuples.
#![allow(unsafe_code)]

use super::{Unsound, Validate, Validator};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic as a;

macro_rules! any_bytes {
    ($($ty:ty),* $(,)?) => {$(
        // SAFETY: every bit pattern is a value, and there is no pointer.
        unsafe impl Validate for $ty {
            #[inline(always)]
            unsafe fn validate(_: NonNull<Self>, _: &mut Validator<'_>) -> Result<(), Unsound> {
                Ok(())
            }
        }
    )*};
}
any_bytes!(
    (),
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    a::AtomicU8,
    a::AtomicU16,
    a::AtomicU32,
    a::AtomicUsize,
    a::AtomicI8,
    a::AtomicI16,
    a::AtomicI32,
    a::AtomicI64,
    a::AtomicIsize,
);

// SAFETY: every bit pattern is a value, and there is no pointer.
unsafe impl Validate for a::AtomicU64 {
    #[inline]
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        region.meet_cell(place.addr().get());
        Ok(())
    }
}

macro_rules! one_byte_of_two {
    ($($ty:ty),*) => {$(
        // SAFETY: the byte is 0 or 1.
        unsafe impl Validate for $ty {
            #[inline]
            unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
                // SAFETY: a byte of the place.
                match unsafe { place.cast::<u8>().read() } {
                    0 | 1 => Ok(()),
                    _ => Err(region.unsound(place, "a bool is neither true nor false")),
                }
            }
        }
    )*};
}
one_byte_of_two!(bool, a::AtomicBool);

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

macro_rules! tuples {
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
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
