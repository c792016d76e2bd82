//! libc's error numbers.
#![allow(unsafe_code)]

use rustix::io::Errno;

/// The calling thread's `errno`.
#[cold]
pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The result of a call that returns 0 on success.
#[inline(always)]
pub(super) fn done(result: impl Into<i64>) -> Result<(), Errno> {
    if result.into() == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

/// Makes calls that preserve `errno`: a lock reports by its result alone.
#[inline(always)]
pub(super) fn keeping<R>(calls: impl FnOnce() -> R) -> R {
    // SAFETY: the address is that of the calling thread's `errno`.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = calls();
        *errno = before;
        result
    }
}
