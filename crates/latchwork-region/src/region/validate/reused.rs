//! Objects of the crates above whose memory is used again: queues, rings and semaphores.
#![allow(unsafe_code)]

use super::super::objects::Reused;
use super::{Content, Unsound, Validator};
use core::ptr::NonNull;

/// How such an object is validated, also one that has ended.
///
/// # Safety
/// As for [`Validate`](super::Validate).
#[doc(hidden)]
pub unsafe trait ReusedContent: Reused {
    /// See [`Validate::validate`](super::Validate::validate).
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound>;

    /// The kind, for [`KnownContent`](super::KnownContent).
    #[must_use]
    fn content() -> Content {
        Content {
            fingerprint: Self::FINGERPRINT,
            reused: Some((Self::KIND, size_of::<Self>())),
            validate: |place, bytes, region| {
                let object = place.cast::<Self>();
                if bytes != size_of::<Self>() || !object.is_aligned() {
                    return Err(region.unsound(place, "its size or alignment is not its type's"));
                }
                // SAFETY: aligned, in a block of that size; no task lives.
                unsafe { Self::validate(object, region) }
            },
        }
    }
}
