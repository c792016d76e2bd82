//! The words of containers: each change of a container is one store to one of them.
#![allow(unsafe_code)]

use crate::atomic::{AtomicUsize, Ordering, compiler_fence};
use core::ptr::{self, NonNull};

/// A store whose place in program order is kept: if a kill comes after it, all earlier stores are done; if a kill
/// comes before it, no later store is.
#[inline]
pub(in crate::region) fn commit(word: &AtomicUsize, value: usize) {
    compiler_fence(Ordering::SeqCst);
    // Relaxed: other tasks see it through the lock that protects the container.
    word.store(value, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Reads a word of a container. Relaxed: the lock that protects the container orders it.
#[inline]
pub(in crate::region) fn read(word: &AtomicUsize) -> usize {
    word.load(Ordering::Relaxed)
}

/// The target of a word of a container.
#[inline]
pub(in crate::region) fn pointer<T>(address: usize) -> Option<NonNull<T>> {
    NonNull::new(ptr::with_exposed_provenance_mut(address))
}

/// The word that leads to a block.
#[inline]
pub(in crate::region) fn address<T>(block: NonNull<T>) -> usize {
    block.as_ptr().expose_provenance()
}

/// Drops a value in place and clears the bits of `part` in `stage` afterwards, even if the drop panics. After a kill
/// in between, the drop is repeated, which `TornSafe` allows: an interrupted drop leaves a valid value.
///
/// # Safety
/// `stage` says whether there is a value at `place`; no other task uses it.
pub(in crate::region) unsafe fn drop_part<T>(stage: &AtomicUsize, part: usize, place: *mut T) {
    struct Gone<'a>(&'a AtomicUsize, usize);
    impl Drop for Gone<'_> {
        fn drop(&mut self) {
            commit(self.0, read(self.0) & !self.1);
        }
    }
    if read(stage) & part != 0 {
        let _gone = Gone(stage, part);
        // SAFETY: `stage` says that there is a value, and the caller guarantees that no other task uses it.
        unsafe { place.drop_in_place() };
    }
}
