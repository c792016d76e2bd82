//! Why a verb failed.

use std::io;

use crate::crashtest::Error as Untested;
use crate::order::Unreadable;
use crate::run;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    #[error("top: there is no terminal: try --once")]
    NoTerminal,
    #[error("cannot list /dev/shm: {0}")]
    Directory(rustix::io::Errno),
    #[error("order: {0}")]
    Order(#[from] Unreadable),
    #[error("the tour failed: {0}")]
    Tour(Box<dyn std::error::Error>),
    #[error(transparent)]
    Bench(#[from] latchwork_bench::Error),
    #[error(transparent)]
    Crashtest(#[from] Untested),
    #[error(transparent)]
    Run(#[from] run::Error),
}

impl Failure {
    /// Whether the reader of the output has closed the pipe.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        let error = match self {
            Self::Output(error) | Self::Bench(latchwork_bench::Error::Output(error)) => Some(error),
            Self::Tour(error) => error.downcast_ref(),
            _ => None,
        };
        error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}
