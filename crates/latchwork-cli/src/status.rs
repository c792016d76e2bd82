//! The exit status of the command: one rule for all verbs that inspect something.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// The rule, for `--help` and the manual.
pub(crate) const RULE: &str = "\
Exit status:
  0  Success.
  1  A process, region or file that the command line names does not exist or is not accessible, or an operation \
failed. Standard error has a line for each failure; the other operations were carried out. The status is also 1 if `order show` finds \
a cycle, if `order diff` finds a new edge, if `doctor` finds that something required is missing, if a check of \
`crashtest` does not hold, or if `bench compare` finds that a row of this library is worse.
  2  The command line is invalid.
`run` exits with the program's status. If there is no such program, `run` and `crashtest` exit with 127; if the program \
cannot be run, with 126; and after any other error, with 125.";

/// What a verb could not show or do, collected as it runs.
pub(crate) struct Problems {
    verb: &'static str,
    messages: Vec<String>,
    /// Whether messages are deferred.
    is_deferred: bool,
}

impl Problems {
    pub(crate) fn of(verb: &'static str) -> Self {
        Self {
            verb,
            messages: Vec::new(),
            is_deferred: false,
        }
    }

    /// For a verb that draws on the screen: defers all messages until [`Self::print_deferred`].
    pub(crate) fn deferred(verb: &'static str) -> Self {
        Self {
            is_deferred: true,
            ..Self::of(verb)
        }
    }

    /// Prints a message on standard error; a repeated one only once.
    pub(crate) fn report(&mut self, what: impl Display) {
        let text = what.to_string();
        if !self.messages.contains(&text) {
            if !self.is_deferred {
                self.write(&text);
            }
            self.messages.push(text);
        }
    }

    fn write(&self, text: &str) {
        // An error is ignored: without standard error, the exit status must suffice.
        let _ = writeln!(io::stderr(), "latchwork: {}: {text}", self.verb);
    }

    /// Prints the deferred messages.
    pub(crate) fn print_deferred(&mut self) {
        if std::mem::take(&mut self.is_deferred) {
            self.messages.iter().for_each(|text| self.write(text));
        }
    }

    /// Reports that there is no region of this name.
    pub(crate) fn no_region(&mut self, name: &str) {
        self.report(format_args!("there is no region {name:?}"));
    }

    pub(crate) fn is_none(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self.is_none() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}
