//! Validation of an array by a checked attach.
#![allow(unsafe_code)]

use super::super::container::Anchor;
use super::super::{Unsound, Validate, Validator};
use super::{Head, Vec};
use crate::atomic::Ordering::Relaxed;
use core::alloc::Layout;
use core::ptr::NonNull;

// SAFETY: the buffer is claimed and has room for the elements, each of which is validated.
unsafe impl<T: Validate> Validate for Vec<T> {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the container begins with its anchor.
        let address = unsafe { Anchor::validate(place.cast(), region)? };
        if address == 0 {
            return Ok(());
        }
        let align = align_of::<Head>().max(align_of::<T>());
        let least = Layout::new::<Head>().align_to(align);
        let least = least.map_err(|_| region.unsound(place, "its alignment is out of range"))?;
        let buffer = region.claim(place, address, least)?;
        // SAFETY: the block has room for a head, of which every value is valid.
        let head: &Head = unsafe { buffer.cast().as_ref() };
        let is_there = Self::layout(head.capacity)
            .is_some_and(|layout| region.has_room(buffer, layout.size()));
        if !is_there {
            return Err(region.unsound(buffer, "an array has no room for its capacity"));
        }
        let state = head.state.load(Relaxed);
        let (len, hole) = (
            (state & u64::from(u32::MAX)) as usize,
            (state >> 32) as usize,
        );
        if len > head.capacity || hole > len {
            return Err(region.unsound(buffer, "an array is longer than its capacity"));
        }
        // SAFETY: every value of the container's own words is valid, and no task uses it.
        let vec = unsafe { &mut *place.as_ptr() };
        if hole != 0 {
            // The copy of an element that a dead task was making: it is finished here, before both places are looked at.
            vec.fill_hole();
        }
        // All elements without a size are in one place.
        let count = if size_of::<T>() == 0 {
            vec.count().min(1)
        } else {
            vec.count()
        };
        (0..count).try_for_each(|index| {
            // SAFETY: below the length, which is within the capacity, for which there is room.
            unsafe { T::validate(vec.first().add(index), region) }
        })
    }
}
