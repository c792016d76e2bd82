//! Errors of C functions, and of contestants.

use std::fmt::Display;
use std::io;

use libc::c_int;

/// Converts the result of a call that returns an errno, like pthread's.
pub(super) fn errno(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Converts the result of a call that returns -1 and sets errno.
pub(super) fn cvt(code: c_int) -> io::Result<c_int> {
    match code {
        -1 => Err(io::Error::last_os_error()),
        code => Ok(code),
    }
}

/// Panics for a contestant that failed although it had been checked.
#[cold]
pub(super) fn broken(error: &dyn Display) -> ! {
    panic!("a contestant failed: {error}")
}
