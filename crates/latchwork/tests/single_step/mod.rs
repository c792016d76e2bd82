//! What a signal handler does at each instruction of an operation.
#![allow(unsafe_code)]

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

static ALONE: Mutex<()> = Mutex::new(());
static HANDLER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static STEP: AtomicUsize = AtomicUsize::new(0);
static FIRST: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

extern "C" fn trap(_: libc::c_int) {
    let step = STEP.fetch_add(1, Relaxed);
    if (FIRST.load(Relaxed)..END.load(Relaxed)).contains(&step) {
        // SAFETY: `run` stored a function of this type.
        let handler: fn() = unsafe { core::mem::transmute(HANDLER.load(Relaxed)) };
        handler();
    }
}

/// Calls `handler` before each of these instructions of the calling thread's operation; returns
/// how many the operation has.
pub fn run(handler: fn(), instructions: Range<usize>, operation: impl FnOnce()) -> usize {
    // The tests of a program run at the same time.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    HANDLER.store(handler as *mut (), Relaxed);
    STEP.store(0, Relaxed);
    FIRST.store(instructions.start, Relaxed);
    END.store(instructions.end, Relaxed);
    // SAFETY: all-zero is a valid sigaction; what the handler does is up to the tests.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = trap as *const () as usize;
        libc::sigaction(libc::SIGTRAP, &raw const action, core::ptr::null_mut());
    }
    // SAFETY: sets this thread's trap flag, and below clears it. Nothing else is changed.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    operation();
    // SAFETY: as above.
    unsafe { asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq") };
    STEP.load(Relaxed)
}
