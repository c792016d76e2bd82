//! Validation of a priority mutex by a checked attach.
#![allow(unsafe_code)]

use super::handle::PriorityMutex;
use super::shared::{Head, Shared};
use crate::atomic::Ordering::Relaxed;
use crate::region::{Content, KnownContent, Unsound, Validate, Validator};
use crate::semaphore::content::validate_core;
use crate::semaphore::object::DELETED;
use core::ptr::NonNull;

// SAFETY: the word, the lock and the form are validated, and then the data.
unsafe impl<T: Validate> KnownContent for PriorityMutex<'_, T> {
    fn content() -> Content {
        Content {
            fingerprint: Shared::<T>::FINGERPRINT,
            reused: None,
            validate: |place, bytes, region| {
                let object = place.cast::<Shared<T>>();
                if bytes != size_of::<Shared<T>>() || !object.is_aligned() {
                    return Err(region.unsound(place, "its size or alignment is not its type's"));
                }
                // SAFETY: aligned, in a block of that size; no task lives.
                unsafe { validate(object, region) }
            },
        }
    }
}

/// # Safety
/// As for [`Validate::validate`].
unsafe fn validate<T: Validate>(
    object: NonNull<Shared<T>>,
    region: &mut Validator<'_>,
) -> Result<(), Unsound> {
    // SAFETY: the caller's place, and every value of the words is valid.
    let head = unsafe { object.cast::<Head>().as_ref() };
    if !Shared::<T>::is_sound_head(&head.core, head.mark) {
        return Err(region.unsound(object, "a priority mutex is of another kind than its type"));
    }
    validate_core(&head.core, region)?;
    if head.core.word.load(Relaxed) & DELETED != 0 {
        // No task gets at the data.
        return Ok(());
    }
    // SAFETY: a part of the caller's place. (`UnsafeCell` and `ManuallyDrop` have the layout of what they contain.)
    unsafe {
        let data = NonNull::new_unchecked(&raw mut (*object.as_ptr()).data);
        T::validate(data.cast(), region)
    }
}
