//! A thread that dies alone, without its end in good order.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What the thread is to do, and what it did.
struct Work<B, R> {
    body: Option<B>,
    result: Option<std::thread::Result<R>>,
    /// The thread's ID.
    id: AtomicI32,
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
        id: AtomicI32::new(0),
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
    if cfg!(target_env = "musl") {
        // musl's threads report their ends themselves: this one is never joined, and its stack stays.
        wait_for_death(&work.id);
    } else {
        // SAFETY: the thread was made above, and is joined once. (The kernel reports its death, however it died.)
        unsafe { libc::pthread_join(thread.assume_init(), ptr::null_mut()) };
    }
    match work.result.expect("the thread has run") {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// Waits until the thread that stores its ID there is gone.
fn wait_for_death(id: &AtomicI32) {
    let name = loop {
        match id.load(Ordering::Acquire) {
            0 => std::thread::sleep(Duration::from_millis(1)),
            id => break format!("/proc/self/task/{id}"),
        }
    };
    while std::fs::exists(&name).expect("/proc") {
        std::thread::sleep(Duration::from_millis(1));
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
    // SAFETY: no preconditions.
    work.id.store(unsafe { libc::gettid() }, Ordering::Release);
    // SAFETY: ends this thread; nothing on its stack is used any more.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("a dead thread")
}
