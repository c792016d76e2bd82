//! libc's error numbers.
#![allow(unsafe_code)]

use rustix::io::Errno;

/// The number of an error that the standard library returned.
pub(super) fn number(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The calling thread's `errno`.
#[cold]
pub(super) fn last_error() -> Errno {
    number(&std::io::Error::last_os_error())
}

/// The result of a call that returns a negative number on failure.
pub(super) fn answer(returned: impl Into<i64>) -> Result<i64, Errno> {
    let returned = returned.into();
    if returned < 0 {
        Err(last_error())
    } else {
        Ok(returned)
    }
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

/// The name of an error number that reports a wrong call.
pub const fn error_name(error: i32) -> &'static str {
    match error {
        libc::EINVAL => "EINVAL",
        libc::EPERM => "EPERM",
        libc::EDEADLK => "EDEADLK",
        _ => "an error",
    }
}
