//! This process in the system: resource use, scheduling classes, placement, and time.
#![allow(unsafe_code)]

use std::io;
use std::thread;
use std::time::Duration;

use latchwork::time::Deadline;
use libc::{c_int, sched_param, timespec};
use rustix::thread::CpuSet;

use super::errno;

/// The ceiling of priority protection, and the priority of tasks below it. Both are far below those that watchdogs use.
pub(crate) const CEILING: c_int = 20;
pub(crate) const BELOW_CEILING: c_int = 10;

/// Runs `work` on a separate thread, in SCHED_FIFO if there is a `priority`, on `cpu` if there is one: the caller's
/// class and placement do not change. Without either, runs it on the calling thread.
///
/// # Errors
/// EPERM without CAP_SYS_NICE and without an RLIMIT_RTPRIO of `priority`; errors of `work`.
pub(crate) fn on_thread<T: Send>(
    priority: Option<c_int>,
    cpu: Option<usize>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    if priority.is_none() && cpu.is_none() {
        return work();
    }
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, move || {
            if let Some(cpu) = cpu {
                pin_to(cpu)?;
            }
            if let Some(priority) = priority {
                enter_fifo(priority)?;
            }
            work()
        })?;
        worker
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the measuring thread panicked")))
    })
}

/// Puts the calling thread into SCHED_FIFO.
pub(crate) fn enter_fifo(priority: c_int) -> io::Result<()> {
    // SAFETY: a structure of integers. (musl's has further ones, which mean nothing.)
    let mut param: sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // This does not use sched_setscheduler: glibc's priority protection keeps a copy of the parameters, which only this
    // call refreshes.
    // SAFETY: the calling thread is alive, `param` outlives the call.
    errno(unsafe {
        libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &raw const param)
    })
}

/// Pins the calling thread to one CPU.
pub(crate) fn pin_to(cpu: usize) -> io::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &cpus)?)
}

/// Lets the calling thread, and those that it starts, run only when no other thread does (SCHED_IDLE), or normally
/// again.
#[cfg(test)]
pub(crate) fn yields_to_all(yields: bool) -> io::Result<()> {
    let policy = match yields {
        true => libc::SCHED_IDLE,
        false => libc::SCHED_OTHER,
    };
    let none = sched_param { sched_priority: 0 };
    // SAFETY: 0 means the caller, and the parameters outlive the call.
    super::cvt(unsafe { libc::sched_setscheduler(0, policy, &raw const none) }).map(drop)
}

/// The name of the calling thread's scheduling class.
pub(crate) fn scheduler_class() -> &'static str {
    // SAFETY: 0 means the caller, and no pointers are passed.
    match unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER => "SCHED_OTHER",
        libc::SCHED_FIFO => "SCHED_FIFO",
        libc::SCHED_RR => "SCHED_RR",
        libc::SCHED_BATCH => "SCHED_BATCH",
        libc::SCHED_IDLE => "SCHED_IDLE",
        _ => "another scheduling class",
    }
}

/// The C library and its version.
pub(crate) fn libc_name() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: glibc returns a constant that ends in zero.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!("glibc {}", version.to_string_lossy())
    }
    #[cfg(not(target_env = "gnu"))]
    "another C library".to_owned()
}

/// Page faults of this process that needed no disk, since it began.
pub(crate) fn minor_faults() -> u64 {
    usage(libc::RUSAGE_SELF).ru_minflt as u64
}

/// How many times the calling thread has gone to sleep.
pub(crate) fn voluntary_switches() -> u64 {
    usage(libc::RUSAGE_THREAD).ru_nvcsw as u64
}

/// The processor time that this process has used.
pub(crate) fn cpu_time() -> Duration {
    cpu_time_of(libc::RUSAGE_SELF)
}

/// The processor time of its children that were waited for.
pub(crate) fn children_cpu_time() -> Duration {
    cpu_time_of(libc::RUSAGE_CHILDREN)
}

fn cpu_time_of(whose: c_int) -> Duration {
    let usage = usage(whose);
    let times = [usage.ru_utime, usage.ru_stime];
    let times = times.map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000));
    times.into_iter().sum()
}

fn usage(whose: c_int) -> libc::rusage {
    // SAFETY: all zeros is a value of this plain C type, and `usage` outlives the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &raw mut usage);
        usage
    }
}

/// The processor time that the calling thread has used.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// A point in time, as a C structure.
pub(super) fn timespec_of(deadline: Deadline) -> timespec {
    let nanoseconds = deadline.as_nanoseconds();
    timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as _,
        tv_nsec: (nanoseconds % 1_000_000_000) as _,
    }
}

/// Sleeps until `deadline`, by `clock_nanosleep`.
pub(crate) fn sleep_until(deadline: Deadline) {
    let time = timespec_of(deadline);
    let (clock, flags) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
    // SAFETY: `time` outlives the call; an absolute sleep returns no remaining time.
    while unsafe { libc::clock_nanosleep(clock, flags, &raw const time, std::ptr::null_mut()) }
        == libc::EINTR
    {}
}

/// Computes until this thread has used the CPU for `time`, or until `end`.
pub(crate) fn burn(time: Duration, end: Deadline) {
    let until = computed() + time;
    while computed() < until && !end.has_passed() {
        std::hint::spin_loop();
    }
}
