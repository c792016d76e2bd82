//! Validation of a ring by a checked attach.
#![allow(unsafe_code)]

use super::handle::{Head, Spsc, layout};
use crate::atomic::Ordering::Relaxed;
use crate::region::{Content, KnownContent, ReusedContent, Unsound, Validator};
use core::ptr::NonNull;

// SAFETY: all words of the object are validated, and its list is the one of its handle.
unsafe impl KnownContent for Spsc<'_> {
    fn content() -> Content {
        <Head as ReusedContent>::content()
    }
}

// SAFETY: the body is claimed, and has room for the ring.
unsafe impl ReusedContent for Head {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the caller's place, and every value of the head's words is valid.
        let head = unsafe { place.as_ref() };
        for claim in &head.claims {
            // Its task is dead, and one to come might have its number.
            claim.store(0, Relaxed);
        }
        head.ring.put_to_rest();
        let body = head.body.load(Relaxed);
        if body == 0 && !head.is_alive() {
            return Ok(());
        }
        let Some(layout) = layout(head.capacity(), head.max_message()) else {
            return Err(region.unsound(place, "a ring is too large"));
        };
        region.claim(NonNull::from(&head.body), body, layout)?;
        if head.is_alive() && head.ring.length() > head.capacity() {
            return Err(region.unsound(place, "a ring has more messages than it has room for"));
        }
        Ok(())
    }
}
