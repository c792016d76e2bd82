//! `latchwork crashtest`: kills an operation of a program at each of its instructions, and has the program check what is
//! left.
//!
//! The program says by two marks where its operation begins and ends (`crashtest.h`). The first round records the
//! operation: each of its instructions is a point. Each further round runs the program again, kills the operation at one
//! point, and checks.
//!
//! | file | what |
//! | --- | --- |
//! | `launch.rs` | how the program is started; its folder and output |
//! | `session.rs` | the program under trace: the stops of all its tasks, and their end |
//! | `walk.rs` | a task's walk through the operation: recorded, or to a point |
//! | `points.rs` | the points, and which of them are tried |
//! | `round.rs` `outcome.rs` | a round: run, kill, check; how the check ended |
//! | `report.rs` `error.rs` | what was found; why nothing could be tested |
//!
//! The stepping itself is `latchwork-step`'s, which the tests of the library use, too.

mod error;
mod launch;
mod outcome;
mod points;
mod report;
mod round;
mod session;
mod walk;

use crate::failure::Failure;
use crate::program;
use latchwork_step::Pinned;
use launch::Launch;
use points::Choice;
use report::{Kill, Report, Sources, Summary, Sweep};
use round::Rounds;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use walk::{Operation, Point};

pub(crate) use error::Error;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kill at each K-th point only, beginning with the first
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = positive, conflicts_with_all = ["points", "at"])]
    every: usize,
    /// Kill at N points only, chosen at random
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "at")]
    points: Option<usize>,
    /// Kill at the point of this number only (repeatable). Reports show the numbers
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    at: Vec<usize>,
    /// Also kill the recovery, at random points after random kills of the operation, and check once more. There are N
    /// such rounds, with the N of --points [default: 200]. The check marks the recovery by
    /// lw_crashtest_recovery_begin() and lw_crashtest_recovery_end()
    #[arg(long)]
    recoverer: bool,
    /// Repeat the random choices of the run that printed this seed [default: a new one]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Check by this command of the shell. Without this option, the program itself is started again
    #[arg(long, value_name = "COMMAND")]
    check: Option<OsString>,
    /// The time limit in seconds: from a start to a mark, for one instruction of the operation, and from a kill to the
    /// end of the check. What takes longer is a hang
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    timeout: Duration,
    /// Let the program use all processors. Without this option it runs on one, which is faster: the program and this
    /// command run in turns
    #[arg(long)]
    all_processors: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// How many rounds kill the recovery.
const RECOVERIES: usize = 200;

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("0 is too small".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match Duration::try_from_secs_f64(number) {
        Ok(Duration::ZERO) => Err("0 is too short".into()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// A test in progress.
struct Test<'a> {
    args: &'a Args,
    rounds: Rounds,
    random: fastrand::Rng,
    sources: Sources,
}

/// Fails if a check did not hold.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<ExitCode, Failure> {
    let report = test(args)?;
    match args.json {
        true => report.write_json(out)?,
        false => report.write_text(out)?,
    }
    Ok(match report.holds {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn test(args: &Args) -> Result<Report, Error> {
    let path = program::find(&args.program[0])?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    session::adopt_orphans();
    let _ticks = session::Ticks::new();
    let _pinned = (!args.all_processors).then(Pinned::new);
    let launch = Launch::new(path, args.program.clone(), args.check.clone(), args.timeout)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u32(..).into());
    let mut test = Test {
        args,
        rounds: Rounds {
            launch,
            interrupted,
        },
        random: fastrand::Rng::with_seed(seed),
        sources: Sources::default(),
    };
    let operation = test.rounds.record()?;
    let points = points::all(&operation);
    let kills = test.kill(&operation, &points)?;
    let recoverer = match args.recoverer {
        true => Some(test.kill_recoveries(&operation, &points)?),
        false => None,
    };
    let sweeps = [Some(&kills), recoverer.as_ref()];
    Ok(Report {
        schema: "latchwork-crashtest/1",
        program: args
            .program
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        holds: sweeps
            .iter()
            .flatten()
            .all(|sweep| sweep.violations.is_empty()),
        seed: (args.points.is_some() || args.recoverer).then_some(seed),
        operation: Summary::of(&operation, points.len()),
        kills,
        recoverer,
    })
}

impl Test<'_> {
    /// Kills the operation at the chosen points.
    fn kill(&mut self, operation: &Operation, points: &[Point]) -> Result<Sweep, Error> {
        if let Some(beyond) = self.args.at.iter().find(|number| **number > points.len()) {
            return Err(Error::NoPoint(*beyond, points.len()));
        }
        let choice = match (self.args.points, &self.args.at[..]) {
            (Some(count), _) => Choice::Random(count),
            (None, []) => Choice::Every(self.args.every),
            (None, numbers) => Choice::These(numbers),
        };
        let chosen = points::choose(points, operation, choice, &mut self.random);
        let mut sweep = Sweep::default();
        let mut progress = Progress::new("operation", chosen.len());
        for index in chosen {
            let point = points[index];
            let round = self.rounds.kill(operation, point)?;
            let kill = Kill {
                number: index + 1,
                recovery: None,
                point,
                operation,
            };
            sweep.add(&kill, &round, &mut self.sources);
            progress.advance();
        }
        sweep.close();
        Ok(sweep)
    }

    /// Kills the recovery, too, at random points after random kills of the operation.
    fn kill_recoveries(&mut self, operation: &Operation, points: &[Point]) -> Result<Sweep, Error> {
        let rounds = self.args.points.unwrap_or(RECOVERIES);
        // About as many kills of the operation as points in each of their recoveries.
        let in_each = rounds.div_ceil((rounds as f64).sqrt().ceil() as usize);
        let mut order: Vec<usize> = (0..points.len()).collect();
        self.random.shuffle(&mut order);
        let mut sweep = Sweep::default();
        let mut progress = Progress::new("recovery", rounds);
        let mut left = rounds;
        for index in order {
            if left == 0 {
                break;
            }
            let point = points[index];
            let Some(recovery) = self.rounds.record_recovery(operation, point)? else {
                continue;
            };
            let of_recovery = points::all(&recovery);
            let mut second: Vec<usize> = (0..of_recovery.len()).collect();
            self.random.shuffle(&mut second);
            for second in second.into_iter().take(in_each.min(left)) {
                let killed = of_recovery[second];
                let round = self
                    .rounds
                    .kill_recovery(operation, point, &recovery, killed)?;
                let kill = Kill {
                    number: index + 1,
                    recovery: Some(second + 1),
                    point: killed,
                    operation: &recovery,
                };
                sweep.add(&kill, &round, &mut self.sources);
                progress.advance();
                left -= 1;
            }
        }
        match left == rounds {
            true => Err(Error::NoRecovery),
            false => {
                sweep.close();
                Ok(sweep)
            }
        }
    }
}

/// How far the rounds are, on a terminal.
struct Progress {
    what: &'static str,
    done: usize,
    all: usize,
    is_shown: bool,
}

impl Progress {
    fn new(what: &'static str, all: usize) -> Self {
        Self {
            what,
            done: 0,
            all,
            is_shown: io::stderr().is_terminal(),
        }
    }

    fn advance(&mut self) {
        self.done += 1;
        if self.is_shown {
            let Self {
                what, done, all, ..
            } = self;
            let _ = write!(io::stderr(), "\r{what}: {done} of {all}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
