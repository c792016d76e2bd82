//! The `latchwork` command: one file per verb. A library of its own, so that a fuzz target can call it; it promises nothing.
//!
//! Every verb writes to the stream that it is given, so that only this file deals with colours, pipes that close early,
//! and output errors.

mod bench;
mod completions;
mod crashtest;
mod doctor;
mod failure;
mod gc;
mod json;
mod live;
mod locks;
#[cfg(test)]
mod manual;
mod order;
mod process;
mod program;
mod ps;
mod run;
#[doc(hidden)]
pub mod shown;
mod status;
mod style;
mod symbolise;
mod terminal;
mod top;
mod tour;

use clap::{CommandFactory, Parser, Subcommand};
use failure::Failure;
use std::io::{self, Write};
use std::process::ExitCode;

/// Inspect, check and measure the locks, queues and shared regions of threads and processes
///
/// A task is a thread of any process. A region is memory that several processes share: see lw_region(3). A coproc is a
/// process that shares a region with the process that started it: see coproc(3). A program is checked if it was started
/// by `latchwork run --check`, or uses this library's checker itself. A finding is a breach of a rule that the checker has
/// detected in such a program.
#[derive(Parser)]
#[command(name = "latchwork", version, after_long_help = status::RULE)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Kill one of several processes that share memory, and show that the others continue. This is the default subcommand
    Tour(tour::Args),
    /// Report which features this system has, permits or lacks, and what follows for this library
    Doctor(doctor::Args),
    /// Show regions, the tasks of each region, and the processes of these tasks
    Ps(ps::Args),
    /// Show which tasks hold which locks, and which tasks wait for which locks, in all processes
    ///
    /// A task is shown with its name, its process and thread IDs (a single number if both are equal), and its scheduling
    /// policy with its real-time priority or nice level: "worker 812/815 FIFO:20". "^50" after this says that the task
    /// inherits the real-time priority 50.
    ///
    /// A lock can have flags. "cycle": a wait for the lock is part of a deadlock. "inversion": a waiter has a higher priority
    /// than the owner, and the owner does not inherit it. "owner-dead": the owner has died.
    ///
    /// The time that is printed next to a waiter (a task that waits) says how long the waiter has waited:
    ///
    /// "3.2 s": a time that the checker has measured; the waiter's program is checked.
    ///
    /// "~3.2 s": an estimate of how long the waiter has slept.
    ///
    /// "≥0.7 s": an estimate of how long the waiter's current timed sleep has lasted. The waiter may have slept before:
    /// waiters of robust and of throughput locks wait in a series of timed sleeps. For a robust lock, each of these
    /// sleeps lasts for a second.
    ///
    /// "seen 14 s" (with --watch, and in `top`): each sample in that time has shown the same waiter, lock and owner.
    /// The waiter may have held the lock between two samples.
    Locks(locks::Args),
    /// Watch tasks, locks, queues and regions on the whole screen
    Top(top::Args),
    /// Remove each named region that no process uses any more
    Gc(gc::Args),
    /// Run an unmodified program with this library's mutexes, or under this library's checker
    Run(run::Args),
    /// Kill an operation of a program at each of its instructions, and have the program check what is left
    ///
    /// A point is an instruction of the operation; the operation is killed before it. An instruction that is executed
    /// several times is as many points. A system call that sleeps is one more. In each round the program is started again,
    /// with an empty folder, whose path is the value of LATCHWORK_CRASHTEST_DIR, and with LATCHWORK_CRASHTEST=run. The
    /// program says where its operation begins and ends, by lw_crashtest_begin() and lw_crashtest_end() of crashtest.h.
    /// The process that comes to these marks first is killed at the point, by SIGKILL. Then the invariant is checked:
    ///
    /// If the killed process was the program's first one, its other processes are killed, too, and the program is started
    /// again, with LATCHWORK_CRASHTEST=check.
    ///
    /// If it was a child, the first process goes on, and its own end is the check.
    ///
    /// The check must end with status 0 within the time limit. The last line that it writes to standard output is a part
    /// of the outcome. If only some points are chosen, the points before, in and after system calls are always among
    /// them, and the first and the last point. The exit status is 0 if all checks held, and 1 if one did not.
    Crashtest(crashtest::Args),
    /// Print a report with source lines; the checker starts this subcommand
    #[command(hide = true)]
    Symbolise(symbolise::Args),
    /// Show, merge and compare the lock orders that checked programs have written
    ///
    /// A lock order consists of edges. An edge A -> B says that a task requested lock B while it held lock A. If the edges
    /// form a cycle, the program may deadlock.
    Order(order::Args),
    /// Compare the performance of this library with other libraries
    ///
    /// A scenario is an experiment. Its contestants are the locks, queues or other objects that it measures. One of them
    /// is the baseline: the others are compared with it.
    Bench(latchwork_bench::Args),
    /// Print the completion script of a shell
    ///
    /// `install.sh` installs the scripts where the shells search them. To try one: source <(latchwork completions bash)
    Completions(completions::Args),
}

/// The command with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = anstream::stdout().lock();
    match run(cli.verb, &mut out).and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            // Names of files may contain any characters.
            let text = failure.to_string();
            let lines: Vec<String> = text.lines().map(style::printable).collect();
            let _ = writeln!(io::stderr(), "latchwork: {}", lines.join("\n"));
            match failure {
                Failure::Run(error) => error.code(),
                Failure::Crashtest(error) => error.code(),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run(verb: Option<Verb>, out: &mut impl Write) -> Result<ExitCode, Failure> {
    match verb {
        Some(Verb::Doctor(args)) => Ok(doctor::run(&args, out)?),
        Some(Verb::Ps(args)) => Ok(ps::run(&args, out)?),
        Some(Verb::Locks(args)) => Ok(locks::run(&args, out)?),
        Some(Verb::Top(args)) => top::run(&args, out),
        Some(Verb::Gc(args)) => gc::run(&args, out),
        Some(Verb::Run(args)) => Ok(run::run(&args)?),
        Some(Verb::Crashtest(args)) => crashtest::run(&args, out),
        Some(Verb::Symbolise(args)) => Ok(symbolise::run(&args)),
        Some(Verb::Order(args)) => order::run(&args, out),
        Some(Verb::Bench(args)) => bench::run(&args),
        Some(Verb::Completions(args)) => {
            completions::run(&args, Cli::command(), out)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Verb::Tour(args)) => tour::run(&args, out).map_err(Failure::Tour),
        None => tour::run(&tour::Args::default(), out).map_err(Failure::Tour),
    }
}
