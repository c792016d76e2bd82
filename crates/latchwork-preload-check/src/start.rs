//! The beginning: of the process, of its threads, and of the children that it forks.
#![allow(unsafe_code)]

use crate::{real, say, sum};
use core::sync::atomic::{AtomicBool, Ordering};
use latchwork::check::{hook, is_on};

/// Whether the process is watched.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread is watched.
#[inline]
pub(crate) fn watches() -> bool {
    hook::knows_this_thread()
}

/// The calling thread's ID.
pub(crate) fn thread() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Has the calling thread watched from now on.
pub(crate) fn watch() {
    // Relaxed: what it says of was there before this thread, or is this thread's.
    if STARTED.load(Ordering::Relaxed) {
        crate::errno::keeping_errno(hook::forked);
    }
}

extern "C" fn in_child() {
    watch();
}

/// Called by the dynamic linker, after the constructors of other libraries and before the program's.
extern "C" fn start() {
    crate::errno::keeping_errno(|| {
        real::look_up_all();
        say::prepare();
        sum::prepare();
        if is_on() {
            // SAFETY: a function of this library, which is never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            STARTED.store(true, Ordering::Relaxed);
            watch();
        }
    });
}

// SAFETY: a section of pointers to such functions.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
