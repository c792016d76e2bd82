//! How a check ended.

use std::fmt;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Status {
    /// With this exit status; 0 says that the invariant holds.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not within the time limit.
    Hang,
    /// The operation came neither to the point nor to its end within the time limit.
    Stuck,
}

/// What a round found.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(super) status: Status,
    /// The last line that the check wrote to its standard output.
    pub(super) said: String,
    /// The last line that it wrote to its standard error; after a hang, what the tasks were doing.
    pub(super) details: Vec<String>,
}

impl Outcome {
    pub(super) fn holds(&self) -> bool {
        self.status == Status::Code(0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit status {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
            Self::Hang => formatter.write_str("hang"),
            Self::Stuck => formatter.write_str("stuck before the point"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.fmt(formatter)?;
        if !self.said.is_empty() {
            write!(formatter, " ({})", self.said)?;
        }
        for line in &self.details {
            write!(formatter, "\n  {line}")?;
        }
        Ok(())
    }
}
