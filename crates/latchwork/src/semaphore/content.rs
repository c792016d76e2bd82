//! Validation of a semaphore by a checked attach: no task lives, so it has neither an owner nor waiters.
#![allow(unsafe_code)]

use super::object::{DELETED, DIED, key_of, owner_of};
use super::{BinarySemaphore, Core, CountingSemaphore, Kind, SimpleBinarySemaphore};
use crate::atomic::Ordering::Relaxed;
use crate::region::wait_record::LOWEST;
use crate::region::{Content, KnownContent, ReusedContent, Unsound, Validator};
use core::ptr::NonNull;

macro_rules! of_core {
    ($($semaphore:ident),*) => {$(
        // SAFETY: all words of the object are validated, and its list is the one of its handle.
        unsafe impl KnownContent for $semaphore<'_> {
            fn content() -> Content {
                <Core as ReusedContent>::content()
            }
        }
    )*};
}
of_core!(BinarySemaphore, CountingSemaphore, SimpleBinarySemaphore);

// SAFETY: it has no pointer that is followed, except to the next on its owner's list, and that is cleared.
unsafe impl ReusedContent for Core {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the caller's place, and every value of the words is valid.
        let core = unsafe { place.as_ref() };
        validate_core(core, region)?;
        if core.form().kind() == Kind::Mrsp || core.form().has_data() {
            return Err(region.unsound(place, "a semaphore is of another kind than its type"));
        }
        Ok(())
    }
}

/// Validates a semaphore of any kind, and settles what its dead owner and waiters left.
pub(crate) fn validate_core(core: &Core, region: &mut Validator<'_>) -> Result<(), Unsound> {
    let place = NonNull::from(core);
    core.lock.end_ownership();
    if !core.form().is_known() {
        return Err(region.unsound(place, "a semaphore is of no kind that there is"));
    }
    if core.ceiling.load(Relaxed) > LOWEST || core.in_force.load(Relaxed) > LOWEST {
        return Err(region.unsound(place, "a semaphore has a ceiling that is no priority"));
    }
    let kind = core.form().kind();
    let word = core.word.load(Relaxed);
    let rest = key_of(word) | word & DELETED;
    let settled = if kind.has_owner() {
        let died = owner_of(word) != 0 || word & DIED != 0;
        rest | if died { DIED } else { 0 }
    } else {
        if word >> 32 > u64::from(kind.most()) {
            return Err(region.unsound(place, "a semaphore has more units than it can have"));
        }
        rest | word >> 32 << 32
    };
    core.word.store(settled, Relaxed);
    for word in [&core.nest, &core.first, &core.last, &core.waiting] {
        word.store(0, Relaxed);
    }
    core.next_held.store(0, Relaxed);
    // Another number than the region's: the first task that takes the lock looks for waiters.
    let before = region.inner().deaths().wrapping_sub(1);
    core.recovered.store(before, Relaxed);
    Ok(())
}
