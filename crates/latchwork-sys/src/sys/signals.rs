//! Signal masks and dispositions.
#![allow(unsafe_code)]

use super::errno::done;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use rustix::io::Errno;

/// A thread's signal mask.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

/// The set as one of libc's two initialising functions makes it.
fn made_by(initialise: unsafe extern "C" fn(*mut libc::sigset_t) -> c_int) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the function initialises the set.
    unsafe {
        initialise(set.as_mut_ptr());
        set.assume_init()
    }
}

fn set(new: &libc::sigset_t) -> Mask {
    let mut old = made_by(libc::sigemptyset);
    // SAFETY: both sets are valid; the call cannot fail with a valid operation.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, new, &raw mut old) };
    Mask(old)
}

/// A set of the kernel's.
type Set = u64;

/// Changes the calling thread's mask by a system call, which treats libc's own signals as all others; returns the
/// previous mask.
pub(super) fn kernel_mask(how: c_int, change: Set) -> Set {
    let (mut old, bytes) = (0, size_of::<Set>());
    // SAFETY: both sets have the kernel's size.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const change,
            &raw mut old,
            bytes,
        )
    };
    old
}

/// The pending signals.
fn pending() -> Result<Set, Errno> {
    let mut set: Set = 0;
    // SAFETY: the kernel writes a set of this size.
    done(unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, size_of::<Set>()) })
        .map(|()| set)
}

static NO_TIME: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Blocks every signal in the calling thread; returns the previous mask.
pub fn block_all() -> Mask {
    set(&made_by(libc::sigfillset))
}

/// Restores a mask.
pub fn restore(mask: Mask) {
    set(&mask.0);
}

/// Unblocks every signal.
pub fn unblock_all() {
    set(&made_by(libc::sigemptyset));
}

/// Discards the signals that came while they were blocked.
pub fn discard_pending() {
    let all = made_by(libc::sigfillset);
    let (all, no_time) = (&raw const all, &raw const NO_TIME);
    // SAFETY: a valid set, and a zero time-out; the call writes nothing.
    let next = || unsafe { libc::sigtimedwait(all, ptr::null_mut(), no_time) };
    // The check is a cheaper call than the wait that it saves.
    while pending() != Ok(0) && next() > 0 {}
}

/// Runs `call`, which may write to a pipe without readers or beyond the limit for file sizes, and returns true
/// if it did. The signal for that is discarded.
pub fn without_those_of_writes(call: impl FnOnce() -> bool) {
    let writes: Set = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);
    // Direct system calls, here and below: libc's wait is a cancellation point.
    let before = kernel_mask(libc::SIG_BLOCK, writes);
    let news = writes & !pending().unwrap_or(0);
    if call() && news != 0 {
        let (nothing, bytes) = (ptr::null_mut::<libc::siginfo_t>(), size_of::<Set>());
        let (news, no_time) = (&raw const news, &raw const NO_TIME);
        // SAFETY: a valid set, and a zero time-out; the call writes nothing.
        unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, news, nothing, no_time, bytes) };
    }
    kernel_mask(libc::SIG_SETMASK, before);
}

/// Resets each signal with a handler to its default action, as exec does; ignored signals stay ignored.
pub fn reset_handlers() {
    for signal in 1..=libc::SIGRTMAX() {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: libc writes the action, or refuses its own signals.
        let caught = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0 }
            // SAFETY: the action was written, or is all zeros, which is valid.
            && !matches!(unsafe { action.assume_init_ref() }.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        if caught {
            let default = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: all zero is the default action.
            unsafe { libc::sigaction(signal, default.as_ptr(), ptr::null_mut()) };
        }
    }
}

/// Sends SIGABRT to the calling thread, as `abort` does, and again without a handler if a handler returns.
///
/// musl's `abort` names the thread by the ID that musl keeps: in the child of a raw clone that is the parent's, and the
/// parent would be ended.
#[cfg(target_env = "musl")]
pub(super) fn abort_by_kernel_ids() {
    // SAFETY: these calls end the process, or change how it ends; the mask is an array of the kernel's size.
    unsafe {
        let abort = || {
            let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
            libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGABRT);
        };
        abort();
        libc::signal(libc::SIGABRT, libc::SIG_DFL);
        kernel_mask(libc::SIG_SETMASK, 0);
        abort();
    }
}

#[cfg(test)]
mod tests {
    /// The child of a raw clone has the IDs that the C library keeps from its parent, which must not be ended for it.
    #[test]
    fn a_fatal_error_in_a_raw_clone_ends_the_clone_alone() {
        // SAFETY: as fork, without the C library's knowledge; the child only prints a line and ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            crate::fatal(format_args!("expected by a test"));
        }
        let (child, mut status) = (child as libc::pid_t, 0);
        // SAFETY: a child of this process, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status), "{status:#x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGABRT);
    }
}
