//! Making processes, and learning how they ended.
#![allow(unsafe_code)]

use super::errno::{done, last_error};
use super::limits::{self, Usage};
use crate::atomic::AtomicU32;
use crate::time::Deadline;
use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Pid, PidfdFlags};

bitflags::bitflags! {
    /// What a new process has in common with its maker, beside shared mappings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Sharing: i32 {
        /// Descriptors.
        const FILES = libc::CLONE_FILES;
        /// Working directory, root and umask.
        const FS = libc::CLONE_FS;
        /// The list of System V semaphore adjustments.
        const SYSV_UNDO = libc::CLONE_SYSVSEM;
        /// The parent: the new process is a sibling of its maker.
        const PARENT = libc::CLONE_PARENT;
    }
}

/// Memory for a stack, with a guard page below it.
#[derive(Debug)]
pub struct Stack {
    base: NonNull<c_void>,
    bytes: usize,
}

/// The smallest stack: cloning writes to its top, and a coproc needs some of it to start and to
/// report a panic.
const MIN_STACK_BYTES: usize = 64 << 10;

impl Stack {
    /// Maps a stack of at least `bytes`, and of at least 64 KiB; memory follows as it is touched.
    pub fn map(bytes: usize) -> Result<Self, Errno> {
        let page = super::memory::page_bytes();
        let bytes = bytes
            .max(MIN_STACK_BYTES)
            .checked_next_multiple_of(page)
            .and_then(|bytes| bytes.checked_add(page))
            .ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: a fresh mapping at an address of the kernel's choice, and its lowest page.
        let base = unsafe {
            let base = rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?;
            if let Err(error) = rustix::mm::mprotect(base, page, MprotectFlags::empty()) {
                let _ = rustix::mm::munmap(base, bytes);
                return Err(error);
            }
            base
        };
        Ok(Self {
            base: NonNull::new(base).ok_or(Errno::NOMEM)?,
            bytes,
        })
    }

    pub(super) fn top(&self) -> *mut c_void {
        // SAFETY: one past the end of the mapping.
        unsafe { self.base.as_ptr().byte_add(self.bytes) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: nobody runs on it: the process that does has a copy of its own.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.bytes) };
    }
}

/// Clones the calling thread into a process of its own, with a copy of its memory, that runs
/// `body(argument)` on `stack`. Gives its ID, which is also in `pid` before it runs.
///
/// Its exit signal is none: neither SIGCHLD nor a wait for any child meets it, and as the exit
/// signal of a sibling is its maker's, nor do they meet that one's siblings. The C library's
/// record of the thread ID is renewed, its robust list is not; no `atfork` handler runs.
///
/// # Safety
/// `body` never returns, unwinds or uses what the caller's other threads hold locked. `argument`
/// and the caller's frame are as they are now, in a copy.
pub unsafe fn clone(
    stack: &Stack,
    sharing: Sharing,
    body: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    pid: &AtomicU32,
) -> Result<u32, Errno> {
    let tid_address = tid_address();
    let mut flags = sharing.bits() | libc::CLONE_PARENT_SETTID;
    if !tid_address.is_null() {
        flags |= libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    }
    // SAFETY: without CLONE_VM the child has its own copy of the stack and of all else; the kernel
    // writes the ID to `pid` and, in the child, to the C library's own place for it.
    let made = unsafe {
        libc::clone(
            body,
            stack.top(),
            flags,
            argument,
            ptr::from_ref(pid).cast_mut(),
            ptr::null_mut::<c_void>(),
            tid_address,
        )
    };
    if made < 0 {
        Err(last_error())
    } else {
        Ok(made.cast_unsigned())
    }
}

/// Where the C library keeps the calling thread's ID, null if that is unknown.
fn tid_address() -> *mut u32 {
    let mut address: *mut u32 = ptr::null_mut();
    // SAFETY: the kernel writes the variable.
    let answer = unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut address, 0, 0, 0) };
    if answer == 0 { address } else { search_tid() }
}

/// Finds the ID in the C library's thread descriptor, for a kernel without checkpoint support.
fn search_tid() -> *mut u32 {
    const SEARCHED: usize = 1024;
    let tid = super::thread::thread_id();
    // SAFETY: returns the calling thread's descriptor, which is longer than what is searched.
    let descriptor: *mut u32 =
        ptr::with_exposed_provenance_mut(unsafe { libc::pthread_self() } as usize);
    let mut found = (0..SEARCHED / size_of::<u32>())
        // SAFETY: inside the descriptor, as above.
        .map(|index| unsafe { descriptor.add(index) })
        // SAFETY: as above.
        .filter(|address| unsafe { address.read_volatile() } == tid);
    match (found.next(), found.next()) {
        (Some(address), None) => address,
        _ => ptr::null_mut(),
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signalled { signal: i32, core: bool },
}

/// Reaps a child: what kind it is of, and whether it waits for its end. `None` if it runs; `CHILD`
/// if it is no child of this process, or reaped already, or 0, which names no process.
pub fn reap(pid: u32, block: bool) -> Result<Option<(Ended, Usage)>, Errno> {
    // The kernel would take it for any child of this process's group.
    if pid == 0 {
        return Err(Errno::CHILD);
    }
    let mut status = 0;
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        let mut usage = limits::no_usage();
        // SAFETY: the kernel writes the two variables.
        let waited =
            unsafe { libc::wait4(pid.cast_signed(), &raw mut status, flags, &raw mut usage) };
        match waited {
            0 => return Ok(None),
            -1 => match last_error() {
                Errno::INTR => {}
                error => return Err(error),
            },
            _ => {
                let ended = if libc::WIFSIGNALED(status) {
                    Ended::Signalled {
                        signal: libc::WTERMSIG(status),
                        core: libc::WCOREDUMP(status),
                    }
                } else {
                    Ended::Exited(libc::WEXITSTATUS(status))
                };
                return Ok(Some((ended, Usage::from_raw(&usage))));
            }
        }
    }
}

/// A descriptor for a process that the caller knows not to be reaped yet.
pub fn open_process(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// Sends a signal to the process that a descriptor stands for, which is never another's.
pub fn send_signal(process: impl AsFd, signal: rustix::process::Signal) -> Result<(), Errno> {
    rustix::process::pidfd_send_signal(process, signal)
}

/// Waits for the end of a process; whether it ended by the deadline.
pub fn wait_for_end(process: impl AsFd, deadline: Option<Deadline>) -> Result<bool, Errno> {
    let mut entries = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    loop {
        let left = deadline.map(|deadline| {
            let left = deadline.remaining();
            Timespec {
                tv_sec: left.as_secs() as _,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        match rustix::event::poll(&mut entries, left.as_ref()) {
            Ok(0) | Err(Errno::INTR) if deadline.is_some_and(Deadline::has_passed) => {
                return Ok(false);
            }
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

/// Whether a process is a child of this one, reaped or not.
pub fn is_child(process: impl AsFd) -> bool {
    use rustix::fd::AsRawFd;
    let id = process.as_fd().as_raw_fd().cast_unsigned();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes the variable. Nothing is reaped.
    unsafe { libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), flags) == 0 }
}

/// How many threads the calling process has; `None` if that cannot be known.
pub fn threads() -> Option<u32> {
    let tasks = rustix::fs::stat(c"/proc/self/task").ok()?;
    // The two links that each directory has, and one for each thread.
    u32::try_from(tasks.st_nlink).ok()?.checked_sub(2)
}

/// Whether the calling process has one thread, and no child that was not reaped; false if that cannot be known.
pub fn is_lone() -> bool {
    let is_one = threads() == Some(1);
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    is_one
        // SAFETY: the kernel writes the variable. Nothing is reaped.
        && unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), flags) } == -1
        && last_error() == Errno::CHILD
}

/// Kills a child that the caller knows not to be reaped yet; `PERM` if it is another user's.
pub fn kill_child(pid: u32) -> Result<(), Errno> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
}

/// Kills the calling process.
pub fn kill_self() -> ! {
    let _ = kill_child(super::thread::process_id());
    exit(1)
}

/// The parent's ID; 0 if it is in another PID namespace.
pub fn parent() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned())
}

/// Whether the calling process is killed when the thread that created it ends.
pub fn end_with_creating_thread(ends: bool) {
    let signal = if ends { libc::SIGKILL } else { 0 };
    // SAFETY: a signal's number, or none.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

/// Ends the calling process, all its threads, now: no handlers, no destructors.
pub fn exit(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// From now on `exit` runs the handlers that are registered after this call, then `last`, and none of those
/// registered before it.
#[cfg(target_env = "gnu")]
pub fn cut_exit_handlers(last: extern "C" fn()) {
    unsafe extern "C" {
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    extern "C" fn cut(status: c_int, last: *mut c_void) {
        // SAFETY: what was given below.
        let last: extern "C" fn() = unsafe { core::mem::transmute(last) };
        last();
        flush_c_output();
        exit(status)
    }
    // SAFETY: handlers run newest first; this one ends the process.
    let _ = unsafe { on_exit(cut, last as *mut c_void) };
}

/// Other C libraries do not tell a handler the exit status.
#[cfg(not(target_env = "gnu"))]
pub fn cut_exit_handlers(_: extern "C" fn()) {}

unsafe extern "C" {
    #[link_name = "stdout"]
    static C_STDOUT: *mut libc::FILE;
    fn __fpurge(stream: *mut libc::FILE);
}

/// Writes what C code has printed.
pub fn flush_c_output() {
    // SAFETY: the C library's own stream, which it locks.
    unsafe { libc::fflush(C_STDOUT) };
}

/// Forgets what C code had printed but not written: it is the parent's to write.
pub fn forget_c_output() {
    // SAFETY: the C library's own stream; this process has one thread.
    unsafe { __fpurge(C_STDOUT) };
}

/// Closes every descriptor from 3 on but `kept`, which it sorts.
///
/// # Safety
/// No owner of any of the others uses or drops it.
pub unsafe fn close_all_but(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first = 3;
    for keep in kept.iter().copied().filter(|keep| *keep >= 3) {
        if keep > first {
            // SAFETY: by the contract.
            unsafe { libc::close_range(first as u32, keep as u32 - 1, 0) };
        }
        first = keep + 1;
    }
    // SAFETY: by the contract.
    unsafe { libc::close_range(first as u32, u32::MAX, 0) };
}

/// Gives the calling thread a table of descriptors of its own, with none in it.
pub fn leave_descriptors() -> Result<(), Errno> {
    // SAFETY: what is closed is closed in the new table alone.
    done(unsafe { libc::close_range(0, u32::MAX, libc::CLOSE_RANGE_UNSHARE as i32) })
}

/// Takes every lock that the C library's allocator and loader have, and gives it back.
pub fn touch_libc_locks() {
    unsafe extern "C" fn next(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        0
    }
    // SAFETY: `next` looks at nothing.
    unsafe { libc::dl_iterate_phdr(Some(next), ptr::null_mut()) };
    // SAFETY: it counts, in each arena, under that arena's lock.
    #[cfg(target_env = "gnu")]
    let _ = unsafe { libc::mallinfo2() };
    flush_c_output();
}

/// Renames the calling process in ps and top; 15 bytes are kept.
pub fn set_name(name: &[u8]) {
    let mut short = [0; 16];
    let kept = name.len().min(15);
    short[..kept].copy_from_slice(&name[..kept]);
    // SAFETY: a string with its NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, short.as_ptr()) };
}

/// Has `last` called when the process ends in good order.
pub fn at_exit(last: extern "C" fn()) {
    // SAFETY: a function that lives as long as the program; it does not unwind.
    unsafe { libc::atexit(last) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tid_is_found_without_the_kernels_help() {
        let found = search_tid();
        assert_eq!(found, tid_address());
    }
}
