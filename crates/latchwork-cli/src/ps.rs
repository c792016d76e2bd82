//! `latchwork ps`: regions, their tasks, and the processes that these run in.

mod json;
mod view;

use crate::live::{self, Picture, Symbols};
use crate::process::Process;
use crate::status::Problems;
use crate::style::{self, Align, Cell, Table};
use latchwork::region::AttachError;
use latchwork::region::inspect::{Contents, LockState, RegionReport, TaskReport, TaskState};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use view::View;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Show these regions only [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows what is accessible; inaccessible regions are no failure, except named ones.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> io::Result<ExitCode> {
    let mut picture = live::view();
    Symbols::default().name_all(&mut picture);
    let mut problems = Problems::of("ps");
    report_missing_regions(&picture, &args.names, &mut problems);
    print(&picture, args, out)?;
    Ok(problems.code())
}

/// Prints the chosen regions of a picture.
pub(crate) fn print(picture: &Picture, args: &Args, out: &mut impl Write) -> io::Result<()> {
    let chosen = |region: &RegionReport| args.names.is_empty() || args.names.contains(&region.name);
    let views: Vec<_> = picture
        .regions
        .iter()
        .enumerate()
        .filter(|(_, region)| chosen(region))
        .map(|(index, _)| View::new(picture, index))
        .collect();
    if args.json {
        return json::print(&views, picture.hidden_descriptors, out);
    }
    if args.names.is_empty() && views.is_empty() {
        writeln!(out, "There are no regions.")?;
    }
    for (index, view) in views.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        view.print(out)?;
    }
    if picture.hidden_descriptors > 0 {
        let hidden = style::count(
            picture.hidden_descriptors,
            "process of another user is hidden: run as root to see its anonymous regions.",
            "processes of other users are hidden: run as root to see their anonymous regions.",
        );
        writeln!(out, "\n{}", Cell::new(style::FAINT, hidden))?;
    }
    Ok(())
}

/// Reports the named regions that do not exist, or that cannot be read.
pub(crate) fn report_missing_regions(picture: &Picture, names: &[String], problems: &mut Problems) {
    for name in names {
        let mut found = picture.regions.iter().filter(|region| region.name == *name);
        match found.next().map(|region| &region.contents) {
            None => problems.no_region(name),
            Some(Err(error @ (AttachError::System { .. } | AttachError::Permission))) => {
                problems.report(format_args!("region {name:?}: {error}"));
            }
            Some(_) => {}
        }
    }
}

impl View<'_> {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let region = self.region;
        let place = match &region.path {
            Some(path) => path.display().to_string(),
            None => "anonymous".into(),
        };
        write!(
            out,
            "{}  {}",
            Cell::new(style::STRONG, &region.name),
            Cell::new(style::FAINT, place)
        )?;
        match &region.contents {
            Err(error) => writeln!(
                out,
                "  {}  {}",
                style::bytes(region.memory_bytes),
                Cell::new(style::BAD, error.to_string())
            )?,
            Ok(contents) => {
                let objects = style::count(contents.objects.len(), "object", "objects");
                let heap = format!(
                    "{} of {} allocated",
                    style::bytes(contents.heap.allocated_bytes),
                    style::bytes(contents.max_bytes)
                );
                writeln!(
                    out,
                    "  at {:#x}, {} in memory, {heap}, {objects}",
                    contents.base,
                    style::bytes(region.memory_bytes)
                )?;
                for remark in remarks(contents) {
                    writeln!(out, "  {}", Cell::new(style::DOUBTFUL, remark))?;
                }
            }
        }
        let rows = self.rows();
        if rows.is_empty() {
            return writeln!(
                out,
                "  {}",
                Cell::new(style::FAINT, "no visible process has this region open")
            );
        }
        let mut table = Table::new(&[
            ("PID", Align::Right),
            ("PPID", Align::Right),
            ("S", Align::Left),
            ("RSS", Align::Right),
            ("SLOT", Align::Right),
            ("TID", Align::Right),
            ("TASK", Align::Left),
            ("CPU", Align::Right),
            ("NAME", Align::Left),
            ("WAITS FOR", Align::Left),
            ("COMMAND", Align::Left),
        ]);
        for row in rows {
            table.push(row);
        }
        table.write(out)
    }

    /// One process after the other, children below their parents, and each with its tasks.
    fn rows(&self) -> Vec<Vec<Cell>> {
        let tasks = self
            .region
            .contents
            .as_ref()
            .map_or(&[][..], |contents| &contents.tasks);
        let mut rows = Vec::new();
        for (pid, depth) in self.tree() {
            let mine: Vec<_> = tasks
                .iter()
                .filter(|task| task.state == TaskState::Alive && task.process == pid)
                .collect();
            let mut processes =
                std::iter::once(self.processes.get(&pid)).chain(std::iter::repeat(None));
            for task in &mine {
                rows.push(self.row(processes.next().flatten(), Some(task), depth));
            }
            if mine.is_empty() {
                rows.push(self.row(processes.next().flatten(), None, depth));
            }
        }
        rows.extend(
            tasks
                .iter()
                .filter(|task| task.state != TaskState::Alive)
                .map(|task| self.row(None, Some(task), 0)),
        );
        rows
    }

    /// The processes in display order, with their depths.
    fn tree(&self) -> Vec<(u32, usize)> {
        fn below(
            processes: &BTreeMap<u32, Process>,
            parent: Option<u32>,
            depth: usize,
            order: &mut Vec<(u32, usize)>,
        ) {
            for process in processes.values() {
                let shown = processes.get(&process.parent).map(|parent| parent.pid);
                // The snapshot is not taken at one instant: PIDs that were reused could even form a cycle.
                if shown == parent && process.pid != process.parent && depth < processes.len() {
                    order.push((process.pid, depth));
                    below(processes, Some(process.pid), depth + 1, order);
                }
            }
        }
        let mut order = Vec::new();
        below(&self.processes, None, 0, &mut order);
        order
    }

    fn row(&self, process: Option<&Process>, task: Option<&TaskReport>, depth: usize) -> Vec<Cell> {
        let orphan = task.filter(|task| task.state != TaskState::Alive);
        let pid = process
            .map(|process| process.pid)
            .or(orphan.map(|task| task.process));
        let cpu = task.and_then(|task| self.cpu_times.get(&task.slot));
        let name = task
            .map(|task| task.name.as_str())
            .filter(|name| !name.is_empty());
        vec![
            // Only the first row of a process names it.
            pid.map_or_else(|| Cell::plain(""), Cell::plain),
            process.map_or_else(|| Cell::plain(""), |process| Cell::plain(process.parent)),
            process.map_or_else(|| Cell::plain(""), |process| Cell::plain(process.state)),
            process.map_or_else(
                || Cell::plain(""),
                |process| Cell::plain(style::bytes(process.rss_bytes)),
            ),
            Cell::or_dash(task.map(|task| task.slot)),
            Cell::or_dash(task.map(|task| task.thread).filter(|thread| *thread != 0)),
            task.map_or_else(|| Cell::new(style::FAINT, "none"), |task| state(task.state)),
            Cell::or_dash(cpu.map(|cpu| format!("{:.2} s", cpu.as_secs_f64()))),
            Cell::plain(format!("{:1$}{2}", "", 2 * depth, name.unwrap_or("-"))),
            Cell::plain(
                task.and_then(|task| self.waits.get(&task.slot))
                    .map_or("", String::as_str),
            ),
            process.map_or_else(|| Cell::plain(""), |process| Cell::plain(&process.command)),
        ]
    }
}

fn state(state: TaskState) -> Cell {
    match state {
        TaskState::Alive => Cell::new(style::GOOD, "alive"),
        TaskState::Unswept => Cell::new(style::BAD, "dead"),
        _ => Cell::new(style::DOUBTFUL, "unseen"),
    }
}

/// The unusual properties of a region.
fn remarks(contents: &Contents) -> Vec<String> {
    let mut remarks = Vec::new();
    if contents.any_pid_namespace {
        remarks.push("it is for tasks of any PID namespace".to_owned());
    } else if !contents.pid_namespace_is_ours {
        remarks.push(format!(
            "its tasks belong to PID namespace {}",
            contents.pid_namespace
        ));
    }
    let here = live::own_namespace();
    let unseen = |task: &&TaskReport| task.state == TaskState::Unconfirmed;
    let elsewhere = contents
        .tasks
        .iter()
        .filter(unseen)
        .map(|task| task.pid_namespace);
    let mut elsewhere: Vec<u64> = elsewhere.filter(|namespace| *namespace != here).collect();
    elsewhere.sort_unstable();
    elsewhere.dedup();
    for namespace in elsewhere {
        remarks.push(format!(
            "processes of PID namespace {namespace} are not visible here: the IDs of its tasks are those that they have there"
        ));
    }
    for lock in &contents.locks {
        match lock.state {
            LockState::OwnerDied => remarks.push(format!(
                "the owner of its {} lock died; the next owner of this lock repairs the data",
                lock.name
            )),
            LockState::Held { thread } => {
                remarks.push(format!("its {} lock is held by thread {thread}", lock.name))
            }
            _ => {}
        }
    }
    let dead = contents
        .tasks
        .iter()
        .filter(|task| task.state == TaskState::Unswept)
        .count();
    if dead > 0 {
        let tasks = style::count(dead, "task died", "tasks died");
        remarks.push(format!(
            "{tasks}; the next task that attaches this region or waits in it will clean up"
        ));
    }
    remarks
}
