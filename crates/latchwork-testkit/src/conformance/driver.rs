//! Running a table against an implementation.

use super::{ActionReport, Applies, Combination, Failure, NOT_APPLICABLE, Outcome, Table, Wrong};
use core::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Brings about the pre-condition states of a combination, acts, and returns what it observes.
///
/// A function from combinations to observations is a driver.
pub trait Driver {
    /// Runs one combination, and cleans up after it.
    ///
    /// # Errors
    /// The reason why it cannot be run, by name.
    fn run(&mut self, combination: &Combination) -> Result<Seen, NotApplicable>;
}

impl<F: FnMut(&Combination) -> Result<Seen, NotApplicable>> Driver for F {
    fn run(&mut self, combination: &Combination) -> Result<Seen, NotApplicable> {
        self(combination)
    }
}

impl Driver for Box<dyn Driver> {
    fn run(&mut self, combination: &Combination) -> Result<Seen, NotApplicable> {
        (**self).run(combination)
    }
}

/// Why a combination cannot be run: a reason of `applicable.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotApplicable(pub &'static str);

/// The observations after an action: for each post-condition the state that holds, or several of which one holds.
#[derive(Clone, Debug, Default)]
pub struct Seen(BTreeMap<&'static str, Vec<String>>);

impl Seen {
    /// No observations yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// This state of this condition holds. (If none of the states does, any text that describes the observation.)
    #[must_use]
    pub fn state(self, condition: &'static str, state: impl Into<String>) -> Self {
        self.one_of(condition, [state])
    }

    /// One of these states holds; the driver cannot determine which.
    #[must_use]
    pub fn one_of<S: Into<String>>(
        mut self,
        condition: &'static str,
        states: impl IntoIterator<Item = S>,
    ) -> Self {
        let states = states.into_iter().map(Into::into).collect();
        self.0.insert(condition, states);
        self
    }
}

impl Seen {
    fn states(&self, condition: &str) -> &[String] {
        self.0.get(condition).map_or(&[], Vec::as_slice)
    }

    /// Whether this is what the table requires, as far as it can be observed.
    pub(super) fn meets(&self, combination: &Combination) -> bool {
        let mut report = ActionReport::new(combination.table());
        report.judge(Applies::of(combination.table()), combination, self);
        report.failed.is_empty()
    }
}

impl Table {
    /// Runs all combinations of the table. A combination in which the driver panics has failed.
    ///
    /// # Panics
    /// If the driver returns several states where it must determine which one holds.
    #[must_use]
    pub fn conform(&'static self, driver: &mut dyn Driver) -> ActionReport {
        let applies = Applies::of(self);
        let mut report = ActionReport::new(self);
        for combination in self.combinations() {
            report.combinations += 1;
            match combination.outcome() {
                Outcome::Skipped(reason) => count(&mut report.skipped, reason),
                Outcome::Repeated => report.repeated += 1,
                Outcome::Expected(_) => match applies.hinders(&combination) {
                    Some(reason) => count(&mut report.not_applicable, reason),
                    None => match catch_unwind(AssertUnwindSafe(|| driver.run(&combination))) {
                        Ok(Err(NotApplicable(reason))) => {
                            count(&mut report.not_applicable, reason);
                        }
                        Ok(Ok(seen)) => report.judge(applies, &combination, &seen),
                        Err(panic) => report.failed.push(Failure {
                            combination: combination.to_string(),
                            wrong: vec![Wrong {
                                condition: "the driver".to_owned(),
                                expected: "no panic".to_owned(),
                                seen: vec![message_of(&*panic)],
                            }],
                        }),
                    },
                },
            }
        }
        report
    }

    /// As [`Self::conform`], without a driver: combinations that can be run are counted as such.
    #[must_use]
    pub fn survey(&'static self) -> ActionReport {
        const TO_DO: &str = "";
        let mut report = self.conform(&mut |_: &Combination| Err(NotApplicable(TO_DO)));
        report.without_driver = report.not_applicable.remove(TO_DO).unwrap_or(0);
        report
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic".to_owned())
}

fn count(counts: &mut BTreeMap<String, usize>, reason: &str) {
    *counts.entry(reason.to_owned()).or_default() += 1;
}

impl ActionReport {
    fn judge(&mut self, applies: &'static Applies, combination: &Combination, seen: &Seen) {
        let mut wrong = Vec::new();
        for (condition, expected) in combination.expected() {
            if expected == NOT_APPLICABLE {
                continue;
            }
            if let Some(reason) = applies.hides(condition, expected) {
                count(
                    &mut self.unseen,
                    &format!("{condition}={expected}: {reason}"),
                );
                continue;
            }
            let states = seen.states(condition);
            if states.len() > 1 {
                let reason = applies.partly.get(condition).unwrap_or_else(|| {
                    panic!("{combination}: {condition} must be seen as it is, not as {states:?}")
                });
                count(&mut self.unseen, &format!("{condition} (partly): {reason}"));
            }
            if !states.iter().any(|state| state == expected) {
                wrong.push(Wrong {
                    condition: condition.to_owned(),
                    expected: expected.to_owned(),
                    seen: states.to_vec(),
                });
            }
        }
        if wrong.is_empty() {
            self.passed += 1;
        } else {
            self.failed.push(Failure {
                combination: combination.to_string(),
                wrong,
            });
        }
    }
}
