//! The words of containers and of the directory, under a lock: a change is one store, or a few stores in program order,
//! so that a kill leaves a state from which the next holder of the lock can continue.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU8, AtomicUsize, Ordering, compiler_fence};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

/// A store whose place in program order is kept: if a kill comes after it, all earlier stores are done; if a kill
/// comes before it, no later store is.
#[inline]
pub(super) fn commit(word: &AtomicUsize, value: usize) {
    compiler_fence(Ordering::SeqCst);
    // Relaxed: other tasks see it through the lock that protects the word.
    word.store(value, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Reads a word. Relaxed: the lock that protects it orders the read.
#[inline]
pub(super) fn read(word: &AtomicUsize) -> usize {
    word.load(Ordering::Relaxed)
}

/// The target of a word. The address is not validated.
#[inline]
pub(super) fn pointer<T>(address: usize) -> Option<NonNull<T>> {
    NonNull::new(ptr::with_exposed_provenance_mut(address))
}

/// The word that leads to a block.
#[inline]
pub(super) fn address<T>(block: NonNull<T>) -> usize {
    block.as_ptr().expose_provenance()
}

/// Text that is stored byte by byte.
pub(super) fn text(bytes: &[AtomicU8]) -> String {
    // Relaxed: a text read during a change is garbled, which is harmless.
    let bytes: Vec<u8> = bytes
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Drops a value in place and clears the bits of `part` in `stage` afterwards, even if the drop panics. After a kill
/// in between, the drop is repeated, which `TornSafe` allows: an interrupted drop leaves a valid value.
///
/// # Safety
/// `stage` says whether there is a value at `place`; no other task uses it.
pub(super) unsafe fn drop_part<T>(stage: &AtomicUsize, part: usize, place: *mut MaybeUninit<T>) {
    if read(stage) & part != 0 {
        let _clear = OnDrop(|| commit(stage, read(stage) & !part));
        // SAFETY: `stage` says that there is a value, and the caller guarantees that no other task uses it.
        unsafe { place.cast::<T>().drop_in_place() };
    }
}

/// Runs the function when it is dropped, also by a panic.
pub(super) struct OnDrop<F: FnMut()>(pub(super) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
