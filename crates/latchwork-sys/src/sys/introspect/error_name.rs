//! Names of error numbers.

/// The name of an error number that reports a wrong call.
pub const fn error_name(error: i32) -> &'static str {
    match error {
        libc::EINVAL => "EINVAL",
        libc::EPERM => "EPERM",
        libc::EDEADLK => "EDEADLK",
        _ => "an error",
    }
}
