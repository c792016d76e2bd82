//! The JSON form of what `latchwork ps` shows.

use super::View;
use crate::json;
use crate::process::Process;
use latchwork::region::inspect::{Contents, LockState, TaskReport, TaskState};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    /// How many processes have descriptors that the caller may not read.
    hidden_processes: usize,
    regions: Vec<Region<'a>>,
}

#[derive(Serialize)]
struct Region<'a> {
    name: &'a str,
    /// `null` for an anonymous region.
    path: Option<String>,
    device: u64,
    inode: u64,
    memory_bytes: u64,
    openings: Vec<Opening>,
    processes: Vec<&'a Process>,
    /// The reason if there are no contents.
    error: Option<String>,
    contents: Option<Inside<'a>>,
}

#[derive(Serialize)]
struct Opening {
    pid: u32,
    descriptor: u32,
}

#[derive(Serialize)]
struct Inside<'a> {
    base: u64,
    max_bytes: u64,
    committed_bytes: u64,
    heap_committed_bytes: u64,
    heap_allocated_bytes: u64,
    /// In hexadecimal, since the number is too long for some readers.
    fingerprint: String,
    pid_namespace: u64,
    pid_namespace_is_ours: bool,
    any_pid_namespace: bool,
    creator: u32,
    max_tasks: u16,
    max_names: u32,
    deaths: u32,
    tasks: Vec<Task<'a>>,
    objects: Vec<Object<'a>>,
    locks: Vec<Lock>,
}

#[derive(Serialize)]
struct Task<'a> {
    slot: u16,
    generation: u32,
    pid: u32,
    /// `null` if the task is dead.
    tid: Option<u32>,
    /// `pid` and `tid` are as they are seen here if the task is `alive`, and else those of this namespace.
    pid_namespace: u64,
    name: &'a str,
    /// `alive`, `unseen` (no such thread is visible here) or `dead` (and not settled yet).
    state: &'static str,
    attached_at_ns_since_boot: u64,
    cpu_ms: Option<u64>,
    /// As text; `null` if it waits for nothing, or if that is unknown.
    waits_for: Option<&'a str>,
}

#[derive(Serialize)]
struct Object<'a> {
    name: &'a str,
    bytes: u64,
    address: u64,
    fingerprint: String,
}

#[derive(Serialize)]
struct Lock {
    name: &'static str,
    /// `free`, `held` or `owner died`.
    state: &'static str,
    tid: Option<u32>,
}

pub(super) fn print(
    views: &[View<'_>],
    hidden_processes: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let report = Report {
        schema: "latchwork-ps/1",
        hidden_processes,
        regions: views.iter().map(region).collect(),
    };
    json::write_pretty(out, &report)
}

fn region<'a>(view: &'a View<'_>) -> Region<'a> {
    let report = view.region;
    Region {
        name: &report.name,
        path: report.path.as_ref().map(|path| path.display().to_string()),
        device: report.file.0,
        inode: report.file.1,
        memory_bytes: report.memory_bytes,
        openings: report
            .openings
            .iter()
            .map(|opening| Opening {
                pid: opening.process,
                descriptor: opening.descriptor,
            })
            .collect(),
        processes: view.processes.values().collect(),
        error: report.contents.as_ref().err().map(ToString::to_string),
        contents: report
            .contents
            .as_ref()
            .ok()
            .map(|contents| inside(view, contents)),
    }
}

fn inside<'a>(view: &'a View<'_>, contents: &'a Contents) -> Inside<'a> {
    Inside {
        base: contents.base,
        max_bytes: contents.max_bytes,
        committed_bytes: contents.committed_bytes,
        heap_committed_bytes: contents.heap.committed_bytes,
        heap_allocated_bytes: contents.heap.allocated_bytes,
        fingerprint: format!("{:016x}", contents.fingerprint),
        pid_namespace: contents.pid_namespace,
        pid_namespace_is_ours: contents.pid_namespace_is_ours,
        any_pid_namespace: contents.any_pid_namespace,
        creator: contents.creator,
        max_tasks: contents.max_tasks,
        max_names: contents.max_names,
        deaths: contents.deaths,
        tasks: contents
            .tasks
            .iter()
            .map(|found| task(view, found))
            .collect(),
        objects: contents
            .objects
            .iter()
            .map(|object| Object {
                name: &object.name,
                bytes: object.bytes,
                address: object.address,
                fingerprint: format!("{:016x}", object.fingerprint),
            })
            .collect(),
        locks: contents
            .locks
            .iter()
            .map(|lock| {
                let (state, tid) = match lock.state {
                    LockState::Held { thread } => ("held", Some(thread)),
                    LockState::OwnerDied => ("owner died", None),
                    _ => ("free", None),
                };
                Lock {
                    name: lock.name,
                    state,
                    tid,
                }
            })
            .collect(),
    }
}

fn task<'a>(view: &'a View<'_>, task: &'a TaskReport) -> Task<'a> {
    Task {
        slot: task.slot,
        generation: task.generation,
        pid: task.process,
        tid: (task.thread != 0).then_some(task.thread),
        pid_namespace: task.pid_namespace,
        name: &task.name,
        state: match task.state {
            TaskState::Alive => "alive",
            TaskState::Unswept => "dead",
            _ => "unseen",
        },
        attached_at_ns_since_boot: task.attached_at,
        cpu_ms: view
            .cpu_times
            .get(&task.slot)
            .map(|time| time.as_millis() as u64),
        waits_for: view.waits.get(&task.slot).map(String::as_str),
    }
}
