//! The counters of a run in the format in which RTEMS's parallel tests print theirs.
//!
//! ```json
//! [
//!   {
//!     "type": "SelfEvent",
//!     "counter": [
//!       [27311966],
//!       [26082697, 26082698]
//!     ]
//!   }, {
//!     "type": "OneMutex",
//!     "counter": [
//!       [40777911],
//!       [2084610, 1805034]
//!     ]
//!   }
//! ]
//! ```
//!
//! There is one object for each case of `tmfine01`, with RTEMS's name and in its order; in it one array for each number
//! of tasks that was measured, in ascending order, with each task's operations. RTEMS counts the operations of one
//! second; these are operations per second, of the round whose figure is the median (of an even number of rounds, the
//! lower one in the middle). Each case uses Latchwork's contestant of that kind: see the table. In the many-to-one
//! cases the first task only receives, so its count is 0, and failed sends are not counted; RTEMS's first task sends,
//! too, and its counters include all attempts.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{FineGrained, Scenario};
use crate::result::ScenarioResult;
use crate::result::Variant::{
    self, ContestedMutex, EventManyToOne, EventSelf, MessageManyToOne, MessageSelf, PrivateMutex,
};

/// RTEMS's name of a case, the case, and the contestant.
const CASES: &[(&str, Variant, &str)] = &[
    ("SelfEvent", EventSelf, "latchwork event"),
    ("AllToOneEvent", EventManyToOne, "latchwork event"),
    ("OneMutex", ContestedMutex, "latchwork semaphore-inherit"),
    ("ManyMutex", PrivateMutex, "latchwork semaphore-inherit"),
    ("SelfMsg", MessageSelf, "latchwork queue"),
    ("ManyToOneMsg", MessageManyToOne, "latchwork queue"),
    ("ManySysLockMutex", PrivateMutex, "latchwork wait-wake"),
    (
        "ManyClassicCeilingMutex",
        PrivateMutex,
        "latchwork semaphore-ceiling",
    ),
    (
        "ManyClassicMrsPMutex",
        PrivateMutex,
        "latchwork semaphore-mrsp",
    ),
    ("ManyPthreadSpinlock", PrivateMutex, "latchwork spinlock"),
    ("ManyPthreadMutexInherit", PrivateMutex, "latchwork inherit"),
    ("ManyPthreadMutexProtect", PrivateMutex, "latchwork protect"),
];

/// Whether a scenario has such counters.
pub(crate) fn is_about(scenario: &str) -> bool {
    scenario == FineGrained.name()
}

/// The measurements of RTEMS's cases.
pub(crate) fn json(result: &ScenarioResult) -> String {
    let cases = CASES.iter().filter_map(|(name, case, contestant)| {
        let rows = result.rows.iter();
        let rows = rows.filter(|row| {
            row.params.case == Some(*case) && row.contestant == *contestant && !row.each.is_empty()
        });
        let counters: BTreeMap<Option<u32>, String> = rows
            .map(|row| (row.params.tasks, counters(&row.each)))
            .collect();
        let counters: Vec<String> = counters.into_values().collect();
        (!counters.is_empty()).then(|| object(name, &counters))
    });
    let cases: Vec<String> = cases.collect();
    match cases.is_empty() {
        true => "[]\n".to_owned(),
        false => format!("[\n  {}\n]\n", cases.join(", ")),
    }
}

fn object(name: &str, counters: &[String]) -> String {
    let counters = counters.join(",\n      ");
    format!("{{\n    \"type\": \"{name}\",\n    \"counter\": [\n      {counters}\n    ]\n  }}")
}

fn counters(each: &[f64]) -> String {
    let mut text = String::from("[");
    for (index, rate) in each.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{rate:.0}");
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use super::super::CASES as OURS;
    use super::*;
    use crate::report::tests::{result, row};
    use crate::result::{Params, Row};

    fn measured(contestant: &str, case: Variant, each: &[f64]) -> Row {
        Row {
            params: Params {
                tasks: Some(each.len() as u32),
                case: Some(case),
                ..Params::default()
            },
            each: each.to_vec(),
            ..row(contestant, each.iter().sum(), None)
        }
    }

    #[test]
    fn counters_have_the_shape_of_rtems() {
        let rows = vec![
            measured("latchwork wait-wake", ContestedMutex, &[9.0]),
            measured("giant-lock event", EventSelf, &[1.0]),
            // In any order.
            measured("latchwork semaphore-inherit", ContestedMutex, &[5.4]),
            measured("latchwork event", EventSelf, &[3.0, 4.0]),
            measured("latchwork event", EventSelf, &[2.6]),
        ];
        let text = "[\n  {\n    \"type\": \"SelfEvent\",\n    \"counter\": [\n      [3],\n      [3, 4]\n    ]\n  }, \
                    {\n    \"type\": \"OneMutex\",\n    \"counter\": [\n      [5]\n    ]\n  }\n]\n";
        assert_eq!(json(&result("glibc normal", rows)), text);
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value[0]["counter"][1][1], 4);
    }

    #[test]
    fn nothing_measured_is_an_empty_array() {
        let text = json(&result("glibc normal", Vec::new()));
        assert_eq!(text, "[]\n");
    }

    #[test]
    fn every_case_of_rtems_is_measured_here() {
        for (name, case, contestant) in CASES {
            let ours = OURS.iter().find(|(known, _)| known == case).unwrap().1;
            assert!(ours.iter().any(|one| one.name() == *contestant), "{name}");
        }
    }
}
