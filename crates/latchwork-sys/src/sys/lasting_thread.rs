//! Threads of the library's own, which last until their process ends.
//!
//! Made by libc, not by a bare clone: such a thread takes part in `setuid` and its like, which libc makes each thread
//! do, and would otherwise keep the old user. The signal for that is the only one that the thread does not block.
//!
//! *A process that waits for its last thread* (its first one has called `pthread_exit`) waits for such a thread, too, and
//! does not end by itself.
#![allow(unsafe_code)]

use super::signals;
use core::ffi::c_void;
use core::mem::MaybeUninit;

/// Enough for a loop of a few calls, beside libc's own data at the end of each stack.
const STACK: usize = 256 << 10;

/// The function of such a thread.
pub type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a thread that runs `body` on a small stack, with all signals blocked. Returns whether it could be made.
///
/// # Safety
/// `body` may be called with `argument` in another thread, at any time from now on.
pub unsafe fn start(body: Body, argument: *mut c_void) -> bool {
    let before = signals::block_all();
    // The second try is for a program whose thread-local variables leave no room on the small stack.
    // SAFETY: by the caller's contract; a try that fails has called nothing.
    let made =
        unsafe { start_with(Some(STACK), body, argument) || start_with(None, body, argument) };
    signals::restore(before);
    made
}

/// # Safety
/// As for [`start`].
unsafe fn start_with(stack: Option<usize>, body: Body, argument: *mut c_void) -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let at = attributes.as_mut_ptr();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are initialised before they are used, and destroyed once; by the caller's contract.
    unsafe {
        if libc::pthread_attr_init(at) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(at, libc::PTHREAD_CREATE_DETACHED);
        if let Some(bytes) = stack {
            libc::pthread_attr_setstacksize(at, bytes);
        }
        let made = libc::pthread_create(thread.as_mut_ptr(), at, body, argument) == 0;
        libc::pthread_attr_destroy(at);
        made
    }
}
