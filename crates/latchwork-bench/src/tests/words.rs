//! Words for several scenarios, scenarios that cannot run, and what grows in a region.

use super::*;
use crate::contestant::{Absent, Contestant};
use crate::published::Source;
use crate::report::tests::Scratch;

fn names(line: &str) -> Vec<&'static str> {
    let (chosen, _) = chosen(&parse(line).options).unwrap();
    chosen.iter().map(|scenario| scenario.name()).collect()
}

#[test]
fn all_is_every_scenario_once() {
    let mut every: Vec<_> = scenarios::ALL
        .iter()
        .map(|scenario| scenario.name())
        .collect();
    every.sort_by_key(|name| *name == "check-overhead");
    assert_eq!(names("bench all"), every);
    assert_eq!(names("bench all heap all"), every);
    let mut heap_first = vec!["heap"];
    heap_first.extend(every.iter().filter(|name| **name != "heap"));
    assert_eq!(names("bench heap all"), heap_first);
}

/// A checked lock begins to observe the semaphores and queues of the process: what is measured then is not what others use.
#[test]
fn no_scenario_follows_one_that_changes_the_process() {
    assert_eq!(
        names("bench check-overhead heap"),
        ["heap", "check-overhead"]
    );
    assert_eq!(names("bench all").last(), Some(&"check-overhead"));
}

#[test]
fn scale_is_every_scenario_with_task_counts_and_the_region() {
    let scale = names("bench scale");
    for scenario in scenarios::ALL {
        let is_in = scale.contains(&scenario.name());
        let grows = scenario.varies_tasks() || scenario.name() == "region-scale";
        assert_eq!(is_in, grows, "{}", scenario.name());
    }
    let tasks = |line: &str| chosen(&parse(line).options).unwrap().1.tasks;
    assert_eq!(
        tasks("bench scale"),
        scenarios::task_counts(machine::cpus().len())
    );
    assert_eq!(tasks("bench scale --tasks 3,5"), [3, 5]);
    assert_eq!(tasks("bench heap"), [0; 0]);
    for (cpus, counts) in [
        (1, &[1, 2][..]),
        (2, &[1, 2, 4]),
        (3, &[1, 2, 4, 6]),
        (16, &[1, 2, 4, 8, 16, 32]),
        (1000, &[1, 2, 4, 8, 16, 32, 64, 128, 256]),
    ] {
        assert_eq!(scenarios::task_counts(cpus), counts);
    }
}

/// A scenario for which a privilege is missing, or which panics.
struct Unable {
    panics: bool,
}

impl Scenario for Unable {
    fn name(&self) -> &'static str {
        if self.panics {
            "panics"
        } else {
            "not-permitted"
        }
    }

    fn about(&self) -> &'static str {
        "nothing"
    }

    fn source(&self) -> Option<Source> {
        None
    }

    fn base(&self) -> &'static str {
        "base"
    }

    fn contestants(&self) -> Vec<Contestant> {
        let absent = Absent {
            reason: "it needs CAP_SYS_NICE".into(),
            package: None,
        };
        vec![Contestant {
            name: "base",
            absent: Some(absent),
        }]
    }

    fn prepare(&self, _: &Plan) -> Prepared {
        assert!(!self.panics, "out of luck");
        Prepared::default()
    }
}

#[test]
fn a_scenario_that_cannot_run_is_listed_with_its_reason_and_ends_no_other() {
    for (scenario, name, reason) in [
        (
            &Unable { panics: false },
            "not-permitted",
            "base skipped: it needs CAP_SYS_NICE",
        ),
        (
            &Unable { panics: true },
            "panics",
            "panics panicked: out of luck",
        ),
    ] {
        let result = measure_in_turn(scenario, &Plan::tiny(), Turn::ONLY);
        let why = why_without_rows(&result);
        assert_eq!(why, Some((name.to_owned(), reason.to_owned())));
    }
    let result = measure_in_turn(find("heap").unwrap(), &Plan::tiny(), Turn::ONLY);
    assert_eq!(why_without_rows(&result), None);
    assert!(result.run.unwrap().seconds.is_some());
}

#[test]
fn a_run_of_several_writes_one_page() {
    let scratch = Scratch::new();
    let line = format!(
        "bench heap heap --quick --rounds 1 --tasks 1 --only malloc --report {}",
        scratch.path().display()
    );
    let mut out = Vec::new();
    run_scenarios(&parse(&line).options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.ends_with(&format!(
            "report: {}/report.html\n",
            scratch.path().display()
        )),
        "{text}"
    );
    assert!(scratch.read("report.html").contains("id=\"heap\""));
}

#[test]
fn region_scale_has_a_row_for_each_size_of_each_case() {
    let result = accounts_for_all_contestants("region-scale");
    let mut cases: BTreeSet<String> = BTreeSet::new();
    for row in &result.rows {
        let sizes = [row.params.tasks, row.params.objects, row.params.regions];
        let sizes: Vec<(usize, u32)> = sizes
            .into_iter()
            .enumerate()
            .filter_map(|(index, size)| Some((index, size?)))
            .collect();
        let [(along, size)] = sizes[..] else {
            panic!("{row:?}");
        };
        cases.insert(format!("{:?} {along}", row.params.case));
        let of_case = result.rows.iter().filter(|other| {
            let other = [
                other.params.tasks,
                other.params.objects,
                other.params.regions,
            ];
            other[along].is_some()
        });
        let of_case: Vec<_> = of_case
            .filter(|other| other.params.case == row.params.case)
            .collect();
        assert!(of_case.len() >= 2, "{row:?}");
        let least = of_case.iter().all(|other| {
            let other = [
                other.params.tasks,
                other.params.objects,
                other.params.regions,
            ];
            other[along] >= Some(size)
        });
        assert!(row.figure.min > 0.0, "{row:?}");
        // Each ratio is the growth from the smallest size.
        assert_eq!(
            row.ratio.unwrap().max == 1.0 && row.ratio.unwrap().min == 1.0,
            least,
            "{row:?}"
        );
    }
    assert_eq!(cases.len(), 10, "{cases:?}");
}

#[test]
fn a_comparison_of_files_names_an_unreadable_one() {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.path().join(name);
    std::fs::write(path("empty.json"), "").unwrap();
    std::fs::write(path("text.json"), "no results").unwrap();
    for wrong in ["empty.json", "text.json", "missing.json"] {
        let error = compare::files(&path(wrong), &path(wrong), 0.05, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains(wrong), "{error}");
    }
    let Some(Verb::Compare { tolerance, .. }) =
        parse("bench compare a.json b.json --tolerance 10").verb
    else {
        panic!("no comparison");
    };
    assert_eq!(tolerance, 10);
}
