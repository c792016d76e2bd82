//! All combinations of pre-condition states, and what a table says of each.
//!
//! Several rows may cover a combination. The rules are those of RTEMS's own generator:
//! 1. a row covers a combination if it lists its state of each condition; `all` and `N/A` list all;
//! 2. a row that skips replaces one before it that is enabled by the same option;
//! 3. the row for what no other covers ("default") counts where none before it does;
//! 4. of those left the first decides that names a build option which holds here, if there is one, and
//!    else the one that needs none.
//!
//! A condition that is irrelevant (`N/A`) in the deciding row makes combinations equal that differ only in it: the
//! first of them is run, the others are [repeated](Outcome::Repeated).

use super::table::{
    Case, CaseThen, Choice, Enabled, Every, Operator, States, Table, Test, Then, Transition, When,
};
use core::fmt;
use std::collections::HashSet;

/// The state of an irrelevant condition.
pub const NOT_APPLICABLE: &str = "N/A";

/// One combination of pre-condition states.
#[derive(Clone, Debug)]
pub struct Combination {
    table: &'static Table,
    pre: Vec<&'static str>,
    outcome: Outcome,
}

/// What the table says of a combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It cannot occur, for this reason.
    Skipped(&'static str),
    /// It equals an earlier one.
    Repeated,
    /// These states must hold, one of each post-condition.
    Expected(Vec<&'static str>),
}

impl Combination {
    /// The state of a pre-condition; [`NOT_APPLICABLE`] if it is irrelevant.
    ///
    /// # Panics
    /// If the table has no such condition.
    #[must_use]
    pub fn pre(&self, condition: &str) -> &'static str {
        let place = self.table.pre.iter().position(|pre| pre.name == condition);
        self.pre[place.unwrap_or_else(|| panic!("{} has no {condition}", self.table.action))]
    }

    /// All states of pre-conditions.
    pub fn pre_states(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        let names = self.table.pre.iter().map(|condition| &*condition.name);
        names.zip(self.pre.iter().copied())
    }

    /// The states that must hold afterwards; none if it is not to be run.
    pub fn expected(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        let names = self.table.post.iter().map(|condition| &*condition.name);
        let states = match &self.outcome {
            Outcome::Expected(states) => &states[..],
            _ => &[],
        };
        names.zip(states.iter().copied())
    }

    /// What the table says of it.
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The table that it belongs to.
    #[must_use]
    pub fn table(&self) -> &'static Table {
        self.table
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.table.action)?;
        for (index, (condition, state)) in self.pre_states().enumerate() {
            let separator = if index == 0 { ": " } else { ", " };
            write!(formatter, "{separator}{condition}={state}")?;
        }
        Ok(())
    }
}

/// A row that covers a combination: the combination in the row's view, and the result.
struct Variant {
    enabled: &'static Enabled,
    pre: Vec<&'static str>,
    outcome: Outcome,
}

impl Table {
    /// All combinations, the last condition changing fastest.
    ///
    /// # Panics
    /// If a row names something that does not exist, or no row covers a combination.
    #[must_use]
    pub fn combinations(&'static self) -> Vec<Combination> {
        let count = self.pre.iter().map(|pre| pre.states.len()).product();
        let mut seen = HashSet::new();
        (0..count)
            .map(|index| {
                let mut combination = self.decide(&self.states_of(index));
                if matches!(combination.outcome, Outcome::Expected(_))
                    && !seen.insert(combination.pre.clone())
                {
                    combination.outcome = Outcome::Repeated;
                }
                combination
            })
            .collect()
    }

    fn states_of(&'static self, mut index: usize) -> Vec<&'static str> {
        let mut states: Vec<&str> = self
            .pre
            .iter()
            .rev()
            .map(|condition| {
                let count = condition.states.len();
                let state = &condition.states[index % count];
                index /= count;
                &*state.name
            })
            .collect();
        states.reverse();
        states
    }

    fn decide(&'static self, states: &[&'static str]) -> Combination {
        let mut variants: Vec<Variant> = Vec::new();
        for row in &self.transitions {
            let Some(pre) = self.covered(row, states, variants.is_empty()) else {
                continue;
            };
            let outcome = self.outcome(&row.then, &pre);
            let variant = Variant {
                enabled: &row.enabled,
                pre,
                outcome,
            };
            let same = variants
                .iter()
                .position(|other| other.enabled == variant.enabled);
            match same {
                None => variants.push(variant),
                Some(place) => {
                    assert!(
                        matches!(variant.outcome, Outcome::Skipped(_)),
                        "two rows of {} for {states:?}",
                        self.action
                    );
                    variants[place] = variant;
                }
            }
        }
        assert!(
            !variants.is_empty(),
            "no row of {} for {states:?}",
            self.action
        );
        let special = variants
            .iter()
            .skip(1)
            .position(|variant| variant.enabled.holds());
        let Variant { pre, outcome, .. } =
            variants.swap_remove(special.map_or(0, |special| special + 1));
        Combination {
            table: self,
            pre,
            outcome,
        }
    }

    /// The states in a row's view, if it covers them.
    fn covered(
        &self,
        row: &'static Transition,
        states: &[&'static str],
        is_first: bool,
    ) -> Option<Vec<&'static str>> {
        let When::States(when) = &row.when else {
            return is_first.then(|| states.to_vec());
        };
        self.pre
            .iter()
            .zip(states)
            .map(|(condition, state)| match &when[&condition.name] {
                States::Every(Every::All) => Some(*state),
                States::Every(Every::NoMatter) => Some(NOT_APPLICABLE),
                States::Some(some) => some.iter().any(|one| one == state).then_some(*state),
            })
            .collect()
    }

    fn outcome(&'static self, then: &'static Then, pre: &[&'static str]) -> Outcome {
        let choices = match then {
            Then::Skip(reason) => {
                assert!(self.skip.contains_key(reason), "{}: {reason}", self.action);
                return Outcome::Skipped(reason);
            }
            Then::States(choices) => choices,
        };
        let mut post = Vec::with_capacity(self.post.len());
        for condition in &self.post {
            let state = self.choose(&choices[&condition.name], pre, &post);
            assert!(
                condition.has(state) || state == NOT_APPLICABLE,
                "{}: {} is no state of {}",
                self.action,
                state,
                condition.name
            );
            post.push(state);
        }
        Outcome::Expected(post)
    }

    fn choose(
        &self,
        choice: &'static Choice,
        pre: &[&'static str],
        post: &[&'static str],
    ) -> &'static str {
        let cases = match choice {
            Choice::State(state) => return state,
            Choice::Cases(cases) => cases,
        };
        let chosen = cases.iter().find_map(|case| match case {
            Case::If { test, then } if self.holds(test, pre, post) => Some(match then {
                CaseThen::State(state) => &**state,
                CaseThen::As(condition) => self.pre_state(condition, pre),
            }),
            Case::If { .. } => None,
            Case::Else { state } => Some(&**state),
            Case::As { pre: condition } => Some(self.pre_state(condition, pre)),
        });
        chosen.unwrap_or_else(|| panic!("{}: no case for {pre:?}", self.action))
    }

    fn holds(&self, test: &Test, pre: &[&'static str], post: &[&'static str]) -> bool {
        let operator = match test {
            Test::Any(tests) => return tests.iter().any(|test| self.holds(test, pre, post)),
            Test::One(operator) => operator,
        };
        match operator {
            Operator::And(tests) => tests.iter().all(|test| self.holds(test, pre, post)),
            Operator::Or(tests) => tests.iter().any(|test| self.holds(test, pre, post)),
            Operator::Not(test) => !self.holds(test, pre, post),
            Operator::PreConditions(wanted) => wanted
                .iter()
                .all(|(condition, states)| states.contains(self.pre_state(condition, pre))),
            Operator::PostConditions(wanted) => wanted.iter().all(|(condition, states)| {
                let place = self.post.iter().position(|post| post.name == *condition);
                // A condition can depend only on those before it.
                states.contains(post[place.expect("a post-condition of the table")])
            }),
        }
    }

    fn pre_state<'s>(&self, condition: &str, pre: &[&'s str]) -> &'s str {
        let place = self.pre.iter().position(|pre| pre.name == condition);
        pre[place.expect("a pre-condition of the table")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn count(table: &'static Table) -> [usize; 4] {
        let combinations = table.combinations();
        let of = |is: fn(&Outcome) -> bool| {
            combinations
                .iter()
                .filter(|combination| is(combination.outcome()))
                .count()
        };
        [
            combinations.len(),
            of(|outcome| matches!(outcome, Outcome::Skipped(_))),
            of(|outcome| *outcome == Outcome::Repeated),
            of(|outcome| matches!(outcome, Outcome::Expected(_))),
        ]
    }

    #[test]
    fn each_table_has_the_combinations_that_rtems_makes_of_it() {
        let counts: BTreeMap<&str, [usize; 4]> = Table::all()
            .iter()
            .map(|table| (&*table.action, count(table)))
            .collect();
        let expected = BTreeMap::from([
            ("rtems/sem/create", [4608, 0, 0, 4608]),
            ("rtems/sem/delete", [42, 9, 0, 33]),
            ("rtems/sem/flush", [24, 3, 11, 10]),
            ("rtems/sem/mrsp-obtain", [900, 854, 0, 46]),
            ("rtems/sem/obtain", [72, 18, 0, 54]),
            ("rtems/sem/release", [24, 6, 0, 18]),
            ("rtems/sem/set-priority", [252, 0, 0, 252]),
            ("rtems/sem/timeout", [12, 3, 0, 9]),
            ("score/mtx/seize-try", [162, 60, 36, 66]),
            ("score/mtx/seize-wait", [384, 152, 96, 136]),
            ("score/mtx/surrender", [1152, 837, 165, 150]),
            ("score/sem/seize-try", [2, 0, 0, 2]),
            ("score/sem/seize-wait", [2, 0, 0, 2]),
            ("score/sem/surrender", [12, 0, 0, 12]),
            ("score/tq/enqueue-ceiling", [18, 4, 0, 14]),
            ("score/tq/enqueue-deadlock", [4, 0, 0, 4]),
            ("score/tq/enqueue-fifo", [2, 0, 0, 2]),
            ("score/tq/enqueue-mrsp", [24, 8, 0, 16]),
            ("score/tq/enqueue-priority", [32, 10, 0, 22]),
            ("score/tq/enqueue-priority-inherit", [1024, 568, 0, 456]),
            ("score/tq/flush-fifo", [16, 2, 6, 8]),
            ("score/tq/flush-priority", [2, 0, 0, 2]),
            ("score/tq/flush-priority-inherit", [4, 0, 1, 3]),
            ("score/tq/surrender", [8, 0, 0, 8]),
            ("score/tq/surrender-mrsp", [32, 0, 0, 32]),
            ("score/tq/surrender-priority-inherit", [384, 152, 0, 232]),
            ("score/tq/timeout", [3, 0, 0, 3]),
            ("score/tq/timeout-mrsp", [4, 0, 0, 4]),
            ("score/tq/timeout-priority-inherit", [3888, 2756, 624, 508]),
        ]);
        assert_eq!(counts, expected);
        let total = counts
            .values()
            .fold([0; 4], |sum, one| core::array::from_fn(|i| sum[i] + one[i]));
        assert_eq!(total, [13_093, 5_442, 939, 6_712]);
    }

    fn expected(action: &str, pre: &[&str], condition: &str) -> Option<&'static str> {
        let combinations = Table::named(action).combinations();
        let combination = combinations
            .iter()
            .find(|combination| {
                combination
                    .pre_states()
                    .map(|(_, state)| state)
                    .eq(pre.iter().copied())
            })
            .expect("a combination of these states");
        combination
            .expected()
            .find(|(name, _)| *name == condition)
            .map(|(_, state)| state)
    }

    #[test]
    fn a_row_for_several_processors_goes_before_one_for_all() {
        assert_eq!(
            expected("rtems/sem/timeout", &["MrsP", "Priority"], "Action"),
            Some("TimeoutMrsP")
        );
        assert_eq!(
            expected(
                "rtems/sem/release",
                &["MrsP", "Priority", "Valid"],
                "Action"
            ),
            Some("MrsPMtxSurrender")
        );
    }

    #[test]
    fn a_row_that_skips_replaces_one_before_it() {
        let combinations = Table::named("rtems/sem/timeout").combinations();
        let skipped = combinations
            .iter()
            .filter(|combination| {
                *combination.outcome() == Outcome::Skipped("NeedsPriorityDiscipline")
            })
            .count();
        assert_eq!(skipped, 3);
    }

    #[test]
    fn a_case_may_depend_on_post_conditions_before_it() {
        let valid = [
            "Valid", "Valid", "Zero", "No", "No", "No", "No", "No", "Prio", "LeCur",
        ];
        let with_room = |room| [&valid[..], &[room]].concat();
        let create = "rtems/sem/create";
        assert_eq!(expected(create, &with_room("Yes"), "Disc"), Some("Prio"));
        assert_eq!(
            expected(create, &with_room("No"), "Disc"),
            Some(NOT_APPLICABLE)
        );
    }

    #[test]
    fn an_irrelevant_condition_is_run_once() {
        assert_eq!(
            expected("rtems/sem/flush", &["N/A", "N/A", "Invalid"], "Action"),
            Some("InvId")
        );
    }
}
