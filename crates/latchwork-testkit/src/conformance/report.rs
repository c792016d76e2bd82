//! Counts of the combinations that passed, failed or did not run.

use super::Table;
use core::fmt;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// The results of one action's combinations.
#[derive(Clone, Debug, Serialize)]
pub struct ActionReport {
    /// The action.
    pub action: String,
    /// All combinations of pre-condition states.
    pub combinations: usize,
    /// Those that the table skips, by reason.
    pub skipped: BTreeMap<String, usize>,
    /// Those that equal an earlier one, since a condition is irrelevant.
    pub repeated: usize,
    /// Those that cannot be run in user space, by reason.
    pub not_applicable: BTreeMap<String, usize>,
    /// Those that no driver runs yet.
    pub without_driver: usize,
    /// Those that ran with the expected result.
    pub passed: usize,
    /// Those that ran with another result.
    pub failed: Vec<Failure>,
    /// Post-conditions that were not, or only partly, observed, in combinations that were otherwise checked: state and
    /// reason.
    pub unseen: BTreeMap<String, usize>,
}

/// A combination with an unexpected result.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The combination.
    pub combination: String,
    /// The unexpected post-conditions.
    pub wrong: Vec<Wrong>,
}

/// A post-condition that did not hold as expected.
#[derive(Clone, Debug, Serialize)]
pub struct Wrong {
    /// The condition.
    pub condition: String,
    /// The state that the table requires.
    pub expected: String,
    /// The observed states; none if the driver did not observe it.
    pub seen: Vec<String>,
}

/// The results of several actions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The results of each action.
    pub actions: Vec<ActionReport>,
}

impl ActionReport {
    pub(super) fn new(table: &Table) -> Self {
        Self {
            action: table.action.clone(),
            combinations: 0,
            skipped: BTreeMap::new(),
            repeated: 0,
            not_applicable: BTreeMap::new(),
            without_driver: 0,
            passed: 0,
            failed: Vec::new(),
            unseen: BTreeMap::new(),
        }
    }

    /// How many the table skips.
    #[must_use]
    pub fn all_skipped(&self) -> usize {
        self.skipped.values().sum()
    }

    /// How many cannot be run in user space.
    #[must_use]
    pub fn all_not_applicable(&self) -> usize {
        self.not_applicable.values().sum()
    }
}

impl Report {
    /// The whole report as JSON.
    ///
    /// # Panics
    /// Never: all keys are strings.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("text and numbers")
    }

    /// The totals, in one line.
    #[must_use]
    pub fn totals(&self) -> String {
        let sum = |of: fn(&ActionReport) -> usize| self.actions.iter().map(of).sum::<usize>();
        format!(
            "{} combinations: {} passed, {} failed, {} not applicable, {} without driver, {} skipped by RTEMS, {} the same as others",
            sum(|action| action.combinations),
            sum(|action| action.passed),
            sum(|action| action.failed.len()),
            sum(ActionReport::all_not_applicable),
            sum(|action| action.without_driver),
            sum(ActionReport::all_skipped),
            sum(|action| action.repeated),
        )
    }

    /// Prints the report, and writes it as JSON to the file that `LATCHWORK_CONFORMANCE` names. (The totals are printed
    /// even if the test's output is captured.)
    ///
    /// # Panics
    /// If a combination failed, with all failures; or if the file cannot be written.
    pub fn assert_passed(&self) {
        println!("{self}");
        // Not by `println`, which is captured; an error is ignored.
        let _ = writeln!(std::io::stdout(), "RTEMS's tables: {}", self.totals());
        if let Some(file) = std::env::var_os("LATCHWORK_CONFORMANCE") {
            std::fs::write(file, self.to_json()).expect("a file that can be written");
        }
        let failures: Vec<&Failure> = self
            .actions
            .iter()
            .flat_map(|action| &action.failed)
            .collect();
        let text: String = failures.iter().map(|failure| failure.to_string()).collect();
        assert!(failures.is_empty(), "{} failed\n{text}", failures.len());
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.combination)?;
        for Wrong {
            condition,
            expected,
            seen,
        } in &self.wrong
        {
            writeln!(
                formatter,
                "    {condition}: expected {expected}, seen {}",
                if seen.is_empty() {
                    "nothing".to_owned()
                } else {
                    seen.join(" or ")
                }
            )?;
        }
        Ok(())
    }
}

fn reasons(counts: &BTreeMap<String, usize>) -> String {
    let parts: Vec<String> = counts
        .iter()
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    parts.join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:<36}{:>7}{:>9}{:>6}{:>7}{:>7}{:>6}{:>6}  not applicable, by reason",
            "action", "all", "skipped", "same", "passed", "failed", "later", "n/a"
        )?;
        let mut sum = [0; 7];
        for action in &self.actions {
            let numbers = [
                action.combinations,
                action.all_skipped(),
                action.repeated,
                action.passed,
                action.failed.len(),
                action.without_driver,
                action.all_not_applicable(),
            ];
            sum = core::array::from_fn(|index| sum[index] + numbers[index]);
            row(
                formatter,
                &action.action,
                numbers,
                &reasons(&action.not_applicable),
            )?;
        }
        row(formatter, "all", sum, "")
    }
}

fn row(
    formatter: &mut fmt::Formatter<'_>,
    name: &str,
    [all, skipped, same, passed, failed, later, not_applicable]: [usize; 7],
    reasons: &str,
) -> fmt::Result {
    writeln!(
        formatter,
        "{name:<36}{all:>7}{skipped:>9}{same:>6}{passed:>7}{failed:>7}{later:>6}{not_applicable:>6}  {reasons}"
    )
}
