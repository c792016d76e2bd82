//! Clocks, in nanoseconds.
//!
//! libc knows the kernel's function for them from its start. (rustix looks it up at the first call, under the loader's lock,
//! which another thread may hold and wait for the caller.)
#![allow(unsafe_code)]

use libc::clockid_t;

/// The time on `CLOCK_MONOTONIC`.
pub fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The time on `CLOCK_MONOTONIC`, by a system call: one instruction for who is traced, where the usual way tries again
/// whenever a tick comes in its midst.
pub fn monotonic_by_call() -> u64 {
    let mut now = core::mem::MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: as in `read`.
    let now = unsafe {
        libc::syscall(
            libc::SYS_clock_gettime,
            libc::CLOCK_MONOTONIC,
            now.as_mut_ptr(),
        );
        now.assume_init()
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time on `CLOCK_MONOTONIC` at the kernel's last tick: a few milliseconds old, and cheap.
#[inline]
pub fn coarse() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// The processor's counter of time, of which only differences mean anything: some ten nanoseconds, and no system call. Zero
/// where there is none.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every such processor has the counter.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let ticks;
        // SAFETY: Linux lets programs read the counter.
        unsafe {
            core::arch::asm!("mrs {ticks}, cntvct_el0", ticks = out(reg) ticks, options(nomem, nostack));
        }
        return ticks;
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    0
}

/// Time since boot, suspended time included: the clock of `/proc`'s start times.
pub fn since_boot() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// The wall clock's time, which may be set.
pub(super) fn wall() -> u64 {
    read(libc::CLOCK_REALTIME)
}

#[inline]
fn read(clock: clockid_t) -> u64 {
    let mut now = core::mem::MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the time is written, or, of a clock that there is not, stays zero.
    let now = unsafe {
        libc::clock_gettime(clock, now.as_mut_ptr());
        now.assume_init()
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
