//! Why nothing could be tested.

use super::outcome::{Outcome, Status};
use crate::program::Unsuitable;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Why nothing could be tested.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("crashtest: {0}")]
    Program(#[from] Unsuitable),
    #[error("crashtest: cannot start {program:?}: {error}")]
    Start { program: PathBuf, error: io::Error },
    #[error("crashtest: cannot use the folder {path:?}: {error}")]
    Folder { path: PathBuf, error: io::Error },
    #[error("crashtest: tracing (ptrace) is forbidden here")]
    Forbidden,
    #[error("crashtest: {0}")]
    System(#[from] io::Error),
    #[error("crashtest: interrupted")]
    Interrupted,
    #[error("crashtest: a killed process did not end")]
    Unkillable,
    #[error(
        "crashtest: the program ended ({exit}) without a mark of where its operation begins: \
         lw_crashtest_begin() of crashtest.h{}", lines(&[complaint])
    )]
    NoMark { exit: Status, complaint: String },
    #[error(
        "crashtest: within the time limit, the program came to no mark of where its operation begins{}", lines(.0)
    )]
    NoBegin(Vec<String>),
    #[error(
        "crashtest: the operation came to no end within the time limit, without a kill{}", lines(.0)
    )]
    Endless(Vec<String>),
    #[error(
        "crashtest: no mark of the operation's end, lw_crashtest_end() of crashtest.h, within {0} instructions"
    )]
    TooLong(u64),
    #[error(
        "crashtest: the program ended in its operation: the mark of the operation's end is missing, or the program \
         crashes or is ended by another process"
    )]
    DiedInOperation,
    #[error("crashtest: {0} fails although nothing was killed: {1}")]
    FailsUnkilled(&'static str, Box<Outcome>),
    #[error("crashtest: there is no point {0}: the operation has {1}")]
    NoPoint(usize, usize),
    #[error(
        "crashtest: no check came to a mark of where its recovery begins: lw_crashtest_recovery_begin() of crashtest.h"
    )]
    NoRecovery,
    #[error(
        "crashtest: the recovery is the first process's, whose end is the check: let another process make it"
    )]
    FirstRecovers,
}

/// Lines that follow a message.
fn lines(lines: &[impl AsRef<str>]) -> String {
    let lines = lines.iter().map(AsRef::as_ref);
    let lines = lines.filter(|line| !line.is_empty());
    lines.fold(String::new(), |text, line| text + "\n  " + line)
}

impl Error {
    /// As that of `run`.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Program(Unsuitable::NotFound { .. }) => 127,
            Self::Program(_) | Self::Start { .. } => 126,
            _ => 125,
        })
    }
}
