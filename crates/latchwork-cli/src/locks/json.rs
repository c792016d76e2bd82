//! The JSON form of what `latchwork locks` shows. Numbers in `tasks` and `locks` are indices into these lists.

use crate::json;
use crate::live::{self, Key, Location, Lock, Picture, Role, Spot, State, Task};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    /// How many processes the caller may not trace: their waits are missing.
    hidden_processes: usize,
    /// The findings that checked processes have reported so far.
    findings: Vec<Findings>,
    /// The last of these of each process, newest first.
    reports: Vec<ReportEntry<'a>>,
    /// Wait-for cycles: each task with the lock that it waits for, which the next one owns.
    cycles: Vec<Vec<Step>>,
    tasks: Vec<TaskEntry<'a>>,
    locks: Vec<LockEntry<'a>>,
}

#[derive(Serialize)]
struct Findings {
    pid: u32,
    deadlocks: u32,
    potential_deadlocks: u32,
    long_waits: u32,
    inversions: u32,
    misuse: u32,
}

#[derive(Serialize)]
struct ReportEntry<'a> {
    pid: u32,
    /// Which one of the process it is, from 1 on.
    number: u32,
    age_ms: u64,
    rule: &'static str,
    verdict: &'static str,
    /// The finding's ID, as in suppression files.
    id: String,
    /// In one line.
    summary: &'a str,
    /// The text of the report, or its beginning.
    text: &'a str,
}

#[derive(Serialize)]
struct Step {
    task: usize,
    lock: usize,
}

#[derive(Serialize)]
struct TaskEntry<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    process: &'a str,
    /// As `ps` shows it; `?` for a task of a region whose thread is not visible.
    state: char,
    policy: Option<&'static str>,
    /// Niceness, or real-time priority.
    priority: Option<i32>,
    /// 0: ordinary; 1 to 99: real-time, own or lent; 100: by deadline.
    effective: Option<i32>,
    waited_ms: Option<u64>,
    /// Whether the task publishes the time; otherwise it is an estimate.
    waited_is_exact: bool,
    /// Whether it sleeps with a time limit, and may have waited before: `waited_ms` is then a lower bound.
    waited_is_least: bool,
    /// For how long each view has found it waiting for the same lock, which had the same owners (--watch).
    seen_ms: Option<u64>,
    /// Where in its program it waits, if that is checked.
    waits_at: Option<String>,
    waits_for: &'a [usize],
    holds: Vec<usize>,
    regions: Vec<Membership<'a>>,
}

#[derive(Serialize)]
struct Membership<'a> {
    region: &'a str,
    slot: u16,
    name: &'a str,
    priority: u32,
}

#[derive(Serialize)]
struct LockEntry<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    state: &'static str,
    /// Readers inside, the count of a semaphore, or the messages in a queue.
    count: Option<u64>,
    capacity: Option<u32>,
    pid: u32,
    address: u64,
    place: PlaceEntry<'a>,
    owners: Vec<usize>,
    /// Where it was initialised, or first taken.
    made_at: Option<String>,
    /// What checked owners publish.
    holds: Vec<HoldEntry>,
    /// The ID of an owner that does not exist or is not visible.
    unseen_owner: Option<u32>,
    waiters: Vec<WaiterEntry>,
    flags: Vec<&'static str>,
    remark: &'a str,
}

#[derive(Serialize)]
#[serde(tag = "in", rename_all = "lowercase")]
enum PlaceEntry<'a> {
    Module {
        path: &'a str,
    },
    Region {
        name: &'a str,
        object: Option<&'a str>,
    },
    File {
        path: &'a str,
        device: Option<u64>,
        inode: Option<u64>,
        offset: u64,
    },
    Heap,
    Stack,
    Anonymous,
}

#[derive(Serialize)]
struct HoldEntry {
    task: usize,
    held_ms: u64,
    at: Option<String>,
}

#[derive(Serialize)]
struct WaiterEntry {
    task: usize,
    /// `exclusive`, `shared`, `event`, `message` or `room`.
    role: &'static str,
}

/// One object over several lines.
pub(super) fn print_pretty(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    json::write_pretty(out, &report(picture))
}

/// One object on one line.
pub(crate) fn print_line(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    json::write_line(out, &report(picture))
}

/// Tasks that have nothing to do with the locks are omitted.
fn report(picture: &Picture) -> Report<'_> {
    let mut places = BTreeMap::new();
    for lock in &picture.locks {
        let waiters = lock.waiters.iter().map(|waiter| waiter.task);
        let holders = lock.holds.iter().map(|hold| hold.task);
        for task in lock.owners.iter().copied().chain(waiters).chain(holders) {
            places.insert(task, 0);
        }
    }
    for (place, (_, number)) in places.iter_mut().enumerate() {
        *number = place;
    }
    let mut held = picture.held();
    let tasks = places
        .keys()
        .map(|task| {
            let held = std::mem::take(&mut held[*task]);
            task_entry(picture, held, &picture.tasks[*task])
        })
        .collect();
    let mut locks: Vec<_> = picture
        .locks
        .iter()
        .map(|lock| lock_entry(picture, lock))
        .collect();
    for lock in &mut locks {
        lock.owners.iter_mut().for_each(|task| *task = places[task]);
        for hold in &mut lock.holds {
            hold.task = places[&hold.task];
        }
        for waiter in &mut lock.waiters {
            waiter.task = places[&waiter.task];
        }
    }
    let cycles = picture.cycles.iter().map(|cycle| {
        let step = |&(task, lock): &(usize, usize)| Step {
            task: places[&task],
            lock,
        };
        cycle.iter().map(step).collect()
    });
    Report {
        schema: "latchwork-locks/1",
        hidden_processes: picture.hidden_processes,
        findings: picture
            .findings
            .iter()
            .map(|(pid, found)| Findings {
                pid: *pid,
                deadlocks: found.deadlocks,
                potential_deadlocks: found.potential_deadlocks,
                long_waits: found.long_waits,
                inversions: found.inversions,
                misuse: found.misuse,
            })
            .collect(),
        reports: picture.reports.iter().map(report_entry).collect(),
        cycles: cycles.collect(),
        tasks,
        locks,
    }
}

fn report_entry(report: &live::Report) -> ReportEntry<'_> {
    let finding = &report.finding;
    ReportEntry {
        pid: report.pid,
        number: finding.number,
        age_ms: milliseconds(report.age),
        rule: finding.rule.name(),
        verdict: finding.verdict(),
        id: format!("{:016x}", finding.id),
        summary: &finding.summary,
        text: &finding.text,
    }
}

fn task_entry<'a>(picture: &'a Picture, holds: Vec<usize>, task: &'a Task) -> TaskEntry<'a> {
    TaskEntry {
        pid: task.pid,
        tid: task.tid,
        name: &task.name,
        process: &task.process,
        state: task.state,
        policy: task.schedule.map(|schedule| schedule.policy.name()),
        priority: task.schedule.map(|schedule| schedule.own),
        effective: task.schedule.map(|schedule| schedule.rank),
        waited_ms: task.waited.map(milliseconds),
        waited_is_exact: task.waited_is_exact,
        waited_is_least: task.waited_is_least,
        seen_ms: task.seen_for.map(milliseconds),
        waits_at: task.waits_at.as_ref().and_then(Spot::text),
        waits_for: &task.waits_for,
        holds,
        regions: task
            .memberships
            .iter()
            .map(|membership| Membership {
                region: region_name(picture, membership.region),
                slot: membership.slot,
                name: &membership.name,
                priority: membership.priority,
            })
            .collect(),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn region_name(picture: &Picture, region: usize) -> &str {
    picture
        .regions
        .get(region)
        .map_or("", |region| region.name.as_str())
}

fn lock_entry<'a>(picture: &'a Picture, lock: &'a Lock) -> LockEntry<'a> {
    let (state, count, capacity) = match lock.state {
        State::Free => ("free", None, None),
        State::Held => ("held", None, None),
        State::Read(readers) => ("read", Some(readers.into()), None),
        State::OwnerDied => ("owner died", None, None),
        State::Unusable => ("unusable", None, None),
        State::Count(count) => ("count", Some(count), None),
        State::Depth { messages, capacity } => ("depth", Some(messages.into()), Some(capacity)),
        State::Unknown => ("unknown", None, None),
    };
    LockEntry {
        name: &lock.name,
        kind: lock.kind.name(),
        state,
        count,
        capacity,
        pid: lock.pid,
        address: lock.address,
        place: match &lock.place {
            Location::Module(module) => PlaceEntry::Module { path: &module.path },
            Location::Region { region, object } => PlaceEntry::Region {
                name: region_name(picture, *region),
                object: object.as_deref(),
            },
            Location::File { path, offset } => {
                let (device, inode) = match lock.key {
                    Key::Shared { device, inode, .. } => (Some(device), Some(inode)),
                    _ => (None, None),
                };
                PlaceEntry::File {
                    path,
                    device,
                    inode,
                    offset: *offset,
                }
            }
            Location::Heap => PlaceEntry::Heap,
            Location::Stack => PlaceEntry::Stack,
            Location::Anonymous => PlaceEntry::Anonymous,
        },
        owners: lock.owners.clone(),
        made_at: lock.made_at.as_ref().and_then(Spot::text),
        holds: lock
            .holds
            .iter()
            .map(|hold| HoldEntry {
                task: hold.task,
                held_ms: milliseconds(hold.held_for),
                at: hold.at.text(),
            })
            .collect(),
        unseen_owner: lock.unseen_owner.map(|owner| owner.tid),
        waiters: lock
            .waiters
            .iter()
            .map(|waiter| WaiterEntry {
                task: waiter.task,
                role: match waiter.role {
                    Role::Exclusive => "exclusive",
                    Role::Shared => "shared",
                    Role::Event => "event",
                    Role::Message => "message",
                    Role::Room => "room",
                },
            })
            .collect(),
        flags: lock.flags.names().collect(),
        remark: &lock.remark,
    }
}
