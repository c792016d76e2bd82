//! `latchwork gc`: removing the named regions that no process uses any more.

use crate::failure::Failure;
use crate::json;
use crate::status::Problems;
use crate::style::{self, Align, Cell, Table};
use latchwork::region::leftovers::{Caution, Leftover, Outcome, remove_unused};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Examine these regions only [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    dry_run: bool,
    files: Vec<File>,
}

#[derive(Serialize)]
struct File {
    path: String,
    memory_bytes: u64,
    outcome: &'static str,
    /// Why it failed.
    error: Option<String>,
    /// Why only the file lock could show whether it is in use.
    caution: Option<String>,
}

/// Fails if a file could not be examined, or not be removed.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<ExitCode, Failure> {
    let leftovers = remove_unused(&args.names, args.dry_run).map_err(Failure::Directory)?;
    let mut problems = Problems::of("gc");
    for (index, leftover) in leftovers.iter().enumerate() {
        if leftover.outcome == Outcome::Missing {
            // Only a region that was named can be missing, and then there is an entry for each name.
            problems.no_region(&args.names[index]);
        } else if let Some(error) = error(&leftover.outcome) {
            problems.report(format_args!("{:?}: {error}", leftover.path));
        }
    }
    match args.json {
        true => print_json(args, &leftovers, out)?,
        false => print_table(&leftovers, out)?,
    }
    Ok(problems.code())
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Removed => "removed",
        Outcome::Removable => "removable",
        Outcome::InUse => "in use",
        Outcome::Foreign => "foreign",
        Outcome::Missing => "missing",
        _ => "failed",
    }
}

fn error(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Failed { call, error } => Some(format!("{call}: {error}")),
        _ => None,
    }
}

/// How it was decided what to do with a file that this build cannot read.
const ONLY_LOCK: &str = "only the lock on the file shows whether the region is in use";

fn caution(leftover: &Leftover) -> Option<String> {
    Some(match leftover.caution.as_ref()? {
        Caution::OtherBuild { fingerprint } => {
            format!(
                "a build with another layout ({fingerprint:016x}) made the region, so {ONLY_LOCK}"
            )
        }
        Caution::OtherPidNamespace { namespace } => {
            format!("the region belongs to PID namespace {namespace}, so {ONLY_LOCK}")
        }
        _ => format!("the region is damaged, so {ONLY_LOCK}"),
    })
}

fn print_json(args: &Args, leftovers: &[Leftover], out: &mut impl Write) -> std::io::Result<()> {
    let file = |leftover: &Leftover| File {
        path: leftover.path.display().to_string(),
        memory_bytes: leftover.memory_bytes,
        outcome: word(&leftover.outcome),
        error: error(&leftover.outcome),
        caution: caution(leftover),
    };
    let report = Report {
        schema: "latchwork-gc/1",
        dry_run: args.dry_run,
        files: leftovers.iter().map(file).collect(),
    };
    json::write_pretty(out, &report)
}

fn print_table(leftovers: &[Leftover], out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("", Align::Left),
        ("", Align::Right),
        ("", Align::Left),
    ]);
    let (mut removed, mut freed) = (0, 0);
    for leftover in leftovers
        .iter()
        .filter(|leftover| leftover.outcome != Outcome::Missing)
    {
        let style = match leftover.outcome {
            Outcome::Removed | Outcome::Removable => style::GOOD,
            Outcome::InUse | Outcome::Foreign => style::FAINT,
            _ => style::BAD,
        };
        if matches!(leftover.outcome, Outcome::Removed | Outcome::Removable) {
            removed += 1;
            freed += leftover.memory_bytes;
        }
        let remark = match &leftover.outcome {
            Outcome::Foreign => Some("not a region; not removed".into()),
            outcome => error(outcome).or_else(|| caution(leftover)),
        };
        table.push(vec![
            Cell::new(style, word(&leftover.outcome)),
            Cell::plain(leftover.path.display()),
            Cell::plain(style::bytes(leftover.memory_bytes)),
            Cell::plain(remark.unwrap_or_default()),
        ]);
    }
    table.write(out)?;
    let regions = style::count(removed, "region", "regions");
    match leftovers
        .iter()
        .any(|leftover| leftover.outcome == Outcome::Removable)
    {
        true => writeln!(
            out,
            "{regions} would be removed, and {} freed.",
            style::bytes(freed)
        ),
        false if removed == 0 => writeln!(out, "Nothing to remove."),
        false => writeln!(out, "{regions} removed, and {} freed.", style::bytes(freed)),
    }
}
