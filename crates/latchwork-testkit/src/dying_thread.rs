//! A thread that dies alone, without its end in good order.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What the thread is to do, and what it did.
struct Work<B, R> {
    body: Option<B>,
    result: Option<std::thread::Result<R>>,
}

/// Runs `body` in a thread that then dies by the bare system call `exit`: no destructor of a thread-local runs, and no
/// function of a key, only the kernel hands on what the thread holds. Returns when the thread is dead.
///
/// So a lock that `body` forgets is a dead owner's. (After a thread that ends in good order it is its process's.)
///
/// # Panics
/// If the thread cannot be made; and as `body` does.
pub fn in_dying_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    let mut work = Work {
        body: Some(body),
        result: None,
    };
    let start = start_of(&work);
    let mut thread = MaybeUninit::uninit();
    // SAFETY: `work` lives until the thread is joined below, and only the thread uses it meanwhile.
    let made = unsafe {
        libc::pthread_create(
            thread.as_mut_ptr(),
            ptr::null(),
            start,
            (&raw mut work).cast(),
        )
    };
    assert_eq!(made, 0, "no thread");
    // SAFETY: the thread was made above, and is joined once. (The kernel reports its death by its ID, however it died.)
    unsafe { libc::pthread_join(thread.assume_init(), ptr::null_mut()) };
    match work.result.expect("the thread has run") {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// The thread's function for work of a type.
fn start_of<B: FnOnce() -> R, R>(_: &Work<B, R>) -> extern "C" fn(*mut c_void) -> *mut c_void {
    run::<B, R>
}

extern "C" fn run<B: FnOnce() -> R, R>(work: *mut c_void) -> *mut c_void {
    // SAFETY: `in_dying_thread` passes its work, which no other thread uses until this one is dead.
    let work = unsafe { &mut *work.cast::<Work<B, R>>() };
    if let Some(body) = work.body.take() {
        work.result = Some(catch_unwind(AssertUnwindSafe(body)));
    }
    // SAFETY: ends this thread; nothing on its stack is used any more.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("a dead thread")
}
