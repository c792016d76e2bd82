//! The start of checking: in the process, its threads, and the children that it forks.
#![allow(unsafe_code)]

use crate::{condition, real, sum, task};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use latchwork::check::{hook, is_on};
use latchwork_interpose::errno::keeping_errno;
use latchwork_interpose::{counts, say};

/// Whether the process is checked.
static STARTED: AtomicBool = AtomicBool::new(false);
/// The ID of that process, or of the child of a fork that continues it.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The ID of the first process.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Whether the calling thread is checked.
#[inline]
pub(crate) fn watches() -> bool {
    hook::knows_this_thread() || watches_again()
}

/// In the child of a fork, before [`in_child`] has run: fork handlers that were registered earlier release locks that
/// their counterparts took before the fork. (Resuming the check of a thread that was checked before needs no memory
/// from the allocator.)
#[cold]
fn watches_again() -> bool {
    // Relaxed: set by this thread, or before there was another one.
    if !STARTED.load(Ordering::Relaxed) || PROCESS.load(Ordering::Relaxed) == process() {
        return false;
    }
    begin();
    hook::knows_this_thread()
}

/// Whether this is the process as which the program began, and not the child of a fork.
pub(crate) fn is_first() -> bool {
    FIRST.load(Ordering::Relaxed) == PROCESS.load(Ordering::Relaxed)
}

fn process() -> u32 {
    // SAFETY: `getpid` takes no arguments and cannot fail. (A direct system call, since a cached ID would be wrong
    // after a fork.)
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

/// The calling thread's ID.
pub(crate) fn thread() -> u32 {
    // SAFETY: `gettid` takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Checks the calling thread from now on.
pub(crate) fn watch() {
    // Relaxed: the state that it guards existed before this thread, or is this thread's own.
    if STARTED.load(Ordering::Relaxed) {
        keeping_errno(hook::forked);
    }
}

extern "C" fn in_child() {
    begin();
}

/// Checks the calling thread, the first one of its process.
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

// SAFETY: `.init_array` is a section of pointers to functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
