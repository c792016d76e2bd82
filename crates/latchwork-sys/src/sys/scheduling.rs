//! Scheduling policy, priority, niceness and affinity of the calling thread.
#![allow(unsafe_code)]

use super::cancellation::Undisturbed;
use super::errno::{answer, done};
use crate::atomic::{AtomicU32, Ordering};
use rustix::io::Errno;

/// A scheduling policy of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Other,
    Batch,
    Idle,
    Fifo,
    RoundRobin,
}

/// Sets the policy; the priority is 0 for all but the real-time policies.
pub fn set_policy(policy: Policy, priority: i32) -> Result<(), Errno> {
    let policy = match policy {
        Policy::Other => libc::SCHED_OTHER,
        Policy::Batch => libc::SCHED_BATCH,
        Policy::Idle => libc::SCHED_IDLE,
        Policy::Fifo => libc::SCHED_FIFO,
        Policy::RoundRobin => libc::SCHED_RR,
    };
    set_scheduler(0, policy, priority)
}

/// Sets the policy, with flags, and the priority of a thread; 0 is the calling thread.
pub(super) fn set_scheduler(thread: u32, policy: i32, priority: i32) -> Result<(), Errno> {
    let (call, parameter) = (libc::SYS_sched_setscheduler, &raw const priority);
    // The system call, since musl's function is an error stub.
    // SAFETY: the kernel reads a `sched_param`, which is one int.
    done(unsafe { libc::syscall(call, thread, policy, parameter) })
}

/// How the kernel schedules a thread, without its niceness. Fits into a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// The kernel's number of the policy.
    policy: u8,
    /// Its children start as ordinary threads: `SCHED_RESET_ON_FORK`.
    reset_on_fork: bool,
    /// 1 to 99; 0 if not real-time.
    priority: u8,
}

impl Scheduling {
    /// The scheduling of an ordinary thread.
    pub const ORDINARY: Self = Self {
        policy: libc::SCHED_OTHER as u8,
        reset_on_fork: false,
        priority: 0,
    };

    /// The calling thread's scheduling.
    pub fn own() -> Result<Self, Errno> {
        Self::of(0)
    }

    /// A thread's scheduling; 0 is the calling thread.
    pub fn of(thread: u32) -> Result<Self, Errno> {
        let attributes = Attributes::of(thread)?;
        Ok(Self {
            policy: attributes.policy as u8,
            reset_on_fork: attributes.flags & RESET_ON_FORK != 0,
            priority: attributes.priority as u8,
        })
    }

    /// The real-time priority; 0 if it is not real-time.
    #[inline]
    pub fn priority(self) -> u8 {
        self.priority
    }

    /// Whether the policy is `SCHED_DEADLINE`, which precedes every priority.
    pub fn is_deadline(self) -> bool {
        self.policy == libc::SCHED_DEADLINE as u8
    }

    /// The same with another real-time priority; `SCHED_FIFO` if it is not real-time.
    pub fn at(self, priority: u8) -> Self {
        let policy = if self.priority == 0 {
            libc::SCHED_FIFO as u8
        } else {
            self.policy
        };
        Self {
            policy,
            priority,
            ..self
        }
    }

    /// The same with the reset-on-fork flag of `other`.
    pub fn with_flag_of(self, other: Self) -> Self {
        Self {
            reset_on_fork: other.reset_on_fork,
            ..self
        }
    }

    /// Applies it to the calling thread. The kernel keeps the niceness of a thread while the thread is real-time.
    pub fn apply(self) -> Result<(), Errno> {
        self.apply_to(0)
    }

    /// Applies it to a thread; 0 is the calling thread.
    pub fn apply_to(self, thread: u32) -> Result<(), Errno> {
        let flag = if self.reset_on_fork {
            libc::SCHED_RESET_ON_FORK
        } else {
            0
        };
        set_scheduler(thread, i32::from(self.policy) | flag, self.priority.into())
    }
}

/// The calling thread's real-time priority; 0 if it is not real-time. Cheaper than [`Scheduling::own`].
#[inline(always)]
pub fn own_priority() -> Result<u8, Errno> {
    let mut priority = 0_i32;
    // SAFETY: the kernel writes a `sched_param`, which is one int.
    let result = unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut priority) };
    done(result).map(|()| priority as u8)
}

/// Sets the calling thread's real-time priority under any real-time policy.
///
/// EINVAL if it is not real-time.
#[inline(always)]
pub fn set_own_priority(priority: u8) -> Result<(), Errno> {
    let parameter = i32::from(priority);
    // SAFETY: the kernel reads a `sched_param`, which is one int.
    let result = unsafe { libc::syscall(libc::SYS_sched_setparam, 0, &raw const parameter) };
    done(result)
}

/// Sets a thread's real-time priority with `SCHED_FIFO`; 0 makes it an ordinary thread.
///
/// If the thread has just died, the ID may be another thread's: the caller has no other name for it.
pub fn set_priority_of(thread: u32, priority: u8) -> Result<(), Errno> {
    let policy = if priority == 0 {
        libc::SCHED_OTHER
    } else {
        libc::SCHED_FIFO
    };
    set_scheduler(thread, policy, priority.into())
}

/// The highest priority that the process may set without `CAP_SYS_NICE`; `u64::MAX` if there is no limit.
pub fn priority_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Rtprio)
        .current
        .unwrap_or(u64::MAX)
}

/// Lets tasks that wait for this processor, or will wake on it, run first, without a smaller share of it for
/// the caller.
///
/// Requests the longest time slices: a task with shorter ones preempts, when it wakes, a task in mid-slice
/// (Linux 6.12). A lower priority instead would make others wait for kernel locks that this task holds.
pub fn yield_to_shorter_slices() {
    const LONGEST: u64 = 100_000_000;
    let usual = [libc::SCHED_OTHER, libc::SCHED_BATCH];
    if let Ok(mut attributes) = Attributes::own()
        && usual.contains(&attributes.policy.cast_signed())
    {
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

/// A bit of [`Attributes::flags`].
const RESET_ON_FORK: u64 = 1;

impl Attributes {
    /// The calling thread's attributes.
    fn own() -> Result<Self, Errno> {
        Self::of(0)
    }

    /// A thread's attributes; 0 is the calling thread.
    fn of(thread: u32) -> Result<Self, Errno> {
        let mut attributes = Self::default();
        let size = size_of::<Self>();
        // SAFETY: the kernel writes at most `size` bytes.
        done(unsafe {
            libc::syscall(
                libc::SYS_sched_getattr,
                thread,
                &raw mut attributes,
                size,
                0,
            )
        })
        .map(|()| attributes)
    }
}

/// Sets the niceness, −20 to 19.
pub fn set_nice(nice: i32) -> Result<(), Errno> {
    // The kernel would clamp other values silently.
    if !(-20..=19).contains(&nice) {
        return Err(Errno::INVAL);
    }
    rustix::process::setpriority_process(None, nice)
}

/// The number of processors that a mask can name.
pub const MAX_CPUS: usize = 1024;

/// A set of processors: bit *n* of word *n* / 64.
pub type CpuMask = [u64; MAX_CPUS / 64];

/// One more than the highest number of a processor that the system has, at most [`MAX_CPUS`]; it does not change.
pub fn processor_count() -> u32 {
    /// 0: not read yet. (A `OnceLock` that a thread is setting during a fork is never set in the child.)
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed, both: all who read it read the same.
    let known = COUNT.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let _undisturbed = Undisturbed::begin();
    // "0-3", or "0,2-5". (`sysconf` counts processors, and in musl only those where the caller may run.)
    let present = std::fs::read_to_string("/sys/devices/system/cpu/present").unwrap_or_default();
    let highest = present.trim().rsplit(['-', ',']).next();
    let highest: Option<u32> = highest.and_then(|number| number.parse().ok());
    let count = highest.map_or_else(configured, |highest| highest.saturating_add(1));
    let count = count.clamp(1, MAX_CPUS as u32);
    COUNT.store(count, Ordering::Relaxed);
    count
}

fn configured() -> u32 {
    // SAFETY: no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(count).unwrap_or(1)
}

/// The processors on which a thread may run; 0 is the calling thread. `INVAL` if a mask cannot name all of them.
pub fn affinity_of(thread: u32) -> Result<CpuMask, Errno> {
    let mut mask = CpuMask::default();
    let all = allowed(thread)?;
    let (named, others) = all.split_at(mask.len());
    mask.copy_from_slice(named);
    let is_whole = others.iter().all(|word| *word == 0);
    is_whole.then_some(mask).ok_or(Errno::INVAL)
}

/// [`affinity_of`] in a mask for the largest number of processors for which a kernel can be configured.
fn allowed(thread: u32) -> Result<[u64; 8192 / 64], Errno> {
    let mut all = [0; 8192 / 64];
    let (call, bytes) = (libc::SYS_sched_getaffinity, size_of_val(&all));
    // SAFETY: the kernel writes at most `bytes` bytes.
    answer(unsafe { libc::syscall(call, thread, bytes, all.as_mut_ptr()) }).map(|_| all)
}

/// Binds a thread to those of these processors on which it may run; 0 is the calling thread.
///
/// If the thread has just died, the ID may be another thread's: the caller has no other name for it.
pub fn set_affinity_of(thread: u32, mask: &CpuMask) -> Result<(), Errno> {
    let (call, bytes) = (libc::SYS_sched_setaffinity, size_of::<CpuMask>());
    // SAFETY: the kernel reads the mask.
    done(unsafe { libc::syscall(call, thread, bytes, mask.as_ptr()) })
}

/// Binds the calling thread to processors; `INVAL` if it may not run on each of them.
pub fn set_affinity(mask: &CpuMask) -> Result<(), Errno> {
    set_affinity_of(0, mask)?;
    // The kernel silently leaves out processors that do not exist.
    let mut words = mask.iter().zip(allowed(0)?);
    let all = words.all(|(mask, allowed)| mask & !allowed == 0);
    if all { Ok(()) } else { Err(Errno::INVAL) }
}
