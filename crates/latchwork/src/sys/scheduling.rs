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

/// Lets tasks that wait for this processor, or will wake, go first, without a smaller share of it.
///
/// Asks for the longest turns that there are: who has shorter ones takes the processor, when it
/// wakes, from one in mid-turn (Linux 6.12). A lower priority instead would have others wait for
/// what this task holds in the kernel.
pub(crate) fn step_back() {
    const LONGEST: u64 = 100_000_000;
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel fills in as many bytes as it is told.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    let usual = [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&attributes.policy.cast_signed());
    if known == 0 && usual {
        attributes.runtime = LONGEST;
        // SAFETY: the kernel reads the structure.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
    rustix::thread::sched_yield();
}

/// `struct sched_attr`, in its first version.
#[derive(Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
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
