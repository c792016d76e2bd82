//! Output for people: the cycles first, then a table, then the waits as trees.

#[cfg(test)]
mod tests;

use crate::live::{Absence, DEAD, Lock, Picture, Role, Spot, State, Task, UnseenOwner};
use crate::style::{self, Align, Cell, Table};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

/// How many waiters a row of the table shows; the trees show all.
const SHOWN: usize = 3;
/// Tasks further from the root of a tree get a tree of their own.
const DEEPEST: usize = 24;

pub(crate) fn print(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    for cycle in &picture.cycles {
        print_cycle(picture, cycle, out)?;
    }
    if picture.locks.is_empty() {
        writeln!(
            out,
            "As far as the command can see, no task holds a lock or waits for one."
        )?;
    } else {
        print_table(picture, out)?;
        print_chains(picture, out)?;
    }
    if picture.hidden_processes > 0 {
        let remark = style::count(
            picture.hidden_processes,
            "process is hidden: the command needs the permission to trace it.",
            "processes are hidden: the command needs the permission to trace them.",
        );
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
    // Only checked programs publish the second half.
    let is_checked = picture.locks.iter().any(|lock| !lock.holds.is_empty());
    let mut columns = vec![
        ("LOCK", Align::Left),
        ("TYPE", Align::Left),
        ("STATE", Align::Left),
        ("OWNER", Align::Left),
    ];
    if is_checked {
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
        if is_checked {
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
        None if task.state == DEAD => format!("{name} (has died)"),
        None => format!("{name} (not visible)"),
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

/// The name in a region is more specific than the thread's.
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
    owners.extend(lock.unseen_owner.map(unseen_text));
    owners.join(", ")
}

/// A thread that owns a lock and is not among the tasks, and why it is not.
fn unseen_text(UnseenOwner { tid, absence }: UnseenOwner) -> String {
    let why = match absence {
        Absence::Died => "has died",
        Absence::DiedOrElsewhere => "has died, or is in another PID namespace",
        Absence::NotVisible => "in another PID namespace, or not visible",
    };
    format!("thread {tid} ({why})")
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

/// `~3.2 s` is an estimate. `≥0.7 s`: it sleeps with a time limit, and may have slept before; then also for how long
/// each view has found it waiting, if that is more.
pub(crate) fn waited(task: &Task) -> Option<String> {
    let about = match task {
        Task {
            waited_is_exact: true,
            ..
        } => "",
        Task {
            waited_is_least: true,
            ..
        } => "≥",
        _ => "~",
    };
    let waited = task.waited.map(|time| format!("{about}{}", duration(time)));
    let texts: Vec<_> = waited.into_iter().chain(seen(task)).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

/// `seen 14 s`, if that is more than what is otherwise known.
fn seen(task: &Task) -> Option<String> {
    let longest = task.longest_wait()?;
    (task.waited != Some(longest)).then(|| format!("seen {}", duration(longest)))
}

/// The longer of the two times of [`waited`].
pub(crate) fn longest_wait(task: &Task) -> Option<String> {
    seen(task).or_else(|| waited(task))
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

/// Prints one tree for each task that others wait for and that does not wait itself, or waits in a cycle.
fn print_chains(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    let held = picture.held();
    let is_root = |task: &usize| {
        let waits_for_others = picture.tasks[*task].waits_for.iter().any(|lock| {
            let lock = &picture.locks[*lock];
            lock.kind.is_lock() && !lock.owners.is_empty()
        });
        let is_waited_for = held[*task]
            .iter()
            .any(|lock| !picture.locks[*lock].waiters.is_empty());
        !waits_for_others && is_waited_for
    };
    // One task represents its whole cycle.
    let of_cycles = picture
        .cycles
        .iter()
        .filter_map(|cycle| Some(cycle.first()?.0));
    let roots: VecDeque<_> = (0..picture.tasks.len())
        .filter(is_root)
        .chain(of_cycles)
        .collect();
    if roots.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut tree = Tree {
        picture,
        held,
        shown: vec![false; picture.tasks.len()],
        roots,
    };
    while let Some(root) = tree.roots.pop_front() {
        if std::mem::replace(&mut tree.shown[root], true) {
            continue;
        }
        writeln!(
            out,
            "{} {}",
            Cell::new(style::STRONG, task_label(&picture.tasks[root])),
            Cell::plain(activity(picture, &picture.tasks[root]))
        )?;
        tree.below(root, 0, "", out)?;
    }
    Ok(())
}

/// The activity of a task that does not wait for a lock.
fn activity(picture: &Picture, task: &Task) -> String {
    if let Some(lock) = task.waits_for.first() {
        let lock = &picture.locks[*lock];
        return format!("waits for {} ({})", lock.name, lock.kind.name());
    }
    match task.state {
        'R' => "runs",
        'D' => "is in an uninterruptible sleep",
        'T' | 't' => "is stopped",
        DEAD => "has died",
        '?' => "is not visible",
        _ => "sleeps",
    }
    .into()
}

struct Tree<'a> {
    picture: &'a Picture,
    /// The locks that each task owns.
    held: Vec<Vec<usize>>,
    /// Tasks whose subtrees were already printed: a picture may have cycles, and many paths to one task.
    shown: Vec<bool>,
    /// The roots of trees that are still to be printed.
    roots: VecDeque<usize>,
}

impl Tree<'_> {
    fn below(
        &mut self,
        task: usize,
        depth: usize,
        indent: &str,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let picture = self.picture;
        let mut held = std::mem::take(&mut self.held[task]);
        held.retain(|lock| !picture.locks[*lock].waiters.is_empty());
        for (place, &index) in held.iter().enumerate() {
            let lock = &picture.locks[index];
            let (branch, deeper) = lines(place + 1 == held.len());
            let flags = lock.flags.names().map(|flag| format!(" {flag}"));
            writeln!(
                out,
                "{indent}{branch}holds {} ({}){}",
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
                if depth == DEEPEST {
                    if !self.held[waiter.task].is_empty() {
                        self.roots.push_back(waiter.task);
                    }
                } else if !std::mem::replace(&mut self.shown[waiter.task], true) {
                    let indent = format!("{indent}{deeper}");
                    self.below(waiter.task, depth + 1, &indent, out)?;
                }
            }
        }
        Ok(())
    }
}

/// The text before an entry, and before the entries below it.
fn lines(is_last: bool) -> (&'static str, &'static str) {
    if is_last {
        ("└─ ", "   ")
    } else {
        ("├─ ", "│  ")
    }
}
