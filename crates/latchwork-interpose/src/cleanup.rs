//! Calls in which a thread may be cancelled, with a cleanup routine for that case.
//!
//! It uses a cleanup record of the old kind, a link in a list of glibc's, since the new kind needs `setjmp`.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

/// glibc's `_pthread_cleanup_buffer`.
#[repr(C)]
struct Cleanup {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    kind: c_int,
    previous: *mut Self,
}

unsafe extern "C" {
    fn _pthread_cleanup_push(
        cleanup: *mut Cleanup,
        routine: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(cleanup: *mut Cleanup, execute: c_int);
}

/// Makes a call, and calls `routine` with `argument` if the thread ends in it by unwinding.
///
/// # Safety
/// Neither `call` nor any caller up the stack has something to drop; `routine` may be called with `argument` until this
/// function returns.
#[inline(always)]
pub unsafe fn or_if_cancelled<R: Copy>(
    routine: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    call: impl FnOnce() -> R + Copy,
) -> R {
    let mut cleanup = MaybeUninit::<Cleanup>::uninit();
    // SAFETY: the cleanup record lives until the end of this function, where it leaves the list; the caller vouches for
    // the rest.
    unsafe {
        _pthread_cleanup_push(cleanup.as_mut_ptr(), routine, argument);
        let result = call();
        _pthread_cleanup_pop(cleanup.as_mut_ptr(), 0);
        result
    }
}
