//! What the system says about this process, and scheduling classes.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::thread;

use libc::{c_int, sched_param};

use super::errno;

/// Runs `work` on a thread of its own in SCHED_FIFO, so that the caller's class stays as it is.
///
/// # Errors
/// EPERM without CAP_SYS_NICE and without an RLIMIT_RTPRIO of `priority`; `work`'s own.
pub(crate) fn with_fifo<T: Send>(
    priority: c_int,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let param = sched_param {
                sched_priority: priority,
            };
            // Not sched_setscheduler: glibc's priority protection keeps a copy, which only this
            // call refreshes.
            // SAFETY: the calling thread is alive, `param` lives through the call.
            errno(unsafe {
                libc::pthread_setschedparam(
                    libc::pthread_self(),
                    libc::SCHED_FIFO,
                    &raw const param,
                )
            })?;
            work()
        });
        worker
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the measuring thread panicked")))
    })
}

/// The name of the calling thread's scheduling class.
pub(crate) fn scheduler_class() -> &'static str {
    // SAFETY: 0 is the caller, and no pointers are passed.
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
    if cfg!(target_env = "gnu") {
        // SAFETY: glibc returns a constant that ends in zero.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!("glibc {}", version.to_string_lossy())
    } else {
        "another C library".to_owned()
    }
}

/// Page faults of this process that needed no disk, since it began.
pub(crate) fn minor_faults() -> u64 {
    // SAFETY: all zeros is a value of this plain C type, and `usage` outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    usage.ru_minflt as u64
}
