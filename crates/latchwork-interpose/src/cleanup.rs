//! Calls in which a thread may be cancelled, and what is to be done then.
//!
//! By a cleanup of the old kind, which is a link in a list of glibc's: the new kind needs `setjmp`.
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

/// Makes a call, and `routine` another one with `argument` if the thread ends in it by unwinding.
///
/// # Safety
/// `call` has nothing to drop, nor has who calls this; `routine` may be called with `argument` as long as this lasts.
#[inline(always)]
pub unsafe fn or_if_cancelled<R: Copy>(
    routine: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    call: impl FnOnce() -> R + Copy,
) -> R {
    let mut cleanup = MaybeUninit::<Cleanup>::uninit();
    // SAFETY: it lives until the end of this function, where it leaves the list; the rest is the caller's.
    unsafe {
        _pthread_cleanup_push(cleanup.as_mut_ptr(), routine, argument);
        let result = call();
        _pthread_cleanup_pop(cleanup.as_mut_ptr(), 0);
        result
    }
}
