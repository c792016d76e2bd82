//! Resource limits and usage.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::time::Duration;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

/// The resources that a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Processor time in its own code.
    pub user_time: Duration,
    /// Processor time in the kernel.
    pub system_time: Duration,
    /// The maximum of resident memory, in KiB, shared memory included.
    pub max_rss_kib: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Voluntary context switches: it gave up the processor to wait.
    pub voluntary_switches: u64,
    /// Involuntary context switches: it was preempted.
    pub involuntary_switches: u64,
}

impl Usage {
    #[doc(hidden)]
    #[must_use]
    pub fn from_raw(raw: &libc::rusage) -> Self {
        let time =
            |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Self {
            user_time: time(raw.ru_utime),
            system_time: time(raw.ru_stime),
            max_rss_kib: raw.ru_maxrss as u64,
            minor_faults: raw.ru_minflt as u64,
            major_faults: raw.ru_majflt as u64,
            voluntary_switches: raw.ru_nvcsw as u64,
            involuntary_switches: raw.ru_nivcsw as u64,
        }
    }
}

pub(super) fn no_usage() -> libc::rusage {
    // SAFETY: the structure consists of integers.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// The resources that the calling process has used so far.
pub fn usage() -> Usage {
    let mut usage = no_usage();
    // SAFETY: the kernel writes only the variable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    Usage::from_raw(&usage)
}

/// Limits the address space permanently: soft and hard, in bytes.
pub fn limit_address_space(bytes: u64) -> Result<(), Errno> {
    limit(Resource::As, bytes, bytes)
}

/// Limits core files permanently: soft and hard, in bytes.
pub fn limit_core(bytes: u64) -> Result<(), Errno> {
    limit(Resource::Core, bytes, bytes)
}

/// Limits processor time: the kernel sends SIGXCPU after `seconds` and each second from then on, SIGKILL after
/// [`CPU_GRACE`] more. With equal limits it would send SIGKILL alone.
pub fn limit_cpu(seconds: u64) -> Result<(), Errno> {
    // The kernel treats 0 as 1.
    let soft = seconds.max(1);
    let mut hard = soft.saturating_add(CPU_GRACE);
    if let Some(allowed) = rustix::process::getrlimit(Resource::Cpu).maximum {
        if allowed <= soft {
            return Err(Errno::PERM);
        }
        hard = hard.min(allowed);
    }
    limit(Resource::Cpu, soft, hard)
}

/// Seconds of processor time between SIGXCPU and SIGKILL.
pub const CPU_GRACE: u64 = 5;

fn limit(resource: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let (current, maximum) = (Some(soft), Some(hard));
    rustix::process::setrlimit(resource, Rlimit { current, maximum })
}
