//! `errno`, which a lock call leaves alone.
#![allow(unsafe_code)]

/// Keeps `errno` as it is around `body`: a lock call says what it has to say in its result.
#[inline(always)]
pub fn keeping_errno<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: the calling thread's.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = body();
        *errno = before;
        result
    }
}
