//! Scheduling policy, priority, niceness and affinity of the calling thread.
#![allow(unsafe_code)]

use rustix::io::Errno;

/// A policy as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Other,
    Batch,
    Idle,
    Fifo,
    RoundRobin,
}

/// Sets the policy, with a priority of 0 for all but the real-time ones.
pub(crate) fn set_policy(policy: Policy, priority: i32) -> Result<(), Errno> {
    let policy = match policy {
        Policy::Other => libc::SCHED_OTHER,
        Policy::Batch => libc::SCHED_BATCH,
        Policy::Idle => libc::SCHED_IDLE,
        Policy::Fifo => libc::SCHED_FIFO,
        Policy::RoundRobin => libc::SCHED_RR,
    };
    // musl's function of this name is an error stub.
    let parameter = priority;
    // SAFETY: the kernel reads a `sched_param`, which is one int.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            policy,
            &raw const parameter,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(super::process::last_error())
    }
}

/// Lets every other task go first from now on.
pub(crate) fn step_back() {
    let _ = set_policy(Policy::Idle, 0);
    rustix::thread::sched_yield();
}

/// Sets the niceness, −20 to 19.
pub(crate) fn set_nice(nice: i32) -> Result<(), Errno> {
    // The kernel would clamp it silently.
    if !(-20..=19).contains(&nice) {
        return Err(Errno::INVAL);
    }
    rustix::process::setpriority_process(None, nice)
}

/// Processors that a mask can name.
pub(crate) const MAX_CPUS: usize = 1024;

/// A set of processors: bit *n* of word *n* / 64.
pub(crate) type CpuMask = [u64; MAX_CPUS / 64];

/// Binds the calling thread to processors.
pub(crate) fn set_affinity(mask: &CpuMask) -> Result<(), Errno> {
    // SAFETY: the kernel reads the mask.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of::<CpuMask>(),
            mask.as_ptr(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(super::process::last_error())
    }
}
