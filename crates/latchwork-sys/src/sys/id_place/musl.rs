//! Where musl keeps a thread's ID.
//!
//! musl describes its threads to no one. The word that the kernel clears is not the ID: it is the lock of the list of
//! threads. Words that follow the ID have small values by themselves (`errno`, the state by which threads are joined), so that
//! a search would be wrong for small IDs. So the place is that of musl's structure: after its first part, which musl
//! keeps the same because compilers rely on it, the ID is the first field (since musl 1.1.20, of 2018). A value there that is not the
//! calling thread's ID means another structure, and no place.

use core::ptr;

/// The pointers of the first part: the thread itself, its thread-local variables, two neighbours, the entry for
/// system calls, and the stack protector's value. Where thread-local variables lie above the thread, two of them are at its end.
const FIRST_PART: usize = if cfg!(target_arch = "x86_64") { 6 } else { 4 };

/// See [`super::place_of_id`].
pub(super) fn place_of_id() -> *mut u32 {
    let thread: *mut u32 = ptr::with_exposed_provenance_mut(super::super::thread::handle());
    let place = thread.wrapping_byte_add(FIRST_PART * size_of::<usize>());
    // SAFETY: each of musl's structures is longer than its first part, by which it begins.
    if unsafe { place.read_volatile() } == super::super::thread::thread_id() {
        place
    } else {
        ptr::null_mut()
    }
}

/// How far from the beginning of a thread the ID lies.
#[cfg(test)]
pub(super) fn described() -> Option<usize> {
    Some(FIRST_PART * size_of::<usize>())
}
