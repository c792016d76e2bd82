//! The memory that a thread shares with the kernel (`struct rseq`), which the C library registers, and
//! the part of it by which the thread asks for a little more time on its processor.
//!
//! Laid out as in `include/uapi/linux/rseq.h` of Linux 7.0, and used as
//! `Documentation/userspace-api/rseq.rst` there says.
#![allow(unsafe_code)]

use super::errno::done;
use super::probe::rseq_bytes_of_libc;
use crate::atomic::{AtomicU8, Ordering};
use core::ffi::{c_int, c_long, c_ulong};
use core::mem::offset_of;
use core::ptr::NonNull;
use rustix::io::Result;

/// Bytes that the C library registered before there were further fields. It names them also where the
/// kernel uses but 20 of them.
const ORIGINAL_BYTES: u32 = 32;
/// The error of a kernel that has the call, and not what it does. No errno of user space.
const ENOTSUPP: i32 = 524;

#[repr(C, align(32))]
struct Area {
    cpu_id_start: u32,
    cpu_id: u32,
    rseq_cs: u64,
    flags: u32,
    node_id: u32,
    mm_cid: u32,
    slice_ctrl: Control,
}

/// `struct rseq_slice_ctrl`. Only its thread uses it, and the kernel, in that thread's interrupts.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Control {
    /// Set by the thread, cleared by both.
    request: AtomicU8,
    /// Set and cleared by the kernel.
    granted: AtomicU8,
    reserved: u16,
}

impl Control {
    /// Whether nobody asks, and nothing is granted.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        // Relaxed, here and below: who else writes does so between two instructions of this thread.
        self.request.load(Ordering::Relaxed) == 0 && !self.is_granted()
    }

    #[inline]
    pub(crate) fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(crate) fn ask(&self, asks: bool) {
        self.request.store(asks.into(), Ordering::Relaxed);
    }

    /// What the kernel does when it grants more time, and when it takes that back.
    #[cfg(test)]
    pub(crate) fn act_as_kernel(&self, grants: bool) {
        self.request.store(0, Ordering::Relaxed);
        self.granted.store(grants.into(), Ordering::Relaxed);
    }
}

/// What glibc and the processor call the thread pointer.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    // SAFETY: reads a register; on x86-64 the word at the thread pointer is the pointer itself.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}

/// The calling thread's area, if the C library has registered one.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn area() -> Option<NonNull<Area>> {
    if rseq_bytes_of_libc() == 0 {
        return None;
    }
    // SAFETY: glibc exports this constant of one word along with the other.
    let offset = unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
        *NonNull::new(symbol.cast::<isize>())?.as_ref()
    };
    NonNull::new(thread_pointer().wrapping_offset(offset).cast_mut().cast())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn area() -> Option<NonNull<Area>> {
    None
}

/// The calling thread's control of its time slices: valid as long as the thread. `None` if the C library
/// has registered an area without it, or none.
pub(crate) fn slice_control() -> Option<NonNull<Control>> {
    const { assert!(offset_of!(Area, slice_ctrl) == 28) };
    if rseq_bytes_of_libc() <= ORIGINAL_BYTES {
        return None;
    }
    // SAFETY: the area has more bytes than the field's end.
    area().map(|area| unsafe { NonNull::new_unchecked(&raw mut (*area.as_ptr()).slice_ctrl) })
}

/// Lets the calling thread ask for more time. Linux 7.0.
pub(crate) fn enable_slice_extension() -> Result<()> {
    const PR_RSEQ_SLICE_EXTENSION: c_int = 79;
    const SET: c_ulong = 2;
    const ENABLE: c_ulong = 1;
    let zero: c_ulong = 0;
    // SAFETY: the kernel reads and writes the area that the C library registered.
    done(unsafe { libc::prctl(PR_RSEQ_SLICE_EXTENSION, SET, ENABLE, zero, zero) })
}

/// Whether an error says that the kernel was built, or started, without slice extensions.
pub(crate) fn is_unsupported(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::INVAL | Errno::NOSYS) || error.raw_os_error() == ENOTSUPP
}

/// Gives the processor back, after more time was granted.
#[cold]
pub(crate) fn yield_slice() {
    /// The same on all architectures.
    const SYS_RSEQ_SLICE_YIELD: c_long = 471;
    // SAFETY: takes nothing. What it returns is of no consequence: the grant may be over by now.
    let _ = unsafe { libc::syscall(SYS_RSEQ_SLICE_YIELD) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_of_a_thread_is_where_the_c_library_says() {
        let Some(area) = area() else {
            println!("skipped: the C library registers no area here");
            return;
        };
        // SAFETY: the area of this thread; the kernel writes these words, in its interrupts.
        let (first, second) = unsafe {
            (
                (&raw const (*area.as_ptr()).cpu_id_start).read_volatile(),
                (&raw const (*area.as_ptr()).cpu_id).read_volatile(),
            )
        };
        let possible = rustix::thread::sched_getaffinity(None).unwrap();
        for cpu in [first, second] {
            assert!(possible.is_set(cpu as usize), "processor {cpu}");
        }
    }

    #[test]
    fn the_control_lies_as_in_the_kernels_header() {
        assert_eq!((size_of::<Control>(), offset_of!(Control, granted)), (4, 1));
        assert_eq!(offset_of!(Area, cpu_id), 4);
        assert_eq!(offset_of!(Area, flags), 16);
        assert_eq!(offset_of!(Area, mm_cid), 24);
    }
}
