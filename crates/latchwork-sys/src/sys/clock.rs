//! Clocks, in nanoseconds.
//!
//! libc resolves the vDSO's function at program start. (rustix resolves it at its first call, under the
//! loader's lock, which another thread may hold while it waits for the caller.)
#![allow(unsafe_code)]

use libc::clockid_t;

/// The time on `CLOCK_MONOTONIC`.
#[inline]
pub fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The time on `CLOCK_MONOTONIC`, by a system call. A single-stepped thread executes it as one instruction,
/// where the vDSO's function starts again whenever a tick interrupts it.
pub fn monotonic_by_call() -> u64 {
    let mut now = core::mem::MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes the time, or it stays zero.
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

/// The processor's time counter, of which only differences are meaningful: some ten nanoseconds, and no system
/// call. Zero where there is none.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the counter.
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

/// The wall clock's time, which can be set.
pub(super) fn wall() -> u64 {
    read(libc::CLOCK_REALTIME)
}

#[inline]
fn read(clock: clockid_t) -> u64 {
    let mut now = core::mem::MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: libc writes the time; for an unknown clock it stays zero.
    let now = unsafe {
        libc::clock_gettime(clock, now.as_mut_ptr());
        now.assume_init()
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
