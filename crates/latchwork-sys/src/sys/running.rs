//! Whether another thread is running at this moment, and whether it still exists.
#![allow(unsafe_code)]

use super::errno::{keeping, last_error};
use rustix::io::Errno;

/// The CPU time that a thread of this process has used, in nanoseconds: it advances exactly while the
/// thread runs. `None` for a thread of another process. Some 280 ns.
pub fn cpu_time(thread: u32) -> Option<u64> {
    /// `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED` of Linux; the remaining bits are the inverted ID.
    const SCHEDULED_TIME_OF_THREAD: u32 = 4 | 2;
    let clock = (!thread << 3 | SCHEDULED_TIME_OF_THREAD).cast_signed();
    let mut time = core::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the kernel writes the time, or refuses.
    let result = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the time was written.
    let time = unsafe { time.assume_init() };
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Whether no thread has this ID: neither a running one, nor one that has ended and was not waited for. Some 100 ns. By a system call
/// that a confined coproc may make, unlike `kill`.
pub fn no_such_task(thread: u32) -> bool {
    let thread = thread.cast_signed();
    // 0 would be the calling thread.
    if thread <= 0 {
        return true;
    }
    let ask = || {
        // SAFETY: a number is all that it gets. (musl's function refuses each call.)
        let result = unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) };
        result < 0 && last_error() == Errno::SRCH
    };
    keeping(ask)
}

/// Whether the thread that had this ID at the time `seen` (since boot, in nanoseconds) has ended: no thread has
/// the ID, only its exit status is left, or the thread started later.
///
/// False if that cannot be known: with a hidden `/proc` a reused ID is not detected, and with one that shows other IDs
/// neither that nor an exit status that is left.
pub fn has_ended(thread: u32, seen: u64) -> bool {
    if no_such_task(thread) {
        return true;
    }
    if !super::introspect::shows_own_ids() {
        return false;
    }
    match super::inspect::thread_started(thread, thread) {
        Some(started) => started > seen,
        // A file without content is that of a dead thread; a missing file is that of a hidden one.
        None => std::path::Path::new(&format!("/proc/{thread}/task/{thread}/stat")).exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{clock, thread};

    #[test]
    fn the_time_of_a_thread_that_runs_advances_and_that_of_another_process_is_unknown() {
        let me = thread::thread_id();
        let first = cpu_time(me).unwrap();
        while cpu_time(me).unwrap() == first {}
        assert_eq!(cpu_time(1).is_some(), std::process::id() == 1);
    }

    #[test]
    fn a_thread_has_ended_when_it_is_joined_or_its_id_is_used_again() {
        let now = clock::since_boot();
        let other = std::thread::spawn(thread::thread_id).join().unwrap();
        // `join` may return before the thread's end is complete.
        while !has_ended(other, now) {
            std::thread::yield_now();
        }
        assert!(no_such_task(other) && no_such_task(0) && no_such_task(u32::MAX));
        let me = thread::thread_id();
        assert!(!no_such_task(me) && !no_such_task(std::process::id()));
        assert!(!has_ended(me, clock::since_boot()));
        assert!(has_ended(me, 0), "it started after the boot");
    }
}
