//! Which states a user of semaphores can bring about or observe, and why not the others.

use super::{Combination, NOT_APPLICABLE, Table};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The parts of RTEMS's tables that apply to semaphores in user space: `data/rtems/applicable.json`.
#[derive(Debug, Deserialize)]
pub struct Applicable {
    /// Reasons, and what they mean.
    pub reasons: BTreeMap<String, String>,
    /// By action.
    pub actions: BTreeMap<String, Applies>,
}

/// The parts of one table that apply. Condition, then state, then reason.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applies {
    /// Pre-condition states that cannot be brought about.
    #[serde(default)]
    pub pre: BTreeMap<String, BTreeMap<String, String>>,
    /// Post-condition states that cannot be observed.
    #[serde(default)]
    pub post: BTreeMap<String, BTreeMap<String, String>>,
    /// Post-conditions of which it can only be observed that one of several states holds.
    #[serde(default)]
    pub partly: BTreeMap<String, String>,
}

impl Applicable {
    /// The whole file.
    ///
    /// # Panics
    /// If it cannot be read, which is a fault of this crate.
    pub fn get() -> &'static Self {
        static APPLICABLE: OnceLock<Applicable> = OnceLock::new();
        APPLICABLE.get_or_init(|| {
            let text = include_str!("../../data/rtems/applicable.json");
            serde_json::from_str(text).unwrap_or_else(|error| panic!("applicable.json: {error}"))
        })
    }
}

impl Applies {
    /// The parts of a table that apply.
    ///
    /// # Panics
    /// If the table has no entry.
    #[must_use]
    pub fn of(table: &Table) -> &'static Self {
        let actions = &Applicable::get().actions;
        actions
            .get(&table.action)
            .unwrap_or_else(|| panic!("applicable.json has no {}", table.action))
    }

    /// The reason why a combination cannot be run, if any: a state cannot be brought about, or no post-condition can be
    /// observed.
    #[must_use]
    pub fn hinders(&'static self, combination: &Combination) -> Option<&'static str> {
        let pre = combination
            .pre_states()
            .find_map(|(condition, state)| self.pre.get(condition)?.get(state));
        if let Some(reason) = pre {
            return Some(reason);
        }
        let mut hidden = None;
        for (condition, state) in combination.expected() {
            match self.hides(condition, state) {
                Some(reason) => hidden = hidden.or(Some(reason)),
                None if state == NOT_APPLICABLE => {}
                None => return None,
            }
        }
        hidden
    }

    /// The reason why a post-condition's state cannot be observed, if any.
    #[must_use]
    pub fn hides(&'static self, condition: &str, state: &str) -> Option<&'static str> {
        Some(self.post.get(condition)?.get(state)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_covers_exactly_the_tables() {
        let applicable = Applicable::get();
        let mut used: Vec<&String> = Vec::new();
        assert_eq!(applicable.actions.len(), Table::all().len());
        for table in Table::all() {
            let applies = Applies::of(table);
            for (conditions, named) in [(&table.pre, &applies.pre), (&table.post, &applies.post)] {
                for (condition, states) in named {
                    let known = conditions.iter().find(|known| known.name == *condition);
                    let known = known.unwrap_or_else(|| panic!("{}: {condition}", table.action));
                    for (state, reason) in states {
                        assert!(known.has(state), "{}: {condition}: {state}", table.action);
                        used.push(reason);
                    }
                }
            }
            for (condition, reason) in &applies.partly {
                assert!(
                    table.post.iter().any(|known| known.name == *condition),
                    "{}: {condition}",
                    table.action
                );
                used.push(reason);
            }
        }
        for reason in used {
            assert!(applicable.reasons.contains_key(reason), "{reason}");
        }
    }
}
