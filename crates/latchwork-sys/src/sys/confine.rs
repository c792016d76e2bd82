//! Giving up rights, which no process gets back: privileges by exec, files (Landlock), system calls (seccomp).
#![allow(unsafe_code)]

use crate::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Whether a filter of this process denies it to open files.
static OPENS_NO_FILES: AtomicBool = AtomicBool::new(false);

/// The filter that this process is about to take denies it to open files. The library opens none from now on: an attempt may
/// end the process.
pub fn give_up_opening() {
    // Relaxed: the calling thread's own attempts come after it, and its process has no other thread that opens files yet.
    OPENS_NO_FILES.store(true, Relaxed);
}

/// Whether this process may open files, as far as the library has taken that right from it.
pub fn may_open() -> bool {
    !OPENS_NO_FILES.load(Relaxed)
}

/// No `exec` of the calling thread, or of what it starts, gains privileges from now on.
pub fn give_up_privileges() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)
}

fn checked(result: libc::c_long) -> Result<(), Errno> {
    match result {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        // With `TSYNC`: the thread that could not take the filter.
        0 => Ok(()),
        _ => Err(Errno::SRCH),
    }
}

/// Restricts the calling thread, and what it starts, by a Landlock ruleset.
pub fn restrict_files(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: a descriptor and flags.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
}

/// The most instructions of a filter that [`filter_calls`] accepts.
pub const MAX_INSTRUCTIONS: usize = 2048;
/// The size of an instruction of the kernel's filters, `struct sock_filter`.
pub const INSTRUCTION_BYTES: usize = size_of::<libc::sock_filter>();

/// Filters the system calls of all threads of the process by the program in a file, in the kernel's binary form.
pub fn filter_calls(program: impl AsFd) -> Result<(), Errno> {
    let mut code = [0_u64; MAX_INSTRUCTIONS];
    // SAFETY: the bytes of an array of integers.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(code.as_mut_ptr().cast::<u8>(), size_of_val(&code))
    };
    let length = super::memory::read_at(program, bytes, 0)? / INSTRUCTION_BYTES;
    if length == 0 {
        // The kernel's error would be the one of a kernel without filters.
        return Err(Errno::BADF);
    }
    let program = libc::sock_fprog {
        len: length as u16,
        filter: code.as_mut_ptr().cast(),
    };
    // SAFETY: the program is as long as it says, and is copied by the call.
    checked(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    })
}
