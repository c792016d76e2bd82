//! `latchwork order`: reads the files that a checked program appends with `LATCHWORK_CHECK=order=PATH`.
//!
//! An edge A → B says that a task wanted a lock of class B while it held one of class A. Classes are identified by the
//! names of their locks, or by where these were made, so files of several runs, programs and versions can be compared.

mod graph;

use crate::failure::Failure;
use crate::style::printable;
use graph::{Edge, Graph};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use graph::Unreadable;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the edges of all files together, and the cycles that they form: potential deadlocks
    Show {
        /// Order files (`run --report DIR` writes DIR/order)
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Write the edges of all files, and each edge only once
    Merge {
        /// Order files (`run --report DIR` writes DIR/order)
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the edges of NEW that OLD does not have; exit with 1 if there is such an edge
    Diff {
        /// The order file of the known edges
        old: PathBuf,
        /// The order file to compare with OLD
        new: PathBuf,
    },
}

/// All edges of some files; reports lines that are incomplete.
fn read(files: &[PathBuf]) -> Result<Graph, Failure> {
    let graph = Graph::read(files)?;
    for cut_off in &graph.cut_off {
        let text = printable(&cut_off.to_string());
        writeln!(io::stderr(), "latchwork: order: {text}")?;
    }
    Ok(graph)
}

/// Fails if there is a cycle to show, or a new edge.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<ExitCode, Failure> {
    match &args.verb {
        Verb::Show { files } => show(&read(files)?, out),
        Verb::Merge { files } => {
            for edge in read(files)?.edges() {
                writeln!(out, "{}", edge.to_json())?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Diff { old, new } => {
            let known = read(std::slice::from_ref(old))?;
            let now = read(std::slice::from_ref(new))?;
            let mut code = ExitCode::SUCCESS;
            for edge in now.edges().filter(|edge| !known.has(edge)) {
                writeln!(out, "new edge {}", line(edge))?;
                if known.leads(&edge.to, &edge.from) {
                    writeln!(out, "  OLD has the opposite order: a potential deadlock")?;
                }
                code = ExitCode::FAILURE;
            }
            Ok(code)
        }
    }
}

fn show(graph: &Graph, out: &mut impl Write) -> Result<ExitCode, Failure> {
    for edge in graph.edges() {
        writeln!(out, "{}", line(edge))?;
    }
    let cycles = graph.cycles();
    for cycle in &cycles {
        writeln!(out, "cycle: {}", printable(&cycle.join(" -> ")))?;
    }
    Ok(if cycles.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn line(edge: &Edge) -> String {
    let Edge {
        from,
        to,
        held_at,
        wanted_at,
        ..
    } = edge;
    // The contents of a file may be any characters.
    printable(&format!(
        "{from} -> {to}  (held {held_at}, wanted {wanted_at})"
    ))
}
