//! The lock calls of a robust, process-shared mutex: see the argument in [`heal`](crate::heal).

use super::naps;
use super::report::count_healed;
use crate::clock::Until;
use crate::memory::Mutex;
use core::ffi::c_int;
use core::sync::atomic::Ordering;

/// Rules 1 and 2.
///
/// # Safety
/// As for `pthread_mutex_lock`.
#[inline(never)]
pub(super) unsafe fn lock(
    mutex: *mut Mutex,
    until: Option<Until>,
    pass: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: by the caller's contract.
    let result = unsafe { naps::lock(mutex, until, pass, || None) };
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    taken(unsafe { &*mutex }, result)
}

/// Rule 1: the caller holds the mutex if `result` says so, and now holds it with the waiters bit.
pub(super) fn taken(mutex: &Mutex, result: c_int) -> c_int {
    if matches!(result, 0 | libc::EOWNERDEAD) {
        mutex.word.fetch_or(libc::FUTEX_WAITERS, Ordering::Relaxed);
        count_healed(mutex);
    }
    result
}
