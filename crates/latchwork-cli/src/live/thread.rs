//! The state of a thread from `/proc`: whether it runs, its priority, its system call.

use crate::process::Stat;
use std::fs;

/// A thread at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    /// Its ID in its own PID namespace: the one that it stores in lock words.
    pub(crate) own_tid: u32,
    pub(crate) name: String,
    /// As ps shows it: R, S, D, T, …
    pub(crate) state: char,
    pub(crate) schedule: Schedule,
    /// Its start time, in the kernel's ticks: another thread that gets the same ID later has another value.
    pub(crate) started: u64,
    /// Its processor time, in the kernel's ticks.
    pub(crate) ticks: u64,
    /// The processor on which it last ran.
    pub(crate) processor: usize,
    /// The line of `/proc` about its system call; `None` if the caller may not read it.
    pub(crate) call: Option<String>,
}

/// How the kernel schedules a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) policy: Policy,
    /// Niceness, or the priority of a real-time policy: 1 to 99.
    pub(crate) own: i32,
    /// 0: ordinary; 1 to 99: real-time, own or lent; 100: by deadline.
    pub(crate) rank: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Other,
    Fifo,
    RoundRobin,
    Batch,
    Idle,
    Deadline,
    Unknown,
}

impl Policy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Other => "OTHER",
            Self::Fifo => "FIFO",
            Self::RoundRobin => "RR",
            Self::Batch => "BATCH",
            Self::Idle => "IDLE",
            Self::Deadline => "DEADLINE",
            Self::Unknown => "?",
        }
    }
}

/// Fields of a `stat` file, counted from the state.
mod field {
    pub(super) const FLAGS: usize = 6;
    pub(super) const PRIORITY: usize = 15;
    pub(super) const NICE: usize = 16;
    pub(super) const STARTED: usize = 19;
    pub(super) const PROCESSOR: usize = 36;
    pub(super) const REAL_TIME_PRIORITY: usize = 37;
    pub(super) const POLICY: usize = 38;
}

/// The flag of a kernel thread.
const KERNEL_THREAD: u64 = 0x0020_0000;

impl Schedule {
    fn of(stat: &Stat) -> Option<Self> {
        let policy = match stat.number(field::POLICY)? {
            0 => Policy::Other,
            1 => Policy::Fifo,
            2 => Policy::RoundRobin,
            3 => Policy::Batch,
            5 => Policy::Idle,
            6 => Policy::Deadline,
            _ => Policy::Unknown,
        };
        let own = match policy {
            Policy::Fifo | Policy::RoundRobin => stat.signed(field::REAL_TIME_PRIORITY)?,
            Policy::Deadline => 0,
            _ => stat.signed(field::NICE)?,
        };
        // The effective priority, including a lent one: from -2 down it is a real-time priority.
        let counts = stat.signed(field::PRIORITY)?;
        Some(Self {
            policy,
            own: i32::try_from(own).ok()?,
            rank: i32::try_from((-1i64).saturating_sub(counts).clamp(0, 100)).ok()?,
        })
    }

    /// The thread's own priority, without a lent one, on the scale of `rank`.
    fn own_rank(self) -> i32 {
        match self.policy {
            Policy::Fifo | Policy::RoundRobin => self.own,
            Policy::Deadline => 100,
            _ => 0,
        }
    }

    /// The priority that it was lent, if it runs at a higher one than its own.
    pub(crate) fn lent(self) -> Option<i32> {
        (self.rank > self.own_rank()).then_some(self.rank)
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.policy.name())?;
        if self.policy != Policy::Deadline {
            write!(formatter, ":{}", self.own)?;
        }
        match self.lent() {
            Some(lent) => write!(formatter, "^{lent}"),
            None => Ok(()),
        }
    }
}

impl Thread {
    /// `None` if there is no such thread (any more), or if it is a kernel thread, or has ended.
    pub(crate) fn read(pid: u32, tid: u32, foreign_namespace: bool) -> Option<Self> {
        let stat = Stat::read(&format!("/proc/{pid}/task/{tid}/stat"))?;
        if stat.number(field::FLAGS)? & KERNEL_THREAD != 0 || matches!(stat.state()?, 'Z' | 'X') {
            return None;
        }
        Some(Self {
            tid,
            own_tid: if foreign_namespace {
                innermost_tid(pid, tid)?
            } else {
                tid
            },
            state: stat.state()?,
            schedule: Schedule::of(&stat)?,
            started: stat.number(field::STARTED)?,
            ticks: stat.ticks()?,
            processor: usize::try_from(stat.number(field::PROCESSOR)?).ok()?,
            name: stat.name,
            call: call(pid, tid),
        })
    }

    /// Whether it still sleeps in the call in which it was seen, and has not run since `turns` was read.
    pub(crate) fn is_still_asleep(&self, pid: u32, turns: Option<u64>) -> bool {
        turns_of(pid, self.tid) == turns && call(pid, self.tid) == self.call
    }

    /// Whether it runs, is about to run, or sleeps outside a system call: for a page, say.
    pub(crate) fn is_between_calls(&self) -> bool {
        let call = self.call.as_deref();
        call.is_some_and(|call| call == "running" || call.starts_with("-1 "))
    }

    /// The same thread, with the call that it is in now.
    pub(crate) fn reread(&self, pid: u32) -> Self {
        Self {
            call: call(pid, self.tid),
            ..self.clone()
        }
    }
}

/// Whether the kernel says that a thread sleeps for a futex; false if it does not say for what.
pub(crate) fn sleeps_for_futex(pid: u32, tid: u32) -> bool {
    let function = fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan"));
    function.is_ok_and(|function| function.contains("futex"))
}

fn call(pid: u32, tid: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// The number of the initial PID namespace (`PROC_PID_INIT_INO` of the kernel), from which all others are visible.
pub(crate) const INITIAL_NAMESPACE: u64 = 0xefff_fffc;

/// The number of a process's PID namespace; 0 if it cannot be read.
pub(crate) fn namespace(pid: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{pid}/ns/pid")).map_or(0, |file| file.ino())
}

/// The number of the command's PID namespace; 0 if it cannot be read.
pub(crate) fn own_namespace() -> u64 {
    namespace("self")
}

/// The last of a thread's IDs in the namespaces from this process's to its own.
fn innermost_tid(pid: u32, tid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status).into_owned();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// How many times a thread was given a processor.
pub(crate) fn turns_of(pid: u32, tid: u32) -> Option<u64> {
    let counted = || -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        text.split_ascii_whitespace().nth(2)?.parse().ok()
    };
    // If the kernel does not count that, all threads have 0.
    match counted() {
        Some(0) | None => switches_of(pid, tid),
        turns => turns,
    }
}

/// How many times a thread yielded a processor, or was preempted.
fn switches_of(pid: u32, tid: u32) -> Option<u64> {
    let status = fs::read(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status).into_owned();
    let counts = status.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        let count: u64 = count.trim().parse().ok()?;
        name.ends_with("_ctxt_switches").then_some(count)
    });
    counts.reduce(u64::wrapping_add)
}
