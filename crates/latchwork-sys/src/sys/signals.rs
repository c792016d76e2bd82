//! Signal masks and dispositions.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ptr;

/// A thread's signal mask.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

fn all() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn none() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn set(new: &libc::sigset_t) -> Mask {
    let mut old = none();
    // SAFETY: both sets are valid; the call cannot fail with a valid operation.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, new, &raw mut old) };
    Mask(old)
}

/// Blocks every signal in the calling thread; returns the previous mask.
pub fn block_all() -> Mask {
    set(&all())
}

/// Restores a mask.
pub fn restore(mask: Mask) {
    set(&mask.0);
}

/// Unblocks every signal.
pub fn unblock_all() {
    set(&none());
}

/// Discards the signals that came while they were blocked.
pub fn discard_pending() {
    let all = all();
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid set, and a zero time-out; the call writes nothing.
    let next = || unsafe { libc::sigtimedwait(&raw const all, ptr::null_mut(), &raw const now) };
    while any_pending() && next() > 0 {}
}

/// Runs `call`, which may write to a pipe without readers or beyond the limit for file sizes, and returns true
/// if it did. The signal for that is discarded.
pub fn without_those_of_writes(call: impl FnOnce() -> bool) {
    // The size of the kernel's sets.
    const BYTES: usize = size_of::<u64>();
    let writes = 1_u64 << (libc::SIGPIPE - 1) | 1_u64 << (libc::SIGXFSZ - 1);
    let (mut before, mut pending) = (0_u64, 0_u64);
    // Direct system calls, here and below: libc's wait is a cancellation point.
    // SAFETY: the kernel reads and writes sets of this size.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            &raw const writes,
            &raw mut before,
            BYTES,
        );
        libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, BYTES);
    }
    let news = writes & !pending;
    if call() && news != 0 {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let nothing = ptr::null_mut::<libc::siginfo_t>();
        // SAFETY: a valid set, and a zero time-out; the call writes nothing.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const news,
                nothing,
                &raw const now,
                BYTES,
            );
        }
    }
    // SAFETY: the kernel reads a set of this size and writes nothing.
    unsafe {
        let nothing = ptr::null_mut::<u64>();
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const before,
            nothing,
            BYTES,
        );
    }
}

/// Whether a signal is pending: a cheaper call than the wait that it saves.
fn any_pending() -> bool {
    let mut set = 0u64;
    // SAFETY: the kernel writes a set, which is 64 bits.
    let known = unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, size_of::<u64>()) };
    known != 0 || set != 0
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
