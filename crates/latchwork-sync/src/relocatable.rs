//! Which values may move although they are not `Unpin`.
#![allow(unsafe_code)]

#[cfg(not(loom))]
mod locks;

use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// A type whose values may move, although it may not be `Unpin`.
///
/// The containers of a region are not `Unpin`, so that safe code cannot copy a container in shared memory by
/// `mem::swap`: a kill in the middle of the copy would leave two owners of one buffer. Their addresses have no meaning,
/// though: they can be elements of a [`Vec`](../region/struct.Vec.html), which moves its elements when it grows, and
/// the data of a robust lock, which replaces data that a dead owner left torn. A robust lock can be neither: while it
/// is held, its address is on a list.
///
/// Numbers, arrays, tuples, `Option`s, containers and locks that are not robust are `Relocatable`.
/// `#[derive(Shareable)]` implements the trait for a type all of whose fields are.
///
/// # Safety
/// Nothing relies on the guarantees that `Pin` gives for a value of this type: while no reference to the value exists,
/// it may be moved by a copy of its bytes, even if it was pinned; and its memory may be overwritten without a call of
/// its `Drop`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` must stay where it is",
    label = "not `Relocatable`",
    note = "a `Vec` moves its elements, and a robust lock must not move: keep values with robust locks in a `List` or a `HashMap`",
    note = "#[derive(Shareable)] implements `Relocatable` if all fields are `Relocatable`"
)]
pub unsafe trait Relocatable {
    /// Whether [`Self::settle`] does anything.
    #[doc(hidden)]
    const SETTLES: bool = false;

    /// Ends what holds only at the value's address: an undo log rolls back. A container does this before it moves a
    /// value. An enum does nothing: the value may be torn, and a torn tag must not be read.
    ///
    /// # Safety
    /// The caller has exclusive access to a value at this place, which may be torn if the type is `TornSafe`, or if it
    /// is the data of a lock.
    #[doc(hidden)]
    unsafe fn settle(_place: *mut Self) {}

    /// For the derive of `Shareable`: the same, for a field.
    ///
    /// # Safety
    /// As for [`Self::settle`].
    #[doc(hidden)]
    unsafe fn settle_part(place: NonNull<u8>)
    where
        Self: Sized,
    {
        // SAFETY: the caller guarantees it.
        unsafe { Self::settle(place.cast().as_ptr()) }
    }
}

macro_rules! relocatable_numbers {
    ($($ty:ty),* $(,)?) => {$(
        // SAFETY: a number without an address.
        unsafe impl Relocatable for $ty {}
    )*};
}
relocatable_numbers!(char, str);
crate::torn_safe::each_number!(relocatable_numbers);

// SAFETY: a slice's parts are its elements.
unsafe impl<T: Relocatable> Relocatable for [T] {
    const SETTLES: bool = T::SETTLES;
    unsafe fn settle(place: *mut Self) {
        if T::SETTLES {
            for index in 0..place.len() {
                // SAFETY: an element of the place.
                unsafe { T::settle(place.cast::<T>().add(index)) };
            }
        }
    }
}
// SAFETY: an array's parts are its elements.
unsafe impl<T: Relocatable, const N: usize> Relocatable for [T; N] {
    const SETTLES: bool = T::SETTLES;
    unsafe fn settle(place: *mut Self) {
        // SAFETY: the caller guarantees it.
        unsafe { <[T]>::settle(place) };
    }
}
// SAFETY: the content is the only part.
unsafe impl<T: Relocatable> Relocatable for Option<T> {}
// SAFETY: the content is the only part.
unsafe impl<T: Relocatable> Relocatable for MaybeUninit<T> {}

/// Declares locks that may move while no task uses them; each mutex is declared where it is defined.
#[cfg(not(loom))]
macro_rules! relocatable_locks {
    ($($lock:ident),*) => {$(
        // SAFETY: a word, whose address means something only while a task uses it by reference.
        #[allow(unsafe_code)]
        unsafe impl<S: $crate::sharing::Sharing> $crate::relocatable::Relocatable for $lock<S> {}
    )*};
}
#[cfg(not(loom))]
pub(crate) use relocatable_locks;

macro_rules! relocatable_tuples {
    ($($name:ident $part:ident)*) => {
        // SAFETY: all parts are Relocatable.
        unsafe impl<$($name: Relocatable),*> Relocatable for ($($name,)*) {
            const SETTLES: bool = false $(|| $name::SETTLES)*;
            unsafe fn settle(place: *mut Self) {
                if Self::SETTLES {
                    // SAFETY: each is a part of the place.
                    unsafe {
                        let ($(ref mut $part,)*) = *place;
                        $($name::settle($part);)*
                    }
                }
            }
        }
    };
}
crate::torn_safe::each_tuple!(relocatable_tuples);

/// For the derive of `TornSafe`: what a field that is not pinned must be, namely `Unpin`.
///
/// # Safety
/// The type is `Unpin`. (A bound that says so would have the compiler report `PhantomPinned` instead of the container.)
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a container, or has one in it: mark the field with #[pin] and derive PinnedFields",
    label = "this field needs #[pin]",
    note = "safe code could copy a container that is not pinned, and a kill in the middle would leave two owners of its memory"
)]
pub unsafe trait NoContainer {}

// SAFETY: the bound.
#[diagnostic::do_not_recommend]
unsafe impl<T: Unpin + ?Sized> NoContainer for T {}

/// For the derive of `TornSafe`: what a struct with pinned fields must be.
///
/// # Safety
/// Only the derive of `PinnedFields` implements it. The struct is `Unpin` only if all its pinned fields are.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has fields with #[pin]: derive PinnedFields, too",
    label = "derives TornSafe, but not PinnedFields"
)]
pub unsafe trait PinsFields {}
