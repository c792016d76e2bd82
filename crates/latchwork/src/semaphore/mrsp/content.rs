//! Validation of a MrsP semaphore by a checked attach.
#![allow(unsafe_code)]

use super::handle::{MrspSemaphore, Shared};
use crate::region::{Content, KnownContent, ReusedContent, Unsound, Validator};
use crate::semaphore::Kind;
use crate::semaphore::content::validate_core;
use core::ptr::NonNull;

// SAFETY: all words of the object are validated, and its list is the one of its handle.
unsafe impl KnownContent for MrspSemaphore<'_> {
    fn content() -> Content {
        <Shared as ReusedContent>::content()
    }
}

// SAFETY: as for other semaphores; the ceilings are numbers.
unsafe impl ReusedContent for Shared {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the caller's place, and every value of the words is valid.
        let core = unsafe { &place.as_ref().core };
        validate_core(core, region)?;
        if core.key().is_some() && core.form().kind() != Kind::Mrsp {
            return Err(region.unsound(place, "a semaphore is of another kind than its type"));
        }
        Ok(())
    }
}
