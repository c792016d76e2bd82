//! Sleeping, by direct system calls: libc's functions are cancellation points, and set `errno`.
#![allow(unsafe_code)]

use core::arch::asm;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::AtomicU32;
use latchwork::time::Deadline;
use libc::{clockid_t, timespec};

/// A futex call. Returns the negated error number if it failed. A thread may be cancelled in it asynchronously, so
/// nothing here has a destructor.
///
/// # Safety
/// As the operation requires.
#[inline(always)]
unsafe fn call(
    word: *const AtomicU32,
    operation: c_int,
    value: u32,
    until: *const timespec,
    mask: u32,
) -> c_int {
    let result: isize;
    // SAFETY: by the caller's contract; the kernel preserves all registers but those that are named.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_futex as isize => result,
            in("rdi") word,
            in("rsi") operation as isize,
            in("rdx") value as usize,
            in("r10") until,
            in("r8") 0_usize,
            in("r9") mask as usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "svc 0",
            in("x8") libc::SYS_futex as isize,
            inlateout("x0") word as isize => result,
            in("x1") operation as isize,
            in("x2") value as usize,
            in("x3") until,
            in("x4") 0_usize,
            in("x5") mask as usize,
            options(nostack),
        );
    }
    result as c_int
}

/// Sleeps while `word` is `expected`. Returns 0 if woken, else `EAGAIN`, `EINTR` or `ETIMEDOUT`.
///
/// # Safety
/// `until` is null or points to a time.
#[inline(always)]
pub(crate) unsafe fn sleep(
    word: &AtomicU32,
    expected: u32,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    let wall = if clock == libc::CLOCK_REALTIME {
        libc::FUTEX_CLOCK_REALTIME
    } else {
        0
    };
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | wall;
    // SAFETY: the word is an atomic that outlives the call; the caller vouches for the time.
    -unsafe { call(word, operation, expected, until, u32::MAX) }
}

/// Wakes up to `count` threads that sleep on the word at this address.
pub(crate) fn wake(word: *const AtomicU32, count: u32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // The kernel reads it as a signed number.
    let count = count.min(i32::MAX as u32);
    // SAFETY: the kernel only uses the address as a key, and accesses nothing.
    unsafe { call(word, operation, count, ptr::null(), 0) };
}

/// Sleeps until a deadline; for ever if there is none.
pub(crate) fn until(deadline: Option<Deadline>) {
    let never = AtomicU32::new(0);
    let time = deadline.map(|deadline| {
        let nanoseconds = deadline.as_nanoseconds();
        timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as _,
            tv_nsec: (nanoseconds % 1_000_000_000) as _,
        }
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    loop {
        // SAFETY: null, or a pointer to the time above.
        let ended = unsafe { sleep(&never, 0, libc::CLOCK_MONOTONIC, time) };
        if ended == libc::ETIMEDOUT {
            return;
        }
    }
}
