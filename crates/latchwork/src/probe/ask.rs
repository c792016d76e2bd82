//! The calls that find out whether the system has each feature.

use super::feature::{Feature, Status};
use crate::sys::{futex_pi, memory, probe as sys};
use rustix::io::{Errno, Result};
use rustix::{process::Resource, thread::CapabilitySet};
use std::path::Path;

/// The status, and a figure, path or error that goes with it.
type Answer = (Status, String);

/// Asks the system for one feature.
pub(super) fn ask(feature: Feature) -> Answer {
    let directory = Path::new(crate::region::inspect::DIRECTORY);
    match feature {
        Feature::FutexWaitv => plain(sys::futex_waitv()),
        Feature::RobustList => robust_list(),
        Feature::WipeOnFork => plain(sys::wipe_on_fork()),
        Feature::SealedMemoryFile => plain(sys::sealed_memory_file()),
        Feature::PidNamespace => answer(memory::pid_namespace(), |namespace| match namespace {
            memory::ROOT_PID_NAMESPACE => format!("pid:[{namespace}], the machine's own"),
            _ => format!("pid:[{namespace}]"),
        }),
        Feature::SharedMemoryDirectory => answer(sys::free_memory_files(directory), |free| {
            format!("{} free", bytes(free))
        }),
        Feature::PublishUnnamed => plain(sys::publish_unnamed(directory)),
        Feature::MapFixedNoReplace => plain(sys::map_fixed_noreplace()),
        Feature::MemoryFileNoExec => plain(sys::memory_file_noexec().map_err(unknown_flag)),
        Feature::FutexLockPi2 => plain(sys::futex_operation(
            libc::FUTEX_LOCK_PI2 | libc::FUTEX_PRIVATE_FLAG,
        )),
        Feature::FutexRequeuePi => requeue_pi(),
        Feature::FutexPrivateHash => answer(
            sys::futex_hash_slots().map_err(unknown_flag),
            |slots| match slots {
                0 => "not used by this process so far".into(),
                slots => format!("{slots} slots"),
            },
        ),
        Feature::PidFd => plain(sys::pidfd().map_err(unknown_flag)),
        Feature::TidAddress => plain(sys::place_of_id()),
        Feature::RealTime => plain(sys::real_time()),
        Feature::MrspHelping => mrsp_helping(),
        Feature::CapSysNice => capability(CapabilitySet::SYS_NICE),
        Feature::Cgroup => answer(sys::writable_cgroup(), |path| path.display().to_string()),
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
            answer(
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

/// The status for an error of a call.
fn status(error: Errno) -> Status {
    match error {
        Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOENT => Status::Missing,
        Errno::PERM | Errno::ACCESS | Errno::ROFS => Status::NotPermitted,
        _ => Status::Unknown,
    }
}

/// For calls with a flag: the kernel refuses a flag that it does not know.
fn unknown_flag(error: Errno) -> Errno {
    match error {
        Errno::INVAL => Errno::NOSYS,
        error => error,
    }
}

/// The answer for the result of a call: its value, described, or why there is none.
fn answer<T>(result: Result<T>, describe: impl FnOnce(T) -> String) -> Answer {
    match result {
        Ok(value) => (Status::Available, describe(value)),
        Err(error) => match status(error) {
            Status::Unknown => (Status::Unknown, error.to_string()),
            status => (status, String::new()),
        },
    }
}

fn plain(result: Result<()>) -> Answer {
    answer(result, |()| String::new())
}

/// Whether a pinned real-time task that waits can help one on another processor.
fn mrsp_helping() -> Answer {
    let (status, value) = answer(sys::real_time().and_then(|()| sys::cpus()), |cpus| {
        format!("{cpus} processors")
    });
    if status != Status::Available {
        return (status, value);
    }
    if sys::cpus() == Ok(1) {
        return (Status::NotPermitted, "1 processor".into());
    }
    // Microseconds of each second; negative: all.
    let share = sys::read_text("/proc/sys/kernel/sched_rt_runtime_us");
    match share.map(|text| text.trim().parse()) {
        Ok(Ok(share @ 0..1_000_000)) => {
            let milliseconds = share / 1_000;
            let limit = format!(", of which real-time tasks get {milliseconds} ms a second");
            (status, value + &limit)
        }
        _ => (status, value),
    }
}

fn requeue_pi() -> Answer {
    match sys::futex_operation(libc::FUTEX_CMP_REQUEUE_PI | libc::FUTEX_PRIVATE_FLAG) {
        Ok(()) if !futex_pi::can_requeue() => (
            Status::NotPermitted,
            "this version of Linux is not known to do it without faults".into(),
        ),
        result => plain(result),
    }
}

fn robust_list() -> Answer {
    match crate::task::Me::get() {
        Ok(_) => (Status::Available, String::new()),
        Err(crate::TaskError::RobustList(error)) => answer::<()>(Err(error), |()| String::new()),
        Err(error @ crate::TaskError::ForeignLayout(_)) => (Status::Missing, error.to_string()),
        Err(error) => (Status::Unknown, error.to_string()),
    }
}

fn capability(wanted: CapabilitySet) -> Answer {
    match sys::capabilities() {
        Ok(effective) if effective.contains(wanted) => (Status::Available, String::new()),
        Ok(_) => (Status::NotPermitted, String::new()),
        Err(error) => answer::<()>(Err(error), |()| String::new()),
    }
}

/// A limit that is a figure and not an obstacle.
fn limit(resource: Resource, describe: impl Fn(u64) -> String) -> Answer {
    let limit = sys::limit(resource);
    let words = |value: Option<u64>| value.map_or("unlimited".into(), &describe);
    let mut value = words(limit.current);
    if limit.current != limit.maximum {
        value = format!("{value}, can be raised to {}", words(limit.maximum));
    }
    (Status::Available, value)
}

/// A limit that is a permission: zero means none, except for tasks with the capability to exceed it.
fn unless_zero(resource: Resource, describe: impl Fn(u64) -> String) -> Answer {
    let exceeds =
        sys::capabilities().is_ok_and(|effective| effective.contains(CapabilitySet::SYS_NICE));
    match sys::limit(resource).current {
        _ if exceeds => (Status::Available, "any, by CAP_SYS_NICE".into()),
        Some(0) => (Status::NotPermitted, "0".into()),
        Some(value) => (Status::Available, describe(value)),
        None => (Status::Available, "unlimited".into()),
    }
}

/// A size, in the largest unit in which it is at least 1.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (count.max(1).ilog2() / 10).min(4) as usize;
    let whole = count as f64 / (1u64 << (10 * unit)) as f64;
    format!("{whole:.*} {}", unit.min(1), UNITS[unit])
}
