//! What a test found, as text and as JSON.

use super::outcome::Status;
use super::round::Round;
use super::walk::{Operation, Point};
use crate::json;
use crate::live::{Maps, Module, Program};
use crate::style::{self, BAD, Cell, DOUBTFUL, FAINT, GOOD, STRONG, count};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, Write};

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    pub(super) program: Vec<String>,
    /// Whether each check held.
    pub(super) holds: bool,
    /// The seed of the random choices, if there were any.
    pub(super) seed: Option<u64>,
    pub(super) operation: Summary,
    pub(super) kills: Sweep,
    /// Kills of the recovery.
    pub(super) recoverer: Option<Sweep>,
}

/// An operation.
#[derive(Serialize)]
pub(super) struct Summary {
    instructions: usize,
    system_calls: usize,
    points: usize,
    /// How many threads its process had.
    threads: usize,
    /// Whether it was the first process's, or a child's.
    process: &'static str,
    /// How points are found in later rounds.
    found_by: &'static str,
}

impl Summary {
    pub(super) fn of(operation: &Operation, points: usize) -> Self {
        Self {
            instructions: operation.places.len(),
            system_calls: operation.calls.len(),
            points,
            threads: operation.threads,
            process: match operation.is_of_first {
                true => "first",
                false => "child",
            },
            found_by: match operation.is_counted {
                true => "count",
                false => "breakpoint",
            },
        }
    }
}

/// The rounds of one kind, and what they found.
#[derive(Default, Serialize)]
pub(super) struct Sweep {
    rounds: usize,
    /// In how many of them the task was killed at the point.
    killed: usize,
    outcomes: Vec<Row>,
    pub(super) violations: Vec<Violation>,
    /// By status and output.
    #[serde(skip)]
    counts: BTreeMap<(Status, String), usize>,
}

/// Rounds with the same outcome.
#[derive(Serialize)]
struct Row {
    status: String,
    output: String,
    holds: bool,
    rounds: usize,
}

/// A kill after which the check did not hold.
#[derive(Clone, Serialize)]
pub(super) struct Violation {
    /// The number of the round.
    #[serde(skip)]
    round: usize,
    /// The number of the point of the operation, from 1 on.
    point: usize,
    /// The number of the point of the recovery.
    recovery_point: Option<usize>,
    /// Whether the task was killed at this point; if not, where its operation ended.
    killed: bool,
    /// `before` an instruction, `asleep` in its system call, or at the `end`.
    kind: &'static str,
    place: Option<Place>,
    status: String,
    output: String,
    details: Vec<String>,
}

/// An instruction.
#[derive(Clone, Serialize)]
struct Place {
    address: String,
    /// The file that is mapped there, and the offset in it.
    module: Option<String>,
    offset: Option<String>,
    /// The source line and the function, or as much as is known.
    source: String,
}

/// Where and how a task was killed.
pub(super) struct Kill<'a> {
    /// The number of the operation's point.
    pub(super) number: usize,
    /// The number of the recovery's point, if that was killed.
    pub(super) recovery: Option<usize>,
    /// The point of the last kill.
    pub(super) point: Point,
    /// Whose point that is.
    pub(super) operation: &'a Operation,
}

impl Sweep {
    /// Adds a round.
    pub(super) fn add(&mut self, kill: &Kill<'_>, round: &Round, sources: &mut Sources) {
        self.rounds += 1;
        self.killed += usize::from(round.is_killed);
        let outcome = &round.outcome;
        let key = (outcome.status, outcome.said.clone());
        *self.counts.entry(key).or_default() += 1;
        if outcome.holds() {
            return;
        }
        let (kind, address) = match kill.point {
            Point::Before(place) => ("before", Some(place.address)),
            Point::Asleep(place) => ("asleep", Some(place.address)),
            Point::AtEnd => ("end", None),
        };
        self.violations.push(Violation {
            round: self.rounds,
            point: kill.number,
            recovery_point: kill.recovery,
            killed: round.is_killed,
            kind,
            place: address.map(|address| sources.at(&kill.operation.maps, address)),
            status: outcome.status.to_string(),
            output: outcome.said.clone(),
            details: outcome.details.clone(),
        });
    }

    /// Ends the sweep.
    pub(super) fn close(&mut self) {
        let row = |((status, output), rounds): (&(Status, String), &usize)| Row {
            status: status.to_string(),
            output: output.clone(),
            holds: *status == Status::Code(0),
            rounds: *rounds,
        };
        self.outcomes = self.counts.iter().map(row).collect();
    }

    fn write(&self, out: &mut impl Write, what: &str) -> io::Result<()> {
        let Self { rounds, killed, .. } = self;
        let missed = rounds - killed;
        write!(
            out,
            "{what}: killed at {}",
            count(*killed, "point", "points")
        )?;
        if missed > 0 {
            let text = format!("; {missed} not reached, on another path of the operation");
            write!(out, "{}", Cell::new(DOUBTFUL, text))?;
        }
        writeln!(out)?;
        for row in &self.outcomes {
            let (style, word) = match row.holds {
                true => (GOOD, "holds"),
                false => (BAD, "VIOLATED"),
            };
            let text = format!("  {:>6}  {}", row.rounds, row.status);
            write!(out, "{}  {}", Cell::plain(text), Cell::new(style, word))?;
            match row.output.is_empty() {
                true => writeln!(out)?,
                false => writeln!(out, "  {}", Cell::new(FAINT, &row.output))?,
            }
        }
        Ok(())
    }

    /// The violations. Those in rounds that follow each other, with one outcome, are together, and those at one source
    /// line.
    fn write_violations(&self, out: &mut impl Write, what: &str) -> io::Result<()> {
        let mut groups: Vec<Vec<&Violation>> = Vec::new();
        for violation in &self.violations {
            let is_alike = |group: &&mut Vec<&Violation>| violation.belongs_to(group);
            match groups.iter_mut().find(is_alike) {
                Some(group) => group.push(violation),
                None => groups.push(vec![violation]),
            }
        }
        for group in groups {
            let (first, last) = (group[0], group[group.len() - 1]);
            let mut title = format!("{what} killed {}", first.place_of_kill());
            if last.place_of_kill() != first.place_of_kill() {
                title += &format!(", to {}", last.place_of_kill());
            }
            writeln!(out, "{}", Cell::new(STRONG, title))?;
            let mut text = format!("  {} at {}", first.status, first.numbers());
            if let Some(place) = &first.place {
                text += &format!(", address {place}");
            }
            if !first.killed {
                text += " (not reached)";
            }
            if group.len() > 1 {
                let more = count(group.len() - 1, "kill", "kills");
                text += &format!("; and after {more} more, the last at {}", last.numbers());
            }
            writeln!(out, "{}", Cell::new(BAD, text))?;
            let output = Some(&first.output).filter(|line| !line.is_empty());
            for line in output.into_iter().chain(&first.details) {
                writeln!(out, "  {}", Cell::new(FAINT, line))?;
            }
        }
        Ok(())
    }
}

/// The longest description of a place that is shown; names of C++ can be longer.
const LONGEST: usize = 160;

impl Violation {
    fn belongs_to(&self, group: &[&Self]) -> bool {
        let (first, last) = (group[0], group[group.len() - 1]);
        let is_alike = (&self.status, &self.output, self.killed)
            == (&first.status, &first.output, first.killed);
        // The rounds of a recovery are in no order.
        let follows = self.recovery_point.is_none() && self.round == last.round + 1;
        is_alike && (follows || self.place_of_kill() == first.place_of_kill())
    }

    fn place_of_kill(&self) -> String {
        let source = self.place.as_ref().map_or("", |place| &place.source);
        let cut = source.char_indices().nth(LONGEST);
        let source = match cut {
            Some((at, _)) => format!("{}…", &source[..at]),
            None => source.to_owned(),
        };
        match self.kind {
            "before" => format!("before {source}"),
            "asleep" => format!("asleep in the system call at {source}"),
            _ => "at its end mark".to_owned(),
        }
    }

    fn numbers(&self) -> String {
        match self.recovery_point {
            None => format!("point {}", self.point),
            Some(second) => format!("point {second} after a kill at point {}", self.point),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.address)?;
        match (&self.module, &self.offset) {
            (Some(module), Some(offset)) => write!(formatter, " ({module}+{offset})"),
            _ => Ok(()),
        }
    }
}

impl Report {
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        json::write_pretty(out, self)
    }

    pub(super) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let Summary {
            instructions,
            system_calls,
            points,
            threads,
            process,
            found_by,
        } = &self.operation;
        let whose = match *process {
            "first" => "the first process",
            _ => "a child process",
        };
        write!(
            out,
            "operation of {whose}: {}, {}, {}",
            count(*instructions, "instruction", "instructions"),
            count(*system_calls, "system call", "system calls"),
            count(*points, "point", "points"),
        )?;
        if *threads > 1 {
            write!(out, "; one of {threads} threads")?;
        }
        if *found_by == "count" {
            write!(out, "; points are found by counting")?;
        }
        writeln!(out)?;
        if let Some(seed) = self.seed {
            writeln!(out, "seed: {seed}")?;
        }
        self.kills.write(out, "operation")?;
        if let Some(recoverer) = &self.recoverer {
            recoverer.write(out, "recovery")?;
        }
        self.kills.write_violations(out, "operation")?;
        if let Some(recoverer) = &self.recoverer {
            recoverer.write_violations(out, "recovery")?;
        }
        Ok(())
    }
}

/// The source lines of instructions.
#[derive(Default)]
pub(super) struct Sources {
    programs: HashMap<(u64, u64), Program>,
}

impl Sources {
    fn at(&mut self, maps: &Maps, address: u64) -> Place {
        let number = format!("{address:#x}");
        let unknown = |module: Option<String>, source: String| Place {
            address: number.clone(),
            module,
            offset: None,
            source: style::printable(&source),
        };
        let Some(mapping) = maps.at(address) else {
            return unknown(None, number.clone());
        };
        let file = mapping.path.rsplit('/').next().unwrap_or_default();
        let first = maps.first_of(mapping).filter(|_| mapping.inode != 0);
        let Some(first) = first else {
            return unknown(Some(style::printable(file)), mapping.path.clone());
        };
        let module = Module {
            path: first.path.clone(),
            device: first.device,
            inode: first.inode,
            start: first.start,
            offset: first.offset,
        };
        let program = self
            .programs
            .entry((module.device, module.inode))
            .or_insert_with(|| Program::read(std::process::id(), &module));
        let offset = mapping.offset_of(address);
        let source = program
            .find_place(&module, address)
            .or_else(|| program.find_line(&module, address))
            .unwrap_or_else(|| format!("{file}+{offset:#x}"));
        Place {
            offset: Some(format!("{offset:#x}")),
            ..unknown(Some(style::printable(file)), source)
        }
    }
}
