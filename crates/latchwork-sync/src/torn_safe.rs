//! What a robust lock may hand on as its dead owner left it.
#![allow(unsafe_code)]

use crate::atomic::{Ordering, compiler_fence};
use core::mem::MaybeUninit;

/// A type that stays valid when its writer stops between any two instructions.
///
/// A robust mutex passes such data unchanged to the successor of a dead owner. The value may be partly updated, but
/// reading it is not undefined behaviour, so the successor can check and repair it. Numbers, structs of numbers and
/// this crate's containers, which commit each change by one store, qualify. Derive the trait for structs of such
/// fields.
///
/// A container is `TornSafe` because only its own methods change it. It is not `Unpin`, and a robust lock lends data
/// that is not `Unpin` as a `Pin<&mut T>` only. So safe code cannot copy a container in shared memory, by `mem::swap`,
/// `mem::replace` or a sort: a kill in the middle would leave two owners of its memory. It can assign a new container,
/// by [`Pin::set`](core::pin::Pin::set): the old one gives up its memory first. (If the task is killed in the
/// assignment, the container may be empty and belong to no region: its methods return
/// `StorageError::NotMapped` until another one is assigned.)
///
/// # Safety
/// Every combination of old and new bytes that an interrupted sequence of stores can leave is a valid value; so is
/// every combination of a value's bytes with zeros. For a type that is not `Unpin`: every combination that safe code
/// with a `Pin<&mut Self>` can leave, where stores of whole aligned words are not interrupted.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may be invalid when its owner died in the middle of a change",
    label = "not `TornSafe`",
    note = "use `OwnerDied::replace`, or #[derive(TornSafe)] for a struct of plain data"
)]
pub unsafe trait TornSafe {}

/// Calls a macro with all plain types that are [`TornSafe`].
#[doc(hidden)]
#[macro_export]
macro_rules! each_number {
    ($macro:ident) => {
        $macro!(
            (),
            bool,
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
            core::sync::atomic::AtomicBool,
            core::sync::atomic::AtomicU8,
            core::sync::atomic::AtomicU16,
            core::sync::atomic::AtomicU32,
            core::sync::atomic::AtomicU64,
            core::sync::atomic::AtomicUsize,
            core::sync::atomic::AtomicI8,
            core::sync::atomic::AtomicI16,
            core::sync::atomic::AtomicI32,
            core::sync::atomic::AtomicI64,
            core::sync::atomic::AtomicIsize,
        );
    };
}
#[doc(hidden)]
pub use crate::each_number;

/// Calls a macro with the types and the names of each tuple's parts.
macro_rules! each_tuple {
    ($macro:ident) => {
        $macro!(A a);
        $macro!(A a B b);
        $macro!(A a B b C c);
        $macro!(A a B b C c D d);
        $macro!(A a B b C c D d E e);
        $macro!(A a B b C c D d E e F f);
        $macro!(A a B b C c D d E e F f G g);
        $macro!(A a B b C c D d E e F f G g H h);
    };
}
pub(crate) use each_tuple;

macro_rules! torn_safe {
    ($($ty:ty),* $(,)?) => {$(
        // SAFETY: every bit pattern is valid, or the value is one byte and cannot be torn.
        unsafe impl TornSafe for $ty {}
    )*};
}
each_number!(torn_safe);

// SAFETY: an array's parts are its elements.
unsafe impl<T: TornSafe, const N: usize> TornSafe for [T; N] {}

macro_rules! tuples {
    ($($name:ident $part:ident)*) => {
        // SAFETY: no part's validity depends on another's.
        unsafe impl<$($name: TornSafe),*> TornSafe for ($($name,)*) {}
    };
}
each_tuple!(tuples);

// SAFETY: no byte has a meaning.
unsafe impl<T> TornSafe for MaybeUninit<T> {}

/// Writes a value in place of torn data, which is not dropped. The place is zeroed first: a kill in between leaves
/// no mixture of the torn data with the new.
///
/// # Safety
/// As for [`ptr::write`](core::ptr::write).
pub unsafe fn overwrite<T>(place: *mut T, value: T) {
    // SAFETY: the caller guarantees that the place may be written; any bytes are a `MaybeUninit`. Volatile: the bytes
    // are stored although others follow.
    unsafe {
        place
            .cast::<MaybeUninit<T>>()
            .write_volatile(MaybeUninit::zeroed());
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { place.write(value) };
}
