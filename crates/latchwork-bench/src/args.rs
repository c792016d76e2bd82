//! The command line of `latchwork bench`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use crate::Load;

/// `latchwork bench`: run scenarios, or list them.
#[derive(Debug, Clone, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    /// `list`, or nothing to run scenarios.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// What to run, and how.
    #[command(flatten)]
    pub options: Options,
}

/// What to do other than run.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// List the scenarios with their sources and contestants, and show how to install missing contestants
    List,
    /// Write the report in DIR again from the results (JSON) in DIR, without measuring
    ///
    /// The results are those that --report has written there, in one run or in several. The files of the report are
    /// replaced.
    Report {
        /// The directory of a report
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Compare the results of two runs, for example before and after a change
    ///
    /// A row is worse if the ranges of its rounds in both files do not overlap and the medians differ by more than the
    /// tolerance. Ratios to the baseline are compared, or figures if a row has no ratio or the baseline is one of this
    /// library. Rows that other programs have disturbed are not compared. The exit status is 1 if a row of this
    /// library is worse; rows of other libraries do not count.
    Compare {
        /// The earlier results: a file that --json has written
        #[arg(value_name = "A.json")]
        first: PathBuf,
        /// The later results
        #[arg(value_name = "B.json")]
        second: PathBuf,
        /// The difference between medians that is tolerated, in per cent
        #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
        tolerance: u32,
    },
}

/// The word for every scenario.
pub(crate) const ALL: &str = "all";
/// The word for the scenarios that show how costs grow.
pub(crate) const SCALE: &str = "scale";

/// What to run, and how.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct Options {
    /// Scenarios to run, in this order (`check-overhead` is run last: it leaves the checker in the process). `all` stands for all scenarios. `scale` stands for the scenarios that vary the number
    /// of tasks, with 1, 2, 4 and so on up to twice the number of CPUs (or those of --tasks), and for region-scale
    #[arg(required = true, value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Run fewer cases and shorter samples: at most 45 s per scenario on 2 CPUs
    #[arg(long)]
    pub quick: bool,
    /// Number of rounds; each round measures every contestant. Fewer than 5 need --quick [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Task counts, for scenarios that vary them
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    pub tasks: Vec<u32>,
    /// For the scenario `futex-lock`: the work of each critical section, as a number of pause instructions, or `sleep`
    /// for a sleep of a microsecond. If LIST is given, each load in it is measured with every task count. If not, load
    /// 10 is measured with every task count and, without --quick, the loads 1, 5, 20, 30, 40, 50, 100 and sleep are
    /// measured with the largest task count only
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub load: Vec<Load>,
    /// For the scenario `futex-lock`: the length of a sample in milliseconds [default: 500, with --quick 40]. With
    /// samples of 500 ms, this scenario takes about 25 minutes on 2 CPUs
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub window: Option<u32>,
    /// Run only these contestants and the baseline
    #[arg(long, value_name = "CONTESTANT,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// During the measurement, run N programs that spin. This option has no effect on the scenario `busy`, which always has
    /// its own background load
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub beside: Option<u32>,
    /// Also write the results to FILE: one line for each scenario, and in each line a JSON object
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the counters of the scenario `fine-grained` to FILE as JSON, in the format of RTEMS's benchmark
    /// tmfine01: one object for each case. For each task count, the object has an array with the operations per second
    /// of each task
    #[arg(long, value_name = "FILE")]
    pub rtems_json: Option<PathBuf>,
    /// Also write a report to DIR: report.html, a page that needs no other file; report.md, and for each scenario a chart (SVG), the results (JSON), and histograms of
    /// durations (SVG) if the scenario records durations. If a scenario repeats a published experiment, the report
    /// also has a page that compares the published figures with the measured ones. DIR is created if necessary
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

impl Options {
    /// The options that change what is measured, as they stand on a command line, each with a space before it.
    pub(crate) fn words(&self) -> String {
        let list = |words: Vec<String>| (!words.is_empty()).then(|| words.join(","));
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let quoted = |list: String| match list.contains(' ') {
            true => format!("'{list}'"),
            false => list,
        };
        let options = [
            ("--rounds", number(self.rounds)),
            (
                "--tasks",
                list(self.tasks.iter().map(u32::to_string).collect()),
            ),
            (
                "--load",
                list(self.load.iter().map(Load::to_string).collect()),
            ),
            ("--window", number(self.window)),
            ("--only", list(self.only.clone()).map(quoted)),
            ("--beside", number(self.beside)),
        ];
        let given = options
            .into_iter()
            .filter_map(|(name, value)| Some(format!(" {name} {}", value?)));
        let quick = if self.quick { " --quick" } else { "" };
        quick.to_owned() + &given.collect::<String>()
    }
}
