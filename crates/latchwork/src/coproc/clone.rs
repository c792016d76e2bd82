//! `clone` with the precautions that std and signal handlers need.
#![allow(unsafe_code)]

use crate::atomic::AtomicU32;
use crate::sys::process::{self, Sharing, Stack};
use crate::sys::signals;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr;
use rustix::io::Errno;
use std::io::{StdoutLock, Write};

struct Start<'a, T> {
    body: fn(&T) -> !,
    context: &'a T,
    output: Option<&'a ManuallyDrop<StdoutLock<'static>>>,
}

extern "C" fn enter<T>(start: *mut c_void) -> i32 {
    // SAFETY: `clone` passes a `Start<T>`, and this is the new process's copy of that memory.
    let start: &Start<'_, T> = unsafe { &*start.cast() };
    if let Some(output) = start.output {
        // SAFETY: this is the new process's copy of the guard; the owner of the original never runs here, so it is
        // dropped once.
        drop(ManuallyDrop::into_inner(unsafe { ptr::read(output) }));
    }
    (start.body)(start.context)
}

/// Clones this process. `is_alone`: it has one thread, and has blocked all signals.
///
/// # Safety
/// As for [`process::clone`], for `body` and `context`.
pub(super) unsafe fn clone<T>(
    is_alone: bool,
    stack: &Stack,
    sharing: Sharing,
    body: fn(&T) -> !,
    context: &T,
    pid: &AtomicU32,
) -> Result<u32, Errno> {
    // A copy of this process writes to std's standard output at its end: since the cloning thread holds the lock, no
    // thread that does not exist in the copy holds it, and what was printed so far is written once.
    //
    // Standard error is not locked as well: another thread may hold it and wait for standard output, while this thread
    // would wait for standard error, which is a deadlock.
    let output = (!is_alone).then(|| {
        let mut stdout = std::io::stdout().lock();
        // A write error is ignored: a later write would fail as well.
        let _ = stdout.flush();
        ManuallyDrop::new(stdout)
    });
    let mut start = Start {
        body,
        context,
        output: output.as_ref(),
    };
    let mask = (!is_alone).then(signals::block_all);
    // SAFETY: the caller keeps the contract of `process::clone`; `enter` diverges as `body` does.
    let made = unsafe { process::clone(stack, sharing, enter::<T>, (&raw mut start).cast(), pid) };
    if let Some(mask) = mask {
        signals::restore(mask);
    }
    drop(output.map(ManuallyDrop::into_inner));
    made
}
