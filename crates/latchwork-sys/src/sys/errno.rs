//! What libc says of the call that failed.
#![allow(unsafe_code)]

use rustix::io::Errno;

/// The calling thread's `errno`.
#[cold]
pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The outcome of a call that gives 0 if it has done what it was asked.
#[inline(always)]
pub(super) fn done(result: impl Into<i64>) -> Result<(), Errno> {
    if result.into() == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

/// Makes calls that leave `errno` as it was: a lock says in its answer what it has to say.
#[inline(always)]
pub(super) fn keeping<R>(calls: impl FnOnce() -> R) -> R {
    // SAFETY: the calling thread's.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = calls();
        *errno = before;
        result
    }
}
