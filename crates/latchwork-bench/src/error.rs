//! Why a benchmark did not run.

use std::io;
use std::path::PathBuf;

/// Why a benchmark did not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No scenario has this name.
    #[error("no scenario is called '{name}'; there are: {}", known.join(", "))]
    UnknownScenario {
        /// The requested name.
        name: String,
        /// The existing names.
        known: Vec<&'static str>,
    },
    /// No contestant of the chosen scenarios has this name.
    #[error("no contestant here is called '{name}'; there are: {}", known.join(", "))]
    UnknownContestant {
        /// The requested name.
        name: String,
        /// The existing names.
        known: Vec<&'static str>,
    },
    /// Too few rounds for a meaningful range.
    #[error("{rounds} rounds are too few for a median and a range: take 5 or more, or --quick")]
    TooFewRounds {
        /// The requested number of rounds.
        rounds: u32,
    },
    /// Task counts were given to scenarios that do not vary them.
    #[error("task counts do not apply to {scenario}")]
    TasksDoNotApply {
        /// The scenario.
        scenario: &'static str,
    },
    /// `--load` or `--window` was given without `futex-lock`.
    #[error("{option} is for futex-lock, which is not among the scenarios")]
    NothingOfLoads {
        /// The option.
        option: &'static str,
    },
    /// `--rtems-json` was given without a scenario of RTEMS's.
    #[error("--rtems-json is for fine-grained, which is not among the scenarios")]
    NothingOfRtems,
    /// A file for the results, or the directory for a report, could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A directory for a report has no results.
    #[error("{} has no results: --report writes them", directory.display())]
    NoResults {
        /// The directory.
        directory: PathBuf,
    },
    /// A file with results could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Standard output could not be written.
    #[error("cannot write the results: {0}")]
    Output(io::Error),
}
