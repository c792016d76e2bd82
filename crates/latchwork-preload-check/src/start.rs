//! The beginning: of the process, of its threads, and of the children that it forks.
#![allow(unsafe_code)]

use crate::{condition, real, sum, task};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use latchwork::check::{hook, is_on};
use latchwork_interpose::errno::keeping_errno;
use latchwork_interpose::{counts, say};

/// Whether the process is watched.
static STARTED: AtomicBool = AtomicBool::new(false);
/// That process, or the child of a fork that has taken its place.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The first one.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Whether the calling thread is watched.
#[inline]
pub(crate) fn watches() -> bool {
    hook::knows_this_thread() || watches_again()
}

/// In the child of a fork, before [`in_child`]: handlers that were entered earlier release what theirs have taken
/// before the fork. (To watch a thread that was watched needs no memory of the allocator's.)
#[cold]
fn watches_again() -> bool {
    // Relaxed: set by this thread, or before there was another one.
    if !STARTED.load(Ordering::Relaxed) || PROCESS.load(Ordering::Relaxed) == process() {
        return false;
    }
    begin();
    hook::knows_this_thread()
}

/// Whether this is the process that the program began as, and no child of a fork.
pub(crate) fn is_first() -> bool {
    FIRST.load(Ordering::Relaxed) == PROCESS.load(Ordering::Relaxed)
}

fn process() -> u32 {
    // SAFETY: takes nothing. (By the bare call: nothing keeps the answer across a fork.)
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
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
        keeping_errno(hook::forked);
    }
}

extern "C" fn in_child() {
    begin();
}

/// Has the calling thread watched, the first one of its process.
fn begin() {
    PROCESS.store(process(), Ordering::Relaxed);
    watch();
}

/// Called by the dynamic linker, after the constructors of other libraries and before the program's.
extern "C" fn start() {
    keeping_errno(|| {
        real::look_up_all();
        task::prepare();
        condition::prepare();
        say::prepare();
        counts::prepare();
        sum::prepare();
        if is_on() {
            // SAFETY: a function of this library, which is never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            hook::joins_are_told();
            STARTED.store(true, Ordering::Relaxed);
            FIRST.store(process(), Ordering::Relaxed);
            begin();
        }
    });
}

// SAFETY: a section of pointers to such functions.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
