//! For people: the circles first, then a table, then who waits for whom as trees.

use crate::live::{Lock, Picture, Role, Spot, State, Task};
use crate::style::{self, Align, Cell, Table};
use std::io::{self, Write};
use std::time::Duration;

/// So many waiters stand in a row of the table; the trees have all.
const SHOWN: usize = 3;

pub(super) fn print(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    for cycle in &picture.cycles {
        print_cycle(picture, cycle, out)?;
    }
    if picture.locks.is_empty() {
        writeln!(out, "No lock is seen to be held or waited for.")?;
    } else {
        print_table(picture, out)?;
        print_chains(picture, out)?;
    }
    if picture.hidden_processes > 0 {
        let hidden = style::count(picture.hidden_processes, "process is", "processes are");
        let remark = format!("{hidden} hidden: seeing them needs the rights to trace them.");
        writeln!(out, "{}", Cell::new(style::FAINT, remark))?;
    }
    Ok(())
}

fn print_cycle(
    picture: &Picture,
    cycle: &[(usize, usize)],
    out: &mut impl Write,
) -> io::Result<()> {
    let tasks = style::count(cycle.len(), "task waits", "tasks wait");
    let verdict = match cycle.len() {
        1 => format!("DEADLOCK: {tasks} for itself"),
        _ => format!("DEADLOCK: {tasks} for each other"),
    };
    writeln!(out, "{}", Cell::new(style::BAD, verdict))?;
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left), ("", Align::Left)]);
    let at = |spot: Option<&Spot>| {
        let text = spot.and_then(Spot::text);
        text.map_or(String::new(), |text| format!(" at {text}"))
    };
    for (place, (task, lock)) in cycle.iter().enumerate() {
        let (owner, _) = cycle[(place + 1) % cycle.len()];
        let (task, lock) = (&picture.tasks[*task], &picture.locks[*lock]);
        let hold = lock.holds.iter().find(|hold| hold.task == owner);
        table.push(vec![
            Cell::new(style::STRONG, task_name(task)),
            Cell::plain(format!(
                "waits for {}{}",
                lock.name,
                at(task.waits_at.as_ref())
            )),
            Cell::plain(format!(
                "held by {}{}",
                task_name(&picture.tasks[owner]),
                at(hold.map(|hold| &hold.at))
            )),
        ]);
    }
    table.write(out)?;
    writeln!(out)
}

fn print_table(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    // Only checked programs say the second half.
    let is_told = picture.locks.iter().any(|lock| !lock.holds.is_empty());
    let mut columns = vec![
        ("LOCK", Align::Left),
        ("TYPE", Align::Left),
        ("STATE", Align::Left),
        ("OWNER", Align::Left),
    ];
    if is_told {
        columns.extend([("HELD FOR", Align::Right), ("ACQUIRED AT", Align::Left)]);
    }
    columns.extend([("WAITERS", Align::Left), ("FLAGS", Align::Left)]);
    let mut table = Table::new(&columns);
    for lock in &picture.locks {
        let mut row = vec![
            Cell::new(style::STRONG, &lock.name),
            Cell::plain(lock.kind.name()),
            state_cell(lock),
            owner_cell(picture, lock),
        ];
        if is_told {
            let hold = lock.holds.first();
            row.push(Cell::plain(
                hold.map(|hold| duration(hold.held_for)).unwrap_or_default(),
            ));
            row.push(Cell::plain(
                hold.and_then(|hold| hold.at.text()).unwrap_or_default(),
            ));
        }
        row.extend([Cell::plain(waiters(picture, lock)), flags_cell(lock)]);
        table.push(row);
    }
    table.write(out)
}

/// `name pid/tid`, and the priority.
pub(crate) fn task_label(task: &Task) -> String {
    let name = task_name(task);
    match task.schedule {
        Some(schedule) => format!("{name} {schedule}"),
        None => format!("{name} (not seen)"),
    }
}

pub(crate) fn task_name(task: &Task) -> String {
    let Task { pid, tid, .. } = task;
    let name = short_name(task);
    if pid == tid {
        format!("{name} {pid}")
    } else {
        format!("{name} {pid}/{tid}")
    }
}

/// The name in a region says more than the thread's.
pub(crate) fn short_name(task: &Task) -> &str {
    match task.memberships.first() {
        Some(membership) if !membership.name.is_empty() => &membership.name,
        _ => &task.name,
    }
}

pub(crate) fn state_text(lock: &Lock) -> String {
    match lock.state {
        State::Free => "free".into(),
        State::Held => "held".into(),
        State::Read(readers) => style::count(readers as usize, "reader", "readers"),
        State::OwnerDied => "owner died".into(),
        State::Unusable => "unusable".into(),
        State::Count(count) => format!("count {count}"),
        State::Depth { messages, capacity } => format!("{messages} of {capacity}"),
        State::Unknown => String::new(),
    }
}

fn state_cell(lock: &Lock) -> Cell {
    let style = match lock.state {
        State::OwnerDied | State::Unusable => style::BAD,
        _ => style::PLAIN,
    };
    let text = state_text(lock);
    match lock.remark.is_empty() {
        true => Cell::new(style, text),
        false if text.is_empty() => Cell::new(style, &lock.remark),
        false => Cell::new(style, format!("{text}, {}", lock.remark)),
    }
}

pub(crate) fn owner_text(picture: &Picture, lock: &Lock) -> String {
    let mut owners: Vec<_> = lock
        .owners
        .iter()
        .map(|owner| task_label(&picture.tasks[*owner]))
        .collect();
    owners.extend(
        lock.unseen_owner
            .map(|tid| format!("thread {tid}, not seen")),
    );
    owners.join(", ")
}

fn owner_cell(picture: &Picture, lock: &Lock) -> Cell {
    let text = owner_text(picture, lock);
    if text.is_empty() {
        Cell::new(style::FAINT, "-")
    } else {
        Cell::plain(text)
    }
}

fn flags_cell(lock: &Lock) -> Cell {
    let flags: Vec<_> = lock.flags.names().collect();
    Cell::new(style::BAD, flags.join(" "))
}

/// `~3.2 s`: an estimate.
pub(crate) fn waited(task: &Task) -> Option<String> {
    let about = if task.waited_is_exact { "" } else { "~" };
    task.waited
        .map(|waited| format!("{about}{}", duration(waited)))
}

pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds @ 3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

fn role_text(role: Role) -> &'static str {
    match role {
        Role::Exclusive | Role::Event => "",
        Role::Shared => " to read",
        Role::Message => " for a message",
        Role::Room => " for room",
    }
}

pub(crate) fn waiters(picture: &Picture, lock: &Lock) -> String {
    let shown: Vec<_> = lock
        .waiters
        .iter()
        .take(SHOWN)
        .map(|waiter| {
            let task = &picture.tasks[waiter.task];
            let time = waited(task).map(|time| format!(" {time}"));
            let time = time.unwrap_or_default();
            format!("{}{}{time}", task_label(task), role_text(waiter.role))
        })
        .collect();
    let more = lock.waiters.len().saturating_sub(SHOWN);
    let mut text = shown.join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

/// One tree for each task that others wait for, and that waits for nobody, or in a circle.
fn print_chains(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    let is_root = |task: &usize| {
        let waits_for_others = picture.tasks[*task].waits_for.iter().any(|lock| {
            let lock = &picture.locks[*lock];
            lock.kind.is_lock() && !lock.owners.is_empty()
        });
        let is_waited_for = picture
            .held_by(*task)
            .any(|lock| !picture.locks[lock].waiters.is_empty());
        !waits_for_others && is_waited_for
    };
    // Of a circle, one stands for all.
    let of_cycles = picture
        .cycles
        .iter()
        .filter_map(|cycle| Some(cycle.first()?.0));
    let roots: Vec<_> = (0..picture.tasks.len())
        .filter(is_root)
        .chain(of_cycles)
        .collect();
    if roots.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    for root in roots {
        let mut tree = Tree {
            picture,
            path: vec![root],
        };
        writeln!(
            out,
            "{} {}",
            Cell::new(style::STRONG, task_label(&picture.tasks[root])),
            Cell::plain(activity(picture, &picture.tasks[root]))
        )?;
        tree.below(root, "", out)?;
    }
    Ok(())
}

/// What a task does that does not wait for a lock.
fn activity(picture: &Picture, task: &Task) -> String {
    if let Some(lock) = task.waits_for.first() {
        let lock = &picture.locks[*lock];
        return format!("waits for {} ({})", lock.name, lock.kind.name());
    }
    match task.state {
        'R' => "runs",
        'D' => "is in an uninterruptible sleep",
        'T' | 't' => "is stopped",
        '?' => "is not seen",
        _ => "sleeps",
    }
    .into()
}

struct Tree<'a> {
    picture: &'a Picture,
    /// From the root to here.
    path: Vec<usize>,
}

impl Tree<'_> {
    fn below(&mut self, task: usize, indent: &str, out: &mut impl Write) -> io::Result<()> {
        let picture = self.picture;
        let held: Vec<_> = picture
            .held_by(task)
            .filter(|lock| !picture.locks[*lock].waiters.is_empty())
            .collect();
        for (place, &index) in held.iter().enumerate() {
            let lock = &picture.locks[index];
            let (branch, deeper) = lines(place + 1 == held.len());
            let flags = lock.flags.names().map(|flag| format!(" {flag}"));
            writeln!(
                out,
                "{indent}{branch}has {} ({}){}",
                Cell::plain(&lock.name),
                lock.kind.name(),
                Cell::new(style::BAD, flags.collect::<String>())
            )?;
            let indent = format!("{indent}{deeper}");
            for (place, waiter) in lock.waiters.iter().enumerate() {
                let (branch, deeper) = lines(place + 1 == lock.waiters.len());
                let task = &picture.tasks[waiter.task];
                let time = waited(task).map_or(String::new(), |time| format!(", {time}"));
                writeln!(
                    out,
                    "{indent}{branch}{} waits{}{time}",
                    Cell::new(style::STRONG, task_label(task)),
                    role_text(waiter.role)
                )?;
                // A picture that is not of one instant may show a circle where there is none.
                if !self.path.contains(&waiter.task) {
                    self.path.push(waiter.task);
                    self.below(waiter.task, &format!("{indent}{deeper}"), out)?;
                    self.path.pop();
                }
            }
        }
        Ok(())
    }
}

/// What stands before an entry, and before what is below it.
fn lines(is_last: bool) -> (&'static str, &'static str) {
    if is_last {
        ("└─ ", "   ")
    } else {
        ("├─ ", "│  ")
    }
}
