//! `errno`, which a lock call does not change.
#![allow(unsafe_code)]

/// Preserves `errno` around `body`: a lock call returns its error as its result.
#[inline(always)]
pub fn keeping_errno<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: glibc returns a valid pointer to the calling thread's `errno`.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = body();
        *errno = before;
        result
    }
}
