//! The contents of the panes.

use super::history::History;
use super::sheet::{Column, Sheet, Value};
use super::watch::View;
use crate::live::{Kind, Lock, Picture, State, Task};
use crate::locks::text;
use crate::style;
use latchwork::check::Severity;
use latchwork::region::inspect::{RegionReport, TaskState};
use ratatui::style::{Color, Modifier, Style};

/// A part of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Pane {
    Tasks,
    Locks,
    Queues,
    Regions,
    Coprocs,
    Findings,
}

pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const DOUBTFUL: Style = Style::new().fg(Color::Yellow);
const GOOD: Style = Style::new().fg(Color::Green);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

const TASKS: &[Column] = &[
    Column::text("NAME", 12, 2, 0),
    Column::number("PID", 7, 1),
    Column::number("TID", 7, 0),
    Column::text("S", 1, 0, 2),
    Column::text("SCHED", 9, 0, 2),
    Column::number("CPU%", 5, 1),
    Column::number("HOLDS", 5, 1),
    Column::text("WAITS FOR", 16, 4, 0),
    Column::number("WAITED", 11, 0),
    Column::text("REGION", 12, 1, 3),
];

const LOCKS: &[Column] = &[
    Column::text("LOCK", 18, 3, 0),
    Column::text("TYPE", 14, 1, 2),
    Column::text("STATE", 10, 0, 1),
    Column::text("OWNER", 16, 2, 0),
    Column::number("WAIT", 4, 0),
    Column::number("AVG", 5, 1),
    Column::number("LONGEST", 9, 0),
    Column::number("HELD FOR", 9, 3),
    Column::text("ACQUIRED AT", 20, 2, 4),
    Column::text("FLAGS", 10, 0, 0),
];

const QUEUES: &[Column] = &[
    Column::text("QUEUE", 16, 3, 0),
    Column::text("REGION", 10, 1, 2),
    Column::number("DEPTH", 6, 0),
    Column::number("CAPACITY", 8, 1),
    Column::number("FULL", 5, 0),
    Column::text("", 10, 1, 1),
    Column::number("IN FLIGHT", 9, 1),
    Column::number("RECEIVERS", 9, 0),
    Column::number("SENDERS", 7, 0),
];

const REGIONS: &[Column] = &[
    Column::text("REGION", 16, 2, 0),
    Column::number("MEMORY", 10, 0),
    Column::number("HEAP", 10, 0),
    Column::number("OF", 10, 1),
    Column::number("USED", 5, 1),
    Column::number("TASKS", 5, 0),
    Column::number("PROCS", 5, 2),
    Column::number("OBJECTS", 7, 2),
    Column::number("DEATHS", 6, 1),
    Column::text("REMARK", 12, 2, 1),
];

const COPROCS: &[Column] = &[
    Column::text("NAME", 12, 1, 0),
    Column::number("PID", 7, 0),
    Column::number("PARENT", 7, 2),
    Column::text("ROLE", 7, 0, 0),
    Column::text("S", 1, 0, 0),
    Column::number("TASKS", 5, 1),
    Column::number("RSS", 9, 0),
    Column::text("REGION", 12, 1, 1),
    Column::text("WAITS FOR", 16, 2, 1),
    Column::text("COMMAND", 16, 3, 3),
];

const FINDINGS: &[Column] = &[
    Column::text("WHAT", 11, 0, 0),
    Column::number("AGO", 7, 0),
    Column::text("WHERE", 16, 1, 0),
    Column::text("RULE", 12, 1, 1),
    Column::text("WHAT HAPPENED", 40, 4, 0),
];

impl Pane {
    pub(super) const ALL: [Self; 6] = [
        Self::Tasks,
        Self::Locks,
        Self::Queues,
        Self::Regions,
        Self::Coprocs,
        Self::Findings,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Tasks => "Tasks",
            Self::Locks => "Locks",
            Self::Queues => "Queues",
            Self::Regions => "Regions",
            Self::Coprocs => "Coprocs",
            Self::Findings => "Findings",
        }
    }

    pub(super) fn next(self, step: isize) -> Self {
        let count = Self::ALL.len() as isize;
        Self::ALL[(self as isize + step).rem_euclid(count) as usize]
    }

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Tasks => TASKS,
            Self::Locks => LOCKS,
            Self::Queues => QUEUES,
            Self::Regions => REGIONS,
            Self::Coprocs => COPROCS,
            Self::Findings => FINDINGS,
        }
    }

    /// The default sort column, and whether the highest values come first.
    pub(super) fn order(self) -> (usize, bool) {
        match self {
            // The longest waits; the locks with the most waiters.
            Self::Tasks => (8, true),
            Self::Locks => (5, true),
            Self::Queues => (4, true),
            Self::Regions => (1, true),
            Self::Coprocs => (0, false),
            // Findings that still hold come first, then the newest.
            Self::Findings => (1, false),
        }
    }
}

pub(super) fn sheet(pane: Pane, view: &View, history: &History, all: bool) -> Sheet {
    let picture = &view.picture;
    let rows = match pane {
        Pane::Tasks => tasks(picture, history, all),
        Pane::Locks => {
            let shown = |lock: &&Lock| {
                let is_named = matches!(lock.kind, Kind::Semaphore(_) | Kind::PriorityMutex);
                lock.kind != Kind::Queue && (all || is_named || picture.is_notable(lock))
            };
            let mut locks: Vec<_> = picture.locks.iter().filter(shown).collect();
            // Among equals, locks with faults come first.
            locks.sort_by_key(|lock| (!lock.flags.any(), lock.waiters.is_empty()));
            locks
                .into_iter()
                .map(|lock| lock_row(picture, lock, history))
                .collect()
        }
        Pane::Queues => {
            let queues = picture.locks.iter().filter(|lock| lock.kind == Kind::Queue);
            queues.filter_map(|lock| queue_row(picture, lock)).collect()
        }
        Pane::Regions => picture.regions.iter().map(region_row).collect(),
        Pane::Coprocs => coprocs(view),
        Pane::Findings => findings(picture),
    };
    Sheet {
        columns: pane.columns(),
        rows,
    }
}

fn tasks(picture: &Picture, history: &History, all: bool) -> Vec<Vec<Value>> {
    let mut held = vec![0; picture.tasks.len()];
    for owner in picture.locks.iter().flat_map(|lock| &lock.owners) {
        held[*owner] += 1;
    }
    let is_shown = |index: usize, task: &Task| {
        let waits = task
            .waits_for
            .iter()
            .any(|lock| picture.is_notable(&picture.locks[*lock]));
        all || waits || held[index] > 0 || !task.memberships.is_empty()
    };
    let row = |(index, task): (usize, &Task)| {
        is_shown(index, task).then(|| {
            // Another thread may have this ID here.
            let percent = if task.is_elsewhere {
                0.0
            } else {
                history.percent(task.pid, task.tid)
            };
            let id = |id: u32| match task.is_elsewhere {
                true => Value::text("-"),
                false => Value::count(id),
            };
            // Idle threads sleep on words, which is not shown.
            let wait = (all || picture.waits_for_more_than_a_word(task))
                .then(|| picture.wait_text(index))
                .flatten();
            let waited = match (&wait, task.longest_wait()) {
                (Some(_), Some(time)) => Value::number(
                    time.as_secs_f64(),
                    text::longest_wait(task).unwrap_or_default(),
                ),
                _ => Value::default(),
            };
            let region = task.memberships.first().map(|membership| {
                let region = &picture.regions[membership.region].name;
                format!("{region}:{}", membership.slot)
            });
            vec![
                Value::text(text::short_name(task)),
                id(task.pid),
                id(task.tid),
                process_state(task.state),
                Value::text(
                    task.schedule
                        .map_or("-".into(), |schedule| schedule.to_string()),
                ),
                Value::number(percent, format!("{percent:.1}")),
                Value::some_count(held[index]),
                Value::text(wait.unwrap_or_default()).styled(DOUBTFUL),
                waited,
                Value::text(region.unwrap_or_default()).styled(FAINT),
            ]
        })
    };
    picture.tasks.iter().enumerate().filter_map(row).collect()
}

fn process_state(state: char) -> Value {
    Value::text(state.to_string()).styled(match state {
        'R' => GOOD,
        'D' | 'T' | 't' => DOUBTFUL,
        '?' => FAINT,
        _ => Style::new(),
    })
}

fn lock_row(picture: &Picture, lock: &Lock, history: &History) -> Vec<Value> {
    let longest = lock
        .waiters
        .iter()
        .filter_map(|waiter| picture.tasks[waiter.task].longest_wait())
        .max();
    let hold = lock.holds.first();
    let average = history.contention(&lock.key);
    let flags: Vec<_> = lock.flags.names().collect();
    let time = |time: Option<std::time::Duration>| match time {
        Some(time) => Value::number(time.as_secs_f64(), text::duration(time)),
        None => Value::default(),
    };
    vec![
        Value::text(&lock.name),
        Value::text(lock.kind.name()),
        Value::text(text::state_text(lock)).styled(match lock.state {
            State::OwnerDied | State::Unusable => BAD,
            _ => Style::new(),
        }),
        Value::text(owner(picture, lock)),
        Value::some_count(lock.waiters.len()).styled(DOUBTFUL),
        if average >= 0.05 {
            Value::number(average, format!("{average:.1}"))
        } else {
            Value::number(average, "")
        },
        time(longest),
        time(hold.map(|hold| hold.held_for)),
        Value::text(hold.and_then(|hold| hold.at.text()).unwrap_or_default()),
        Value::text(flags.join(" ")).styled(BAD),
    ]
}

/// Short, since the pane of tasks has the rest.
fn owner(picture: &Picture, lock: &Lock) -> String {
    match (lock.owners.first(), lock.unseen_owner) {
        (Some(owner), _) => {
            let task = &picture.tasks[*owner];
            let name = text::short_name(task);
            if task.is_elsewhere {
                name.to_string()
            } else {
                format!("{name} {}", task.tid)
            }
        }
        (None, Some(unseen)) => format!("({})", unseen.tid),
        (None, None) => String::new(),
    }
}

fn queue_row(picture: &Picture, lock: &Lock) -> Option<Vec<Value>> {
    use crate::live::{Location, Role};
    let State::Depth { messages, capacity } = lock.state else {
        return None;
    };
    let Location::Region { region, object } = &lock.place else {
        return None;
    };
    let waiting = |role: Role| {
        let waiters = lock.waiters.iter().filter(|waiter| waiter.role == role);
        Value::some_count(waiters.count()).styled(DOUBTFUL)
    };
    let full = f64::from(messages) / f64::from(capacity.max(1));
    let style = match full {
        full if full >= 1.0 => BAD,
        full if full >= 0.75 => DOUBTFUL,
        _ => GOOD,
    };
    Some(vec![
        Value::text(object.as_deref().unwrap_or(&lock.name)),
        Value::text(&picture.regions[*region].name).styled(FAINT),
        Value::count(messages),
        Value::count(capacity),
        Value::number(full, format!("{:.0}%", 100.0 * full)).styled(style),
        Value::number(full, "█".repeat((10.0 * full.min(1.0)).round() as usize)).styled(style),
        Value::some_count(lock.in_flight as usize),
        waiting(Role::Message),
        waiting(Role::Room),
    ])
}

fn region_row(region: &RegionReport) -> Vec<Value> {
    let bytes = |count: u64| Value::number(count as f64, style::bytes(count));
    let openings = region.openings.len();
    let contents = match &region.contents {
        Ok(contents) => contents,
        Err(error) => {
            let mut row = vec![Value::text(&region.name), bytes(region.memory_bytes)];
            row.resize(REGIONS.len() - 1, Value::default());
            row.push(Value::text(error.to_string()).styled(BAD));
            return row;
        }
    };
    let dead = contents
        .tasks
        .iter()
        .filter(|task| task.state == TaskState::Unswept)
        .count();
    let used = contents.heap.allocated_bytes as f64 / contents.max_bytes.max(1) as f64;
    let remark = match (dead, &region.path) {
        (0, Some(_)) => Value::default(),
        (0, None) => Value::text("anonymous").styled(FAINT),
        (dead, _) => Value::text(style::count(dead, "dead task", "dead tasks")).styled(BAD),
    };
    vec![
        Value::text(&region.name),
        bytes(region.memory_bytes),
        bytes(contents.heap.allocated_bytes),
        bytes(contents.max_bytes),
        Value::number(used, format!("{:.0}%", 100.0 * used)),
        Value::count((contents.tasks.len() - dead) as u64),
        Value::some_count(openings),
        Value::some_count(contents.objects.len()),
        Value::some_count(contents.deaths as usize),
        remark,
    ]
}

/// The processes that have regions open: coprocs and others.
fn coprocs(view: &View) -> Vec<Vec<Value>> {
    let picture = &view.picture;
    let mut rows = Vec::new();
    for (index, region) in picture.regions.iter().enumerate() {
        for opening in &region.openings {
            let Some(process) = view.processes.get(&opening.process) else {
                continue;
            };
            let of_region = |task: &&(usize, &Task)| {
                let mut places = task.1.memberships.iter();
                task.1.pid == process.pid && places.any(|place| place.region == index)
            };
            let tasks: Vec<_> = picture.tasks.iter().enumerate().collect();
            let tasks: Vec<_> = tasks.iter().filter(of_region).collect();
            let first = tasks.iter().find(|(_, task)| task.pid == task.tid);
            let name = first
                .or(tasks.first())
                .and_then(|(_, task)| task.memberships.first())
                .map_or("", |membership| membership.name.as_str());
            let role = match (process.ends_silently, name) {
                (true, "zygote") => Value::text("zygote").styled(FAINT),
                (true, _) => Value::text("coproc").styled(GOOD),
                (false, _) => Value::text("host"),
            };
            let wait = first.and_then(|(task, _)| picture.wait_text(*task));
            rows.push(vec![
                Value::text(if name.is_empty() { "-" } else { name }),
                Value::count(process.pid),
                Value::count(process.parent),
                role,
                process_state(process.state),
                Value::some_count(tasks.len()),
                Value::number(process.rss_bytes as f64, style::bytes(process.rss_bytes)),
                Value::text(&region.name).styled(FAINT),
                Value::text(wait.unwrap_or_default()).styled(DOUBTFUL),
                Value::text(&process.command),
            ]);
        }
    }
    rows
}

fn findings(picture: &Picture) -> Vec<Vec<Value>> {
    let row = |what: &str, age: Value, place: &str, rule: &str, text: &str| {
        let what = Value::text(what).styled(BAD);
        vec![
            what,
            age,
            Value::text(place),
            Value::text(rule).styled(FAINT),
            Value::text(text),
        ]
    };
    let now = |what: &str, place: &str, who: String| {
        let age = Value::number(0.0, "now").styled(BAD);
        row(what, age, place, "", &who)
    };
    let mut rows = Vec::new();
    for cycle in &picture.cycles {
        let names: Vec<_> = cycle
            .iter()
            .map(|(task, lock)| {
                let task = text::task_name(&picture.tasks[*task]);
                format!("{task} waits for {}", picture.locks[*lock].name)
            })
            .collect();
        let place = cycle
            .first()
            .map_or("", |(_, lock)| picture.locks[*lock].name.as_str());
        rows.push(now("DEADLOCK", place, names.join(" → ")));
    }
    for lock in &picture.locks {
        if lock.flags.inversion {
            let who = format!(
                "{} keeps {} waiting",
                text::owner_text(picture, lock),
                text::waiters(picture, lock)
            );
            rows.push(now("inversion", &lock.name, who));
        }
        if lock.flags.owner_dead {
            let waiting = style::count(lock.waiters.len(), "task waits", "tasks wait");
            rows.push(now("owner dead", &lock.name, waiting));
        }
    }
    let process = |name: &str, pid: u32| format!("{pid} {name}");
    for (index, report) in picture.reports.iter().enumerate() {
        let finding = &report.finding;
        let age = Value::number(report.age.as_secs_f64(), text::duration(report.age));
        let place = process(&report.process, report.pid);
        let what = name_of(finding.rule.severity());
        let mut row = row(what, age, &place, finding.rule.name(), &finding.summary);
        row[0] = std::mem::take(&mut row[0]).of_report(index);
        rows.push(row);
    }
    // Findings of which only the count is kept.
    for (pid, found) in &picture.findings {
        let reported = [
            found.deadlocks,
            found.potential_deadlocks,
            found.long_waits,
            found.inversions,
            found.misuse,
        ];
        let reported = reported.into_iter().fold(0_u32, u32::saturating_add);
        let shown = picture.reports.iter().filter(|report| report.pid == *pid);
        let older = (reported as usize).saturating_sub(shown.count());
        if older > 0 {
            let task = picture.tasks.iter().find(|task| task.pid == *pid);
            let place = process(task.map_or("", |task| &task.process), *pid);
            let last = Value::number(f64::INFINITY, "");
            let count = style::count(older, "older report", "older reports");
            rows.push(row("…", last, &place, "", &count));
        }
    }
    rows
}

fn name_of(severity: Severity) -> &'static str {
    match severity {
        Severity::Deadlock => "deadlock",
        Severity::Potential => "potential",
        Severity::LongWait => "long wait",
        Severity::Inversion => "inversion",
        _ => "misuse",
    }
}
