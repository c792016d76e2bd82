//! How the command ends: one rule for all verbs that look at something.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// The rule, for `--help` and the manual.
pub(crate) const RULE: &str = "\
Exit status:
  0  What was named is there, and what was asked for is shown or done.
  1  Something that was named is not there, or cannot be looked at or done; standard error says what, in a line for \
each, and the rest is shown or done. Also where `order show` finds a cycle, `order diff` a new edge, or `doctor` that \
something required is missing.
  2  The command line is not understood.
`run` ends as the program does; or with 127 if there is no such program, 126 if it cannot be run, 125 for any other \
error.";

/// What a verb could not show or do, as it becomes known.
pub(crate) struct Trouble {
    verb: &'static str,
    said: Vec<String>,
    /// Says nothing by itself.
    is_silent: bool,
}

impl Trouble {
    pub(crate) fn of(verb: &'static str) -> Self {
        Self {
            verb,
            said: Vec::new(),
            is_silent: false,
        }
    }

    /// One that says all of it at [`Self::tell`]: for a verb that has the screen.
    pub(crate) fn silent(verb: &'static str) -> Self {
        Self {
            is_silent: true,
            ..Self::of(verb)
        }
    }

    /// Says it on standard error; what was named twice is said once.
    pub(crate) fn say(&mut self, what: impl Display) {
        let text = what.to_string();
        if !self.said.contains(&text) {
            if !self.is_silent {
                self.write(&text);
            }
            self.said.push(text);
        }
    }

    fn write(&self, text: &str) {
        // Without standard error the status says it alone.
        let _ = writeln!(io::stderr(), "latchwork: {}: {text}", self.verb);
    }

    /// Says what was not said yet.
    pub(crate) fn tell(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            self.said.iter().for_each(|text| self.write(text));
        }
    }

    /// There is no region of this name.
    pub(crate) fn no_region(&mut self, name: &str) {
        self.say(format_args!("there is no region {name:?}"));
    }

    pub(crate) fn is_none(&self) -> bool {
        self.said.is_empty()
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self.is_none() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}
