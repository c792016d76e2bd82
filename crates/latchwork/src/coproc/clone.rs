//! Cloning, with the care that std and signal handlers need.
#![allow(unsafe_code)]

use crate::atomic::AtomicU32;
use crate::sys::process::{self, Sharing, Stack};
use crate::sys::signals;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr;
use rustix::io::Errno;
use std::io::{StdoutLock, Write};

/// std's standard output, locked: in a copy of this process, which writes to it at its end, no
/// vanished thread then holds it, and what was printed so far is written once.
///
/// Standard error is not locked as well: a thread that holds it and waits for standard output would
/// wait for this one, and this one for it.
type Output = StdoutLock<'static>;

fn lock_output() -> Output {
    let mut stdout = std::io::stdout().lock();
    // What cannot be written now cannot be written later either.
    let _ = stdout.flush();
    stdout
}

struct Start<'a, T> {
    body: fn(&T) -> !,
    context: &'a T,
    output: Option<&'a ManuallyDrop<Output>>,
}

extern "C" fn enter<T>(start: *mut c_void) -> i32 {
    // SAFETY: `clone` passes this type, in memory that is this process's copy.
    let start: &Start<'_, T> = unsafe { &*start.cast() };
    if let Some(output) = start.output {
        // SAFETY: this process's copy of the guard, whose owner never runs here.
        drop(ManuallyDrop::into_inner(unsafe { ptr::read(output) }));
    }
    (start.body)(start.context)
}

/// Clones a process of one thread, which has blocked all signals.
///
/// # Safety
/// As for [`process::clone`], for `body` and `context`.
pub(super) unsafe fn clone<T>(
    stack: &Stack,
    sharing: Sharing,
    body: fn(&T) -> !,
    context: &T,
    pid: &AtomicU32,
) -> Result<u32, Errno> {
    let mut start = Start {
        body,
        context,
        output: None,
    };
    // SAFETY: by the contract; `enter` diverges as `body` does.
    unsafe { process::clone(stack, sharing, enter::<T>, (&raw mut start).cast(), pid) }
}

/// Clones a process that may have other threads and signal handlers.
///
/// # Safety
/// As for [`clone`].
pub(super) unsafe fn clone_caller<T>(
    stack: &Stack,
    sharing: Sharing,
    body: fn(&T) -> !,
    context: &T,
    pid: &AtomicU32,
) -> Result<u32, Errno> {
    let output = ManuallyDrop::new(lock_output());
    let mut start = Start {
        body,
        context,
        output: Some(&output),
    };
    let mask = signals::block_all();
    // SAFETY: by the contract; `enter` diverges as `body` does.
    let made = unsafe { process::clone(stack, sharing, enter::<T>, (&raw mut start).cast(), pid) };
    signals::restore(mask);
    drop(ManuallyDrop::into_inner(output));
    made
}
