//! What this kernel, and this process on it, can do: the answers that `latchwork doctor` prints.
//!
//! The library asks the system for each feature once per process, by calls that change nothing (see
//! [`Features::probe`]). It does not infer features from the kernel's version, since distributions backport and
//! sandboxes forbid. (There is one exception: whether a call is free of kernel bugs that cannot be tested
//! safely.)
//!
//! ```
//! use latchwork::probe::{Feature, Features, Status};
//!
//! let features = Features::probe();
//! let waitv = features.find(Feature::FutexWaitv);
//! assert_eq!((waitv.since, waitv.status), (Some((5, 16)), Status::Available));
//! ```

mod table;

use crate::sys::{futex_pi, memory, probe as sys};
use rustix::io::{Errno, Result};
use rustix::process::Resource;
use rustix::thread::CapabilitySet;
use std::path::Path;
use std::sync::OnceLock;

/// Something that a system may have, allow or limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "`Finding::used_for` says what each is good for"
)]
pub enum Feature {
    FutexWaitv,
    RobustList,
    WipeOnFork,
    SealedMemoryFile,
    PidNamespace,
    SharedMemoryDirectory,
    PublishUnnamed,
    MapFixedNoReplace,
    MemoryFileNoExec,
    MemorySeal,
    FutexLockPi2,
    FutexRequeuePi,
    FutexPrivateHash,
    FutexRobustUnlock,
    Membarrier,
    Rseq,
    CloneIntoCgroup,
    PidFd,
    TidAddress,
    RealTime,
    MrspHelping,
    CapSysNice,
    Cgroup,
    LimitAddressSpace,
    LimitRealTimePriority,
    LimitNice,
    LimitProcesses,
    LimitLockedMemory,
    Overcommit,
}

/// How much depends on a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Group {
    /// Regions and robust locks do not work without it.
    Required,
    /// Without it the library does something in another way, or not at all.
    Optional,
    /// What the process is allowed to do.
    Privilege,
    /// How much the process may take.
    Limit,
}

/// Whether a feature is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// It is available and permitted.
    Available,
    /// The kernel, or the C library, does not have it.
    Missing,
    /// Permissions, a sandbox or a limit forbid it.
    NotPermitted,
    /// The system gave an answer that means none of these.
    Unknown,
}

/// The result for one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The feature.
    pub feature: Feature,
    /// Its name, unique, such as `futex_waitv`.
    pub name: &'static str,
    /// How much depends on it.
    pub group: Group,
    /// The first Linux with it, major and minor; `None` where that does not matter.
    pub since: Option<(u16, u16)>,
    /// Whether it is available.
    pub status: Status,
    /// A figure, path or error that goes with the status; may be empty.
    pub value: String,
    /// Its use, as a sentence about what the user gets.
    pub used_for: &'static str,
    /// What happens without it.
    pub fallback: &'static str,
}

impl Finding {
    /// The consequence for the user.
    #[must_use]
    pub fn consequence(&self) -> &'static str {
        if self.status == Status::Available {
            self.used_for
        } else {
            self.fallback
        }
    }
}

/// What this kernel, and this process on it, can do: see the [module](self).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Features {
    /// The kernel's release.
    pub kernel: String,
    /// The C library and its version.
    pub libc: String,
    /// CPUs that the probing thread may run on.
    pub cpus: u32,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// One for each [`Feature`], by group.
    pub findings: Vec<Finding>,
}

impl Features {
    /// Asks the system at the first call; later calls return the same result.
    ///
    /// The calls have no lasting effect: most are made so that the kernel refuses them. One thread is started
    /// that ends at once (it tries a real-time policy), and one empty file exists under a hidden name in
    /// `/dev/shm` for a moment.
    pub fn probe() -> &'static Self {
        static FEATURES: OnceLock<Features> = OnceLock::new();
        FEATURES.get_or_init(|| Self {
            kernel: sys::kernel_release(),
            libc: sys::libc_name(),
            cpus: sys::cpus().unwrap_or(1),
            page_bytes: memory::page_bytes(),
            findings: table::ROWS.iter().map(table::Row::probe).collect(),
        })
    }

    /// The finding for one feature.
    ///
    /// # Panics
    /// Never: there is a finding for every feature.
    #[must_use]
    pub fn find(&self, feature: Feature) -> &Finding {
        self.findings
            .iter()
            .find(|finding| finding.feature == feature)
            .expect("a row for every feature")
    }

    /// Whether a feature is available and permitted.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.find(feature).status == Status::Available
    }

    /// The findings of a group.
    pub fn of(&self, group: Group) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(move |finding| finding.group == group)
    }

    /// The required features that are missing: if there is any, regions and robust locks do not work.
    pub fn obstacles(&self) -> impl Iterator<Item = &Finding> {
        self.of(Group::Required)
            .filter(|finding| matches!(finding.status, Status::Missing | Status::NotPermitted))
    }
}

type Answer = (Status, String);

fn ask(feature: Feature) -> Answer {
    let directory = Path::new(crate::region::inspect::DIRECTORY);
    match feature {
        Feature::FutexWaitv => plain(sys::futex_waitv()),
        Feature::RobustList => robust_list(),
        Feature::WipeOnFork => plain(sys::wipe_on_fork()),
        Feature::SealedMemoryFile => plain(sys::sealed_memory_file()),
        Feature::PidNamespace => told(memory::pid_namespace(), |namespace| {
            let kind = if namespace == memory::ROOT_PID_NAMESPACE {
                ", the machine's own"
            } else {
                ""
            };
            format!("pid:[{namespace}]{kind}")
        }),
        Feature::SharedMemoryDirectory => told(sys::free_memory_files(directory), |free| {
            format!("{} free", bytes(free))
        }),
        Feature::PublishUnnamed => plain(sys::publish_unnamed(directory)),
        Feature::MapFixedNoReplace => plain(sys::map_fixed_noreplace()),
        Feature::MemoryFileNoExec => plain(sys::memory_file_noexec().map_err(unknown_flag)),
        Feature::MemorySeal => plain(sys::mseal()),
        Feature::FutexLockPi2 => plain(sys::futex_operation(
            libc::FUTEX_LOCK_PI2 | libc::FUTEX_PRIVATE_FLAG,
        )),
        Feature::FutexRequeuePi => requeue_pi(),
        Feature::FutexPrivateHash => {
            told(
                sys::futex_hash_slots().map_err(unknown_flag),
                |slots| match slots {
                    0 => "not used by this process so far".into(),
                    slots => format!("{slots} slots"),
                },
            )
        }
        Feature::FutexRobustUnlock => {
            const FUTEX_ROBUST_UNLOCK: i32 = 512;
            plain(sys::futex_operation(libc::FUTEX_WAKE | FUTEX_ROBUST_UNLOCK))
        }
        Feature::Membarrier => membarrier(),
        Feature::Rseq => rseq(),
        Feature::CloneIntoCgroup => plain(sys::clone_into_cgroup()),
        Feature::PidFd => plain(sys::pidfd().map_err(unknown_flag)),
        Feature::TidAddress => plain(sys::tid_address().map_err(unknown_flag)),
        Feature::RealTime => plain(sys::real_time()),
        Feature::MrspHelping => mrsp_helping(),
        Feature::CapSysNice => capability(CapabilitySet::SYS_NICE),
        Feature::Cgroup => told(sys::writable_cgroup(), |path| path.display().to_string()),
        Feature::LimitAddressSpace => limit(Resource::As, bytes),
        Feature::LimitRealTimePriority => {
            unless_zero(Resource::Rtprio, |priority| format!("up to {priority}"))
        }
        Feature::LimitNice => unless_zero(Resource::Nice, |most| {
            format!("down to {}", 20 - i64::try_from(most).unwrap_or(0).min(40))
        }),
        Feature::LimitProcesses => limit(Resource::Nproc, |count| count.to_string()),
        Feature::LimitLockedMemory => limit(Resource::Memlock, bytes),
        Feature::Overcommit => {
            told(
                sys::read_text("/proc/sys/vm/overcommit_memory"),
                |mode| match mode.trim() {
                    "0" => "0, heuristic".into(),
                    "1" => "1, always".into(),
                    "2" => "2, never".into(),
                    other => other.to_owned(),
                },
            )
        }
    }
}

fn status(error: Errno) -> Status {
    match error {
        Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOENT => Status::Missing,
        Errno::PERM | Errno::ACCESS | Errno::ROFS => Status::NotPermitted,
        _ => Status::Unknown,
    }
}

/// For calls with a flag: the kernel refuses a flag that it does not know.
fn unknown_flag(error: Errno) -> Errno {
    if error == Errno::INVAL {
        Errno::NOSYS
    } else {
        error
    }
}

fn told<T>(result: Result<T>, tell: impl FnOnce(T) -> String) -> Answer {
    match result {
        Ok(value) => (Status::Available, tell(value)),
        Err(error) => match status(error) {
            Status::Unknown => (Status::Unknown, error.to_string()),
            status => (status, String::new()),
        },
    }
}

fn plain(result: Result<()>) -> Answer {
    told(result, |()| String::new())
}

/// Whether a pinned real-time task that waits can help one on another processor.
fn mrsp_helping() -> Answer {
    let (status, value) = told(sys::real_time().and_then(|()| sys::cpus()), |cpus| {
        format!("{cpus} processors")
    });
    if status != Status::Available {
        return (status, value);
    }
    if sys::cpus() == Ok(1) {
        return (Status::NotPermitted, "1 processor".into());
    }
    // Microseconds of each second; negative: all.
    let share = sys::read_text("/proc/sys/kernel/sched_rt_runtime_us")
        .ok()
        .and_then(|text| text.trim().parse::<i64>().ok());
    let limit = match share {
        Some(share @ 0..1_000_000) => {
            format!(
                ", of which real-time tasks get {} ms a second",
                share / 1_000
            )
        }
        _ => String::new(),
    };
    (status, value + &limit)
}

fn requeue_pi() -> Answer {
    match sys::futex_operation(libc::FUTEX_CMP_REQUEUE_PI | libc::FUTEX_PRIVATE_FLAG) {
        Ok(()) if !futex_pi::can_requeue() => (
            Status::NotPermitted,
            "this version of Linux is not known to do it without faults".into(),
        ),
        answer => plain(answer),
    }
}

fn robust_list() -> Answer {
    match crate::task::Me::get() {
        Ok(_) => (Status::Available, String::new()),
        Err(crate::TaskError::RobustList(error)) => told::<()>(Err(error), |()| String::new()),
        Err(error @ crate::TaskError::ForeignLayout(_)) => (Status::Missing, error.to_string()),
        Err(error) => (Status::Unknown, error.to_string()),
    }
}

fn membarrier() -> Answer {
    const PRIVATE_EXPEDITED: u32 = 1 << 3;
    match sys::membarrier_commands() {
        Ok(commands) if commands & PRIVATE_EXPEDITED == 0 => {
            (Status::Missing, "without the expedited form".into())
        }
        result => plain(result.map(drop)),
    }
}

fn rseq() -> Answer {
    match (sys::rseq(), sys::rseq_bytes_of_libc()) {
        (Ok(()), 0) => (Status::Missing, "the C library does not register it".into()),
        (result, size) => told(result, |()| {
            format!("{size} bytes, registered by the C library")
        }),
    }
}

fn capability(wanted: CapabilitySet) -> Answer {
    match sys::capabilities() {
        Ok(effective) if effective.contains(wanted) => (Status::Available, String::new()),
        Ok(_) => (Status::NotPermitted, String::new()),
        Err(error) => told::<()>(Err(error), |()| String::new()),
    }
}

/// A limit that is a figure and not an obstacle.
fn limit(resource: Resource, tell: impl Fn(u64) -> String) -> Answer {
    let limit = sys::limit(resource);
    let words = |value: Option<u64>| value.map_or("unlimited".into(), &tell);
    let value = match (limit.current, limit.maximum) {
        (current, maximum) if current == maximum => words(current),
        (current, maximum) => format!("{}, can be raised to {}", words(current), words(maximum)),
    };
    (Status::Available, value)
}

/// A limit that is a permission: zero means none, except for tasks with the capability to exceed it.
fn unless_zero(resource: Resource, tell: impl Fn(u64) -> String) -> Answer {
    let exceeds =
        sys::capabilities().is_ok_and(|effective| effective.contains(CapabilitySet::SYS_NICE));
    match sys::limit(resource).current {
        _ if exceeds => (Status::Available, "any, by CAP_SYS_NICE".into()),
        Some(0) => (Status::NotPermitted, "0".into()),
        Some(value) => (Status::Available, tell(value)),
        None => (Status::Available, "unlimited".into()),
    }
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (count.max(1).ilog2() / 10).min(4) as usize;
    let whole = count as f64 / (1u64 << (10 * unit)) as f64;
    if unit == 0 {
        format!("{count} bytes")
    } else {
        format!("{whole:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_one_row_and_an_answer() {
        let features = Features::probe();
        for finding in &features.findings {
            let same = features
                .findings
                .iter()
                .filter(|other| other.feature == finding.feature || other.name == finding.name);
            assert_eq!(same.count(), 1, "{}", finding.name);
            assert!(!finding.consequence().is_empty(), "{}", finding.name);
        }
        assert!(std::ptr::eq(features, Features::probe()));
    }

    #[test]
    fn what_this_very_test_uses_is_found() {
        let features = Features::probe();
        assert_eq!(
            features
                .obstacles()
                .map(|finding| finding.name)
                .collect::<Vec<_>>(),
            Vec::<&str>::new()
        );
        assert!(features.cpus >= 1 && features.page_bytes >= 4096);
    }

    #[test]
    fn probing_leaves_no_trace() {
        let scheduling = || std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
        let policy = |text: String| {
            text.lines()
                .find(|line| line.starts_with("policy"))
                .map(str::to_owned)
        };
        let before = policy(scheduling());
        for row in table::ROWS {
            row.probe();
        }
        assert_eq!(policy(scheduling()), before);
        let own = format!(".latchwork-probe-{}-", crate::sys::thread::thread_id());
        let left = crate::sys::inspect::names(Path::new(crate::region::inspect::DIRECTORY))
            .unwrap_or_default();
        assert!(
            !left
                .iter()
                .any(|name| name.to_string_lossy().starts_with(&own))
        );
    }

    #[test]
    fn sizes_are_told_in_units() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(24 << 30), "24.0 GiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
