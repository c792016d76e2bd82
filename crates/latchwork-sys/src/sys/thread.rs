//! The calling thread and process, as the kernel identifies them.
#![allow(unsafe_code)]

use super::each_thread::each_thread;
use crate::time::Deadline;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::NonNull;
use rustix::mm::{Advice, MapFlags};
use rustix::thread::{ClockId, Timespec};

/// The calling thread's ID in its own PID namespace.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

each_thread! {
    static REMEMBERED_ID: Cell<u32> = Cell::new(0);
}

/// As [`thread_id`], without a system call after the first one, for guesses: in the child of a fork it may be the ID of the
/// parent's thread.
pub fn remembered_id() -> u32 {
    REMEMBERED_ID.with(|id| {
        if id.get() == 0 {
            id.set(thread_id());
        }
        id.get()
    })
}

/// The calling thread's `pthread_t`.
pub fn handle() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// The calling process's ID in its own PID namespace.
pub fn process_id() -> u32 {
    rustix::process::getpid().as_raw_pid().cast_unsigned()
}

/// A thread's name, without allocation.
pub struct Name([u8; 16]);

/// The calling thread's name, as ps shows it.
pub fn name() -> Name {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, NUL included.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    Name(name)
}

impl core::ops::Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0);
        let name = &self.0[..end.unwrap_or(self.0.len())];
        // A name that the kernel has truncated may end within a character.
        name.utf8_chunks().next().map_or("", |whole| whole.valid())
    }
}

/// Yields the CPU.
pub fn yield_cpu() {
    rustix::thread::sched_yield();
}

/// A deadline as the kernel takes it.
pub(super) fn timespec(deadline: Deadline) -> Timespec {
    let nanoseconds = deadline.as_nanoseconds();
    // The quotient is below 2^35 and the remainder below 10^9: both fit any field type.
    Timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as _,
        tv_nsec: (nanoseconds % 1_000_000_000) as _,
    }
}

/// Sleeps until `deadline`, or a signal.
pub fn sleep_until(deadline: Deadline) {
    let clock = ClockId::Monotonic;
    let _ = rustix::thread::clock_nanosleep_absolute(clock, &timespec(deadline));
}

/// The CPU on which the calling thread runs at this moment.
pub fn processor() -> u32 {
    // SAFETY: no preconditions. (libc's function: see `clock.rs`.)
    unsafe { libc::sched_getcpu() as u32 }
}

/// Size of the record that [`map_wipe_on_fork`] returns, in bytes.
pub const RECORD_BYTES: usize = 3 * 4096;

/// Maps zeroed memory that reads as zero again in the child of any fork or memory-copying clone.
///
/// This is the only way to detect *every* change of process, raw `clone` included, without a system call or a
/// `pthread_atfork` handler (which a raw clone bypasses).
pub fn map_wipe_on_fork() -> rustix::io::Result<NonNull<c_void>> {
    let record = super::memory::map_anonymous(RECORD_BYTES, MapFlags::PRIVATE)?;
    // SAFETY: the range is the mapping made above, which no other code knows yet.
    unsafe {
        rustix::mm::madvise(record.as_ptr(), RECORD_BYTES, Advice::LinuxWipeOnFork)
            .inspect_err(|_| unmap_record(record))?;
    }
    Ok(record)
}

/// Unmaps what [`map_wipe_on_fork`] mapped.
///
/// # Safety
/// No code uses the record any more.
pub unsafe fn unmap_record(record: NonNull<c_void>) {
    // SAFETY: by the caller's contract; a failure would only leak the pages.
    let _ = unsafe { rustix::mm::munmap(record.as_ptr(), RECORD_BYTES) };
}
