//! glibc's mutexes and condition variables, as far as both interposers treat them alike.

use core::ffi::c_int;

/// The bits of a mutex's `__kind` in glibc; bits above [`ALL`](kind::ALL) record elision.
pub mod kind {
    /// The low bits: 0 normal, 1 recursive, 2 error-checking, 3 adaptive.
    pub const TYPE: u32 = 3;
    /// Its holder may lock it again.
    pub const RECURSIVE: u32 = 1;
    /// It returns an error where other types hang.
    pub const ERROR_CHECK: u32 = 2;
    /// It reports owner death.
    pub const ROBUST: u32 = 16;
    /// Its owner inherits the priority of its waiters.
    pub const INHERIT: u32 = 32;
    /// It has a ceiling.
    pub const PROTECT: u32 = 64;
    /// Processes share it.
    pub const SHARED: u32 = 128;
    /// All bits that say which protocol it has; and, as a kind, that it was destroyed.
    pub const ALL: u32 = 0xff;
}

/// The result of a C11 function for an error number.
#[must_use]
pub const fn to_c11(error: c_int) -> c_int {
    const SUCCESS: c_int = 0;
    const BUSY: c_int = 1;
    const ERROR: c_int = 2;
    const NO_MEMORY: c_int = 3;
    const TIMED_OUT: c_int = 4;
    match error {
        0 => SUCCESS,
        libc::EBUSY => BUSY,
        libc::ENOMEM => NO_MEMORY,
        libc::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

/// As [`real!`](crate::real), with the functions that both interposers replace, for the interposer's own types of mutex
/// and condition variable.
#[macro_export]
macro_rules! real_mutexes {
    (($mutex:ty, $cond:ty) $($more:tt)*) => {
        $crate::real! {
            "C" fn pthread_mutex_init(mutex: *mut $mutex, attributes: *const ::core::ffi::c_void) -> ::core::ffi::c_int;
            "C" fn pthread_mutex_destroy(mutex: *mut $mutex) -> ::core::ffi::c_int;
            "C" fn pthread_mutex_lock(mutex: *mut $mutex) -> ::core::ffi::c_int;
            "C" fn pthread_mutex_trylock(mutex: *mut $mutex) -> ::core::ffi::c_int;
            "C" fn pthread_mutex_timedlock(mutex: *mut $mutex, until: *const $crate::libc::timespec) -> ::core::ffi::c_int;
            "C" fn pthread_mutex_clocklock(
                mutex: *mut $mutex, clock: $crate::libc::clockid_t, until: *const $crate::libc::timespec
            ) -> ::core::ffi::c_int;
            "C" fn pthread_mutex_unlock(mutex: *mut $mutex) -> ::core::ffi::c_int;
            "C" fn mtx_init(mutex: *mut $mutex, kind: ::core::ffi::c_int) -> ::core::ffi::c_int;
            "C" fn pthread_cond_init(cond: *mut $cond, attributes: *const ::core::ffi::c_void) -> ::core::ffi::c_int;
            "C" fn pthread_cond_destroy(cond: *mut $cond) -> ::core::ffi::c_int;
            "C-unwind" fn pthread_cond_wait(cond: *mut $cond, mutex: *mut $mutex) -> ::core::ffi::c_int;
            "C-unwind" fn pthread_cond_timedwait(
                cond: *mut $cond, mutex: *mut $mutex, until: *const $crate::libc::timespec
            ) -> ::core::ffi::c_int;
            "C-unwind" fn pthread_cond_clockwait(
                cond: *mut $cond, mutex: *mut $mutex, clock: $crate::libc::clockid_t, until: *const $crate::libc::timespec
            ) -> ::core::ffi::c_int;
            $($more)*
        }
    };
}
