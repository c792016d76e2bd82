//! Which process, and which threads of it, are checked.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use latchwork::check::hook;
use latchwork_interpose::errno::keeping_errno;

/// Whether the process is checked.
static STARTED: AtomicBool = AtomicBool::new(false);
/// The mark of that process, or of the child of a fork that continues it.
static PROCESS: AtomicU64 = AtomicU64::new(0);
/// The mark of the first process.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Whether the calling thread is checked.
#[inline]
pub(crate) fn this_thread() -> bool {
    hook::knows_this_thread() || resume()
}

/// In the child of a fork, before the handler of this library has run: fork handlers that were registered earlier release locks that
/// their counterparts took before the fork. (Resuming the check of a thread that was checked before needs no memory
/// from the allocator.)
#[cold]
fn resume() -> bool {
    // Relaxed: set by this thread, or before there was another one.
    if !STARTED.load(Ordering::Relaxed) || PROCESS.load(Ordering::Relaxed) == mark() {
        return false;
    }
    begin_process();
    hook::knows_this_thread()
}

/// Whether this is the process as which the program began, and not the child of a fork.
pub(crate) fn is_first() -> bool {
    FIRST.load(Ordering::Relaxed) == PROCESS.load(Ordering::Relaxed)
}

/// This process's mark; 0 if there is no memory.
fn mark() -> u64 {
    hook::ProcessMark::own().map_or(0, hook::ProcessMark::number)
}

/// The calling thread's ID.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: `gettid` takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Checks the calling thread from now on.
pub(crate) fn begin_thread() {
    // Relaxed: the state that it guards existed before this thread, or is this thread's own.
    if STARTED.load(Ordering::Relaxed) {
        keeping_errno(hook::forked);
    }
}

/// Checks the calling thread, the first one of its process.
pub(crate) fn begin_process() {
    PROCESS.store(mark(), Ordering::Relaxed);
    begin_thread();
}

/// Checks this process from now on, whose only thread calls this; without memory, it is not checked.
pub(crate) fn begin() {
    let mark = mark();
    STARTED.store(mark != 0, Ordering::Relaxed);
    FIRST.store(mark, Ordering::Relaxed);
    begin_process();
}
