//! The identity of the calling thread, and whether it is alone, without a system call.
//!
//! glibc stores a thread's ID at a fixed distance from the thread pointer, and renews it in the child of every fork
//! (`_Fork`, too). So there is no per-thread state to set up, and nothing that could allocate. If the place is not found,
//! mutexes stay glibc's.
#![allow(unsafe_code)]

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, Ordering};
use latchwork::foreign::ProcessMark;

/// The distance from the thread pointer to the ID; 0 if unknown.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

unsafe extern "C" {
    /// glibc's flag that the process has one thread.
    static __libc_single_threaded: libc::c_char;
}

fn thread_pointer() -> isize {
    let pointer: isize;
    // SAFETY: reads a register, or the word that holds its own address.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// The calling thread's ID, from the kernel.
pub(crate) fn ask() -> u32 {
    // SAFETY: `gettid` takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Finds where glibc stores the ID. Returns whether it did.
pub(crate) fn prepare() -> bool {
    let place = latchwork::mutex::foreign::place_of_thread_id();
    if !place.is_null() {
        // Relaxed, here and below: a number that does not change afterwards.
        OFFSET.store(
            place.addr().cast_signed() - thread_pointer(),
            Ordering::Relaxed,
        );
    }
    !place.is_null()
}

/// The calling thread's ID, once [`prepare`] has found its place; a meaningless word before.
#[inline(always)]
pub(crate) fn id() -> u32 {
    let offset = OFFSET.load(Ordering::Relaxed);
    let id: u32;
    // SAFETY: `prepare` has found the ID there, in the part of a thread that glibc lays out alike for all threads;
    // before, it is the word at the thread pointer, which is readable.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("mov {:e}, fs:[{}]", out(reg) id, in(reg) offset, options(nostack, readonly, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!(
            "mrs {pointer}, tpidr_el0",
            "ldr {id:w}, [{pointer}, {offset}]",
            pointer = out(reg) _,
            offset = in(reg) offset,
            id = out(reg) id,
            options(nostack, readonly, preserves_flags),
        );
    }
    id
}

/// A number of this process, in a page that reads 0 again in the child of a fork; null if there is no such page.
static PROCESS: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Maps the page for the process's number.
pub(crate) fn prepare_process() {
    const PAGE: usize = 4096;
    // SAFETY: new memory, which no other code knows.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(ptr::null_mut(), PAGE, access, kind, -1, 0);
        if page != libc::MAP_FAILED {
            if libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) == 0 {
                // Release: pairs with the Acquire in `process`.
                PROCESS.store(page.cast(), Ordering::Release);
            } else {
                libc::munmap(page, PAGE);
            }
        }
    }
}

/// A number of the calling process, which is not 0: its ID, and above it the low bits of its mark. A process that it was
/// forked from has another one, even if it has the same ID, in another PID namespace. So has a sibling, with which a program
/// may share a private object against the rules.
#[inline(always)]
pub(crate) fn process() -> u32 {
    // Acquire: pairs with the Release in `prepare_process`.
    // SAFETY: null, or a page that stays mapped.
    let kept = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    // Relaxed: all threads store the same value.
    match kept.map_or(0, |kept| kept.load(Ordering::Relaxed)) {
        0 => ask_process(kept),
        known => known,
    }
}

#[cold]
#[inline(never)]
fn ask_process(keep: Option<&AtomicU32>) -> u32 {
    /// An ID is smaller.
    const ID_BITS: u32 = 22;
    // SAFETY: `getpid` takes no arguments and cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_getpid) as u32 };
    let mark = ProcessMark::own().map_or(0, ProcessMark::number);
    let process = id ^ (mark as u32) << ID_BITS;
    if let Some(keep) = keep {
        keep.store(process, Ordering::Relaxed);
    }
    process
}

/// Whether there can be no other thread: glibc's own locks then use no atomic operations.
#[inline(always)]
pub(crate) fn is_alone() -> bool {
    // SAFETY: a byte of glibc's. Volatile, since this thread changes it when it creates the first other thread.
    unsafe { (&raw const __libc_single_threaded).read_volatile() != 0 }
}

pub(crate) use latchwork_interpose::errno::keeping_errno;
