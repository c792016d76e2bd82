//! Creating processes, and their exit status.
#![allow(unsafe_code)]

use super::cancellation::Undisturbed;
use super::errno::{answer, done};
use super::limits::{self, Usage};
use crate::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use crate::time::Deadline;
use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd, RawFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, MprotectFlags};
use rustix::process::{Pid, PidfdFlags};

bitflags::bitflags! {
    /// What a new process shares with its creator, in addition to shared mappings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Sharing: i32 {
        /// Descriptors.
        const FILES = libc::CLONE_FILES;
        /// Working directory, root and umask.
        const FS = libc::CLONE_FS;
        /// The list of System V semaphore adjustments.
        const SYSV_UNDO = libc::CLONE_SYSVSEM;
        /// The parent: the new process is a sibling of its creator.
        const PARENT = libc::CLONE_PARENT;
    }
}

/// Memory for a stack, with a guard page below it.
#[derive(Debug)]
pub struct Stack {
    base: NonNull<c_void>,
    bytes: usize,
}

/// The smallest stack: `clone` writes to its top, and a coproc needs some of it to start and to report a panic.
const MIN_STACK_BYTES: usize = 64 << 10;

impl Stack {
    /// Maps a stack of at least `bytes`, and of at least 64 KiB; the kernel adds memory as it is touched.
    pub fn map(bytes: usize) -> Result<Self, Errno> {
        let page = super::memory::page_bytes();
        let bytes = bytes
            .max(MIN_STACK_BYTES)
            .checked_next_multiple_of(page)
            .and_then(|bytes| bytes.checked_add(page))
            .ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        let base = super::memory::map_anonymous(bytes, flags)?;
        let stack = Self { base, bytes };
        // SAFETY: the lowest page of the mapping made above.
        unsafe { rustix::mm::mprotect(base.as_ptr(), page, MprotectFlags::empty())? };
        Ok(stack)
    }

    pub(super) fn top(&self) -> *mut c_void {
        // SAFETY: the pointer is one past the end of the mapping.
        unsafe { self.base.as_ptr().byte_add(self.bytes) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: no thread of this process runs on it: the new process runs on a copy of its own.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.bytes) };
    }
}

/// Clones the calling thread into a process of its own, with a copy of its memory, which runs `body(argument)`
/// on `stack`. Returns its ID, which is stored in `pid` before the process runs.
///
/// The new process has no exit signal: it sends no SIGCHLD, and no wait for any child returns it. The exit
/// signal of a sibling is that of its creator, so the same holds for the siblings that it creates. The C
/// library's record of the thread ID is updated, its robust list is not; no `atfork` handler runs.
///
/// # Safety
/// `body` never returns, unwinds or uses anything that the caller's other threads hold locked. It sees
/// `argument` and the caller's frame in a copy of their state at the call.
pub unsafe fn clone(
    stack: &Stack,
    sharing: Sharing,
    body: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    pid: &AtomicU32,
) -> Result<u32, Errno> {
    let tid_address = super::id_place::place_of_id();
    let mut flags = sharing.bits() | libc::CLONE_PARENT_SETTID;
    if !tid_address.is_null() {
        flags |= libc::CLONE_CHILD_SETTID;
        // With musl another word is to be cleared at a thread's end, and it refuses this flag.
        if cfg!(not(target_env = "musl")) {
            flags |= libc::CLONE_CHILD_CLEARTID;
        }
    }
    let (pid, no_tls) = (ptr::from_ref(pid).cast_mut(), ptr::null_mut::<c_void>());
    let top = stack.top();
    // SAFETY: without CLONE_VM the child has its own copy of the stack and of all other memory. The kernel
    // writes the ID to `pid` and, in the child, to the C library's own place for it.
    let made = unsafe { libc::clone(body, top, flags, argument, pid, no_tls, tid_address) };
    answer(made).map(|pid| pid as u32)
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signalled { signal: i32, core: bool },
}

/// Reaps a child of any kind; `block` waits for its end. `None`: it is still running. `CHILD`: it is no child
/// of this process, it was reaped already, or `pid` is 0.
pub fn reap(pid: u32, block: bool) -> Result<Option<(Ended, Usage)>, Errno> {
    wait_for(pid, libc::__WALL | if block { 0 } else { libc::WNOHANG })
}

/// Reaps a child as the flags say.
pub(super) fn wait_for(pid: u32, flags: c_int) -> Result<Option<(Ended, Usage)>, Errno> {
    // The kernel would take 0 for any child of this process's group.
    if pid == 0 {
        return Err(Errno::CHILD);
    }
    let (mut status, mut usage) = (0, limits::no_usage());
    // SAFETY: the kernel writes only the two variables.
    let mut wait =
        || unsafe { libc::wait4(pid.cast_signed(), &raw mut status, flags, &raw mut usage) };
    if retry_on_intr(|| answer(wait()))? == 0 {
        return Ok(None);
    }
    let ended = if libc::WIFSIGNALED(status) {
        Ended::Signalled {
            signal: libc::WTERMSIG(status),
            core: libc::WCOREDUMP(status),
        }
    } else {
        Ended::Exited(libc::WEXITSTATUS(status))
    };
    Ok(Some((ended, Usage::from_raw(&usage))))
}

/// A descriptor for a process that is not reaped yet, as the caller knows.
pub fn open_process(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// Sends a signal to the process that a descriptor refers to; a reused ID cannot redirect it.
pub fn send_signal(process: impl AsFd, signal: rustix::process::Signal) -> Result<(), Errno> {
    rustix::process::pidfd_send_signal(process, signal)
}

/// Waits for the end of a process, or until a pipe can be read; returns whether it came by the deadline.
pub fn wait_for_end(process: impl AsFd, deadline: Option<Deadline>) -> Result<bool, Errno> {
    let mut entries = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    loop {
        let left = deadline.and_then(|deadline| Timespec::try_from(deadline.remaining()).ok());
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
    look_for_child(libc::P_PIDFD, id).is_ok()
}

/// Whether a process of this ID, a child of this one, has ended; also if it was reaped already. It is not reaped.
pub fn has_ended(pid: u32) -> bool {
    look_for_child(libc::P_PID, pid).unwrap_or(true)
}

/// Whether such a child has ended.
pub(super) fn look_for_child(kind: libc::idtype_t, id: u32) -> Result<bool, Errno> {
    let _undisturbed = Undisturbed::begin();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes only `info`. WNOWAIT: no child is reaped.
    done(unsafe { libc::waitid(kind, id, info.as_mut_ptr(), flags) })?;
    // SAFETY: zeroed, or written by the kernel; the ID is 0 if no child has ended.
    Ok(unsafe { info.assume_init().si_pid() } != 0)
}

/// The number of threads of the calling process; `None` if that cannot be known.
pub fn threads() -> Option<u32> {
    let tasks = rustix::fs::stat(c"/proc/self/task").ok()?;
    // A directory has two links of its own, and one for each thread.
    u32::try_from(tasks.st_nlink).ok()?.checked_sub(2)
}

/// Whether the calling process has one thread, and no unreaped child; false if that cannot be known.
pub fn is_single_threaded_and_childless() -> bool {
    threads() == Some(1) && look_for_child(libc::P_ALL, 0) == Err(Errno::CHILD)
}

/// Kills a child; `PERM` if it is another user's, `SRCH` or `CHILD` if it was reaped and the ID is nobody's or that of a process
/// that is no child of this one.
pub fn kill_child(pid: u32) -> Result<(), Errno> {
    match open_process(pid) {
        Ok(process) if is_child(&process) => send_signal(process, rustix::process::Signal::KILL),
        Ok(_) => Err(Errno::CHILD),
        // No descriptor is free. The ID is asked for instead, at this moment.
        Err(Errno::MFILE | Errno::NFILE) => {
            look_for_child(libc::P_PID, pid).and_then(|_| kill(pid))
        }
        Err(error) => Err(error),
    }
}

fn kill(pid: u32) -> Result<(), Errno> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
}

/// Kills the calling process.
pub fn kill_self() -> ! {
    let _ = kill(super::thread::process_id());
    exit(1)
}

/// The parent's ID; 0 if it is in another PID namespace.
pub fn parent() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid().cast_unsigned())
}

/// Whether the calling process is killed when the thread that created it ends.
pub fn end_with_creating_thread(ends: bool) {
    let signal = if ends { libc::SIGKILL } else { 0 };
    // SAFETY: the argument is a signal's number, or 0.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

/// Ends the calling process with all its threads at once: no handlers, no destructors.
pub fn exit(status: i32) -> ! {
    // SAFETY: the call only ends the process.
    unsafe { libc::_exit(status) }
}

/// After this call `exit` runs the handlers that are registered later, then `last`, and none of those
/// registered before.
///
/// # Safety
/// `last` may be called in a thread that is in `exit`.
#[cfg(target_env = "gnu")]
pub unsafe fn cut_exit_handlers(last: unsafe extern "C" fn()) {
    unsafe extern "C" {
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    extern "C" fn cut(status: c_int, last: *mut c_void) {
        // SAFETY: `last` is the function that `on_exit` was given below; the thread is in `exit`.
        unsafe {
            let last: unsafe extern "C" fn() = core::mem::transmute(last);
            last();
        }
        flush_c_output();
        exit(status)
    }
    // SAFETY: handlers run in reverse order of registration; this one ends the process.
    let _ = unsafe { on_exit(cut, last as *mut c_void) };
}

/// Other C libraries do not pass the exit status to a handler.
///
/// # Safety
/// None is needed here.
#[cfg(not(target_env = "gnu"))]
pub unsafe fn cut_exit_handlers(_: unsafe extern "C" fn()) {}

unsafe extern "C" {
    #[link_name = "stdout"]
    static C_STDOUT: *mut libc::FILE;
    fn __fpurge(stream: *mut libc::FILE);
    fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
    fn funlockfile(stream: *mut libc::FILE);
}

/// Whether the stream of C code's output is locked for ever: this process is a copy, and the thread that had locked it is not
/// in it.
static C_OUTPUT_IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// Writes C code's buffered output.
pub fn flush_c_output() {
    // Relaxed: written by the thread that began this process.
    if C_OUTPUT_IS_LOCKED.load(Relaxed) {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    // SAFETY: the stream is the C library's own, which locks it.
    unsafe { libc::fflush(C_STDOUT) };
}

/// Discards C code's buffered output, in a copy of a process: it is the other one's to write.
pub fn discard_c_output() {
    // SAFETY: the stream is the C library's own, and this thread has locked it.
    unsafe {
        if ftrylockfile(C_STDOUT) == 0 {
            __fpurge(C_STDOUT);
            funlockfile(C_STDOUT);
        } else {
            C_OUTPUT_IS_LOCKED.store(true, Relaxed);
        }
    }
}

/// The system call, since musl has no function for it.
///
/// # Safety
/// No owner of a descriptor that this closes uses or drops it.
pub(super) unsafe fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    // SAFETY: by the caller's contract; the kernel uses no memory of the caller's.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) })
}

/// Closes every descriptor from 3 on except `kept`, which it sorts.
///
/// # Safety
/// No owner of any other descriptor uses or drops it.
pub unsafe fn close_all_but(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first = 3;
    for keep in kept.iter().copied().filter(|keep| *keep >= 3) {
        if keep > first {
            // SAFETY: by the contract.
            let _ = unsafe { close_range(first as u32, keep as u32 - 1, 0) };
        }
        first = keep + 1;
    }
    // SAFETY: by the contract.
    let _ = unsafe { close_range(first as u32, u32::MAX, 0) };
}

/// Gives the calling thread an empty descriptor table of its own.
///
/// # Safety
/// The thread uses and drops no descriptor that it, or the process, had opened before.
pub unsafe fn leave_descriptors() -> Result<(), Errno> {
    // SAFETY: CLOSE_RANGE_UNSHARE: the descriptors are closed in the new table alone, and by the caller's contract this
    // thread uses none of them.
    unsafe { close_range(0, u32::MAX, libc::CLOSE_RANGE_UNSHARE) }
}

/// Acquires and releases every lock of the C library's allocator and loader.
pub fn touch_libc_locks() {
    unsafe extern "C" fn next(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        0
    }
    // SAFETY: `next` does not use its arguments.
    unsafe { libc::dl_iterate_phdr(Some(next), ptr::null_mut()) };
    // SAFETY: no preconditions; it counts in each arena under that arena's lock.
    #[cfg(target_env = "gnu")]
    let _ = unsafe { libc::mallinfo2() };
    flush_c_output();
}

/// Renames the calling process in ps and top; at most 15 bytes are kept.
pub fn set_name(name: &[u8]) {
    let mut short = [0; 16];
    let kept = name.len().min(15);
    short[..kept].copy_from_slice(&name[..kept]);
    // SAFETY: `short` is a string with its NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, short.as_ptr()) };
}

/// Registers `last` to be called when the process exits normally.
pub fn at_exit(last: extern "C" fn()) {
    // SAFETY: the function lives as long as the program and does not unwind.
    unsafe { libc::atexit(last) };
}
