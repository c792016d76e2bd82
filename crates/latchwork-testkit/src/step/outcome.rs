//! What checks found after kills, and the report on it.

use crate::Trial;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;

/// The file to which each test appends what it has tried.
const FILE: &str = "LATCHWORK_KILL_REPORT";

/// The coverage of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered {
    /// Instructions that an undisturbed run of the operation executes.
    pub instructions: u64,
    /// How many of them are points.
    pub points: u64,
    /// At how many points it was killed.
    pub killed_at: u64,
    /// How many times it was killed asleep.
    pub asleep: u64,
    /// How many of these kills hit a task that was to recover from another one, by [`Places::kill`](super::Places::kill).
    pub double: u64,
    /// How many times it was killed, at a point or asleep, in a PID namespace of its own.
    pub apart: u64,
}

/// What a check found, if it did not panic.
///
/// The environment variable `LATCHWORK_KILL_REPORT` names a file to which [`each_instruction`](super::each_instruction)
/// appends a line of JSON: the test, the operation, how many points it has, how many were tried, and how often each
/// outcome occurred. `ci/killsweep.sh` and `ci/kernels.sh` make tables of it.
pub trait Outcome {
    /// A few words.
    fn words(&self) -> &str;
}

/// The state was as it must be.
impl Outcome for () {
    fn words(&self) -> &str {
        "holds"
    }
}

impl Outcome for &str {
    fn words(&self) -> &str {
        self
    }
}

impl Outcome for String {
    fn words(&self) -> &str {
        self
    }
}

/// The outcome of a round with an operation that has taken effect, or has not.
#[must_use]
pub fn done(is_done: bool) -> &'static str {
    match is_done {
        true => "done",
        false => "not done",
    }
}

/// The outcome of a round with a lock: so many deaths of its owners were reported.
#[must_use]
pub fn reported(deaths: u64) -> &'static str {
    match deaths {
        0 => "no owner died",
        _ => "an owner's death was reported",
    }
}

/// How often each outcome occurred.
#[derive(Debug, Default)]
pub(super) struct Outcomes(BTreeMap<String, u64>);

impl Outcomes {
    pub(super) fn add(&mut self, outcome: impl Outcome) {
        *self.0.entry(outcome.words().to_owned()).or_default() += 1;
    }

    /// Appends a line, if a file for it is named.
    ///
    /// # Panics
    /// If it cannot be written.
    pub(super) fn report(&self, trial: &Trial, operation: &str, covered: &Covered) {
        let Some(path) = std::env::var_os(FILE) else {
            return;
        };
        let mut line = self.line(trial.name(), operation, covered);
        line["seed"] = trial.seed().to_string().into();
        let mut line = line.to_string();
        line.push('\n');
        // One call, to a file that others append to: lines do not mix.
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn line(&self, trial: &str, operation: &str, covered: &Covered) -> Value {
        let program = std::env::current_exe().unwrap_or_default();
        let program = program.file_stem().unwrap_or_default().to_string_lossy();
        // Cargo adds a hash to the name.
        let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
        // libtest names a test's thread by the test's path; the modules of it are the kind of lock.
        let thread = std::thread::current();
        let kind = thread.name().and_then(|name| name.rsplit_once("::"));
        let Covered {
            instructions,
            points,
            killed_at,
            asleep,
            double,
            apart,
        } = *covered;
        json!({
            "program": program,
            "kind": kind.map_or("", |(modules, _)| modules),
            "test": trial,
            "operation": operation,
            "instructions": instructions,
            "points": points,
            "killed": killed_at,
            "asleep": asleep,
            "double": double,
            "apart": apart,
            "outcomes": self.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_counts_of_all_outcomes() {
        let mut outcomes = Outcomes::default();
        outcomes.add(());
        outcomes.add("owner died");
        outcomes.add("owner died");
        let covered = Covered {
            instructions: 5,
            points: 4,
            killed_at: 3,
            asleep: 1,
            double: 2,
            apart: 4,
        };
        let line = outcomes.line("a_test", "lock", &covered);
        assert_eq!(line["program"], "latchwork_testkit");
        assert_eq!(line["kind"], "step::outcome::tests");
        assert_eq!(line["operation"], "lock");
        assert_eq!(
            [&line["killed"], &line["double"], &line["apart"]],
            [3, 2, 4]
        );
        assert_eq!(line["outcomes"], json!({"holds": 1, "owner died": 2}));
    }
}
