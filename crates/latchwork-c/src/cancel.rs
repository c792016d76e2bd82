//! Cancellation is disabled while Rust code runs: no Rust frame may be unwound, and the code opens files, for example,
//! which libc treats as a cancellation point.
#![allow(unsafe_code)]

use core::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}
const CANCEL_ENABLE: c_int = 0;
const CANCEL_DISABLE: c_int = 1;

/// Disables cancellation of the calling thread while it lives.
pub(crate) struct Undisturbed {
    before: c_int,
}

impl Undisturbed {
    pub(crate) fn begin() -> Self {
        let mut before = CANCEL_DISABLE;
        // SAFETY: the second argument points to a local variable.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }

    /// Whether the thread could be cancelled before.
    pub(crate) fn was_cancellable(&self) -> bool {
        self.before == CANCEL_ENABLE
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: a null pointer means that the old state is not returned. This call does not act on a cancellation
        // request, unless the thread has asynchronous cancellation enabled, and then it must not call the library.
        unsafe { pthread_setcancelstate(self.before, core::ptr::null_mut()) };
    }
}
