//! Whole scenarios, with samples too short to mean anything.

mod words;

use std::collections::BTreeSet;

use clap::Parser;

use super::*;
use crate::result::{Better, Kind, Placement, Row, Variant};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn parse(line: &str) -> Args {
    Command::try_parse_from(line.split(' ')).expect(line).args
}

/// Every available contestant has a row, every other one a warning that begins with its name.
fn accounts_for_all_contestants(name: &str) -> ScenarioResult {
    let scenario = find(name).unwrap();
    let plan = Plan::tiny();
    let result = measure_scenario(scenario, &plan);
    for contestant in scenario.contestants() {
        let rows = result
            .rows
            .iter()
            .filter(|row| row.contestant == contestant.name);
        // On one processor neither task yields to the other.
        let is_left_out = contestant.name == "floor spinning" && machine::cpus().len() == 1;
        if contestant.absent.is_none() && !is_left_out {
            let complete = rows
                .inspect(|row| assert!(row.figure.min <= row.figure.max, "{row:?}"))
                .count();
            assert!(
                complete > 0,
                "{} has no row: {:?}",
                contestant.name,
                result.warnings
            );
        } else if is_left_out {
            assert_eq!(rows.count(), 0);
        } else {
            assert_eq!(rows.count(), 0);
            let named = |warning: &Warning| {
                matches!(warning, Warning::Skipped { .. })
                    && warning.text().starts_with(contestant.name)
            };
            assert!(result.warnings.iter().any(named), "{}", contestant.name);
        }
    }
    let failed = |warning: &&Warning| matches!(warning, Warning::Failed { .. });
    assert_eq!(result.warnings.iter().find(failed), None);
    assert!(result.rows.iter().any(|row| row.contestant == result.base));
    assert_eq!(
        ScenarioResult::read_all(&result.to_json()).unwrap(),
        std::slice::from_ref(&result)
    );

    let mut out = Vec::new();
    table::print_result(&result, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for row in &result.rows {
        assert!(text.contains(&row.contestant));
    }
    result
}

#[test]
fn call_overhead_accounts_for_all_contestants() {
    accounts_for_all_contestants("call-overhead");
}

#[test]
fn busy_accounts_for_all_contestants() {
    let result = accounts_for_all_contestants("busy");
    for row in &result.rows {
        let extra = |name: &str| row.extra[name];
        assert!(
            extra("ops_per_cpu_second") > 0.0 && extra("operation_p50_ns") > 0.0,
            "{row:?}"
        );
        assert!(extra("operation_p50_ns") <= row.figure.max, "{row:?}");
        assert!(row.params.beside.is_some() != row.params.quota_pct.is_some());
    }
    let beside = |count| {
        result
            .rows
            .iter()
            .any(|row| row.params.beside == Some(count))
    };
    let cpus = u32::try_from(machine::cpus().len()).unwrap();
    assert!(beside(0) && beside(cpus) && beside(2 * cpus));
}

#[test]
fn any_scenario_can_run_beside_programs_that_spin() {
    let mut plan = Plan::tiny();
    plan.beside = Some(1);
    let rows = measure_scenario(find("wait-wakeup").unwrap(), &plan).rows;
    assert!(!rows.is_empty() && rows.iter().all(|row| row.params.beside == Some(1)));
    // Those of `busy` are its own.
    let mut plan = Plan::tiny_with("std");
    plan.beside = Some(1);
    let rows = measure_scenario(find("busy").unwrap(), &plan).rows;
    assert!(rows.iter().any(|row| row.params.beside == Some(0)));
}

#[test]
fn check_overhead_accounts_for_all_contestants() {
    accounts_for_all_contestants("check-overhead");
}

#[test]
fn context_switch_accounts_for_all_contestants() {
    let result = accounts_for_all_contestants("context-switch");
    // One contestant, in three kinds of tasks.
    let of = |kind| {
        let rows = result.rows.iter();
        rows.filter(|row| row.params.kind == Some(kind)).count()
    };
    assert_eq!(of(Kind::Processes), of(Kind::Threads));
    assert_eq!(of(Kind::Coprocs), of(Kind::Threads));
}

/// Each of our locks has the counts of its slow paths, and no other lock has.
fn assert_counts_slow_paths(row: &Row) {
    let is_ours = row.contestant.starts_with("latchwork");
    for name in ["slow_locks", "sleep_calls", "wake_calls", "inherit_calls"] {
        let count = row.extra.get(&format!("{name}_per_1000"));
        assert_eq!(count.is_some(), is_ours, "{name}: {row:?}");
    }
    let inherits = row.extra.get("inherit_calls_per_1000");
    assert!(inherits.is_none_or(|calls| *calls == 0.0) || row.contestant.contains("inherit"));
}

#[test]
fn futex_lock_accounts_for_all_contestants() {
    let result = accounts_for_all_contestants("futex-lock");
    for row in &result.rows {
        assert_eq!(row.better, Better::Higher);
        // No task was slower than the slowest, and waits were timed.
        assert!(row.extra["task_min_ops"] <= row.extra["task_max_ops"]);
        assert!(row.extra["longest_wait_us"] > 0.0, "{row:?}");
        let counts = row.extra.contains_key("unlock_slow_per_1000");
        assert_eq!(counts, row.contestant == "latchwork throughput");
        assert_counts_slow_paths(row);
    }
    // Contestants that also support processes have rows of both kinds.
    let of = |kind| {
        let rows = result
            .rows
            .iter()
            .filter(|row| row.params.kind == Some(kind));
        let names = rows.map(|row| row.contestant.as_str());
        names.collect::<BTreeSet<_>>()
    };
    let left_out: Vec<_> = of(Kind::Threads)
        .difference(&of(Kind::Processes))
        .copied()
        .collect();
    let in_one_process = ["absl", "nsync", "parking_lot", "std"];
    assert!(
        left_out.iter().all(|name| in_one_process.contains(name)),
        "{left_out:?}"
    );
    assert!(left_out.contains(&"std"));
}

#[test]
fn futex_rwlock_accounts_for_all_contestants() {
    let result = accounts_for_all_contestants("futex-rwlock");
    result.rows.iter().for_each(assert_counts_slow_paths);
}

#[test]
fn wait_wakeup_accounts_for_all_contestants() {
    let result = accounts_for_all_contestants("wait-wakeup");
    for row in &result.rows {
        let same_cpu = row.params.placement == Some(Placement::SameCpu);
        assert!(!(same_cpu && row.contestant == "floor spinning"), "{row:?}");
    }
}

#[test]
fn broadcast_accounts_for_all_contestants() {
    accounts_for_all_contestants("broadcast");
}

#[test]
fn inversion_accounts_for_all_contestants() {
    let result = accounts_for_all_contestants("inversion");
    // Each undisturbed and disturbed, or not at all.
    assert_eq!(result.rows.len() % 2, 0);
}

#[test]
fn fine_grained_accounts_for_all_contestants() {
    let result = accounts_for_all_contestants("fine-grained");
    for row in &result.rows {
        assert_eq!(row.better, Better::Higher);
        assert!(row.figure.min > 0.0, "{row:?}");
        assert!(row.extra["task_min_ops"] <= row.extra["task_max_ops"]);
        let (tasks, case) = (row.params.tasks.unwrap(), row.params.case.unwrap());
        assert_eq!(row.extra.contains_key("scaling"), tasks > 1, "{row:?}");
        let to_one = [Variant::EventManyToOne, Variant::MessageManyToOne].contains(&case);
        let counted = row.extra.contains_key("received_per_1000");
        assert_eq!(counted, to_one && tasks > 1, "{row:?}");
        assert_eq!(row.each.len(), tasks as usize, "{row:?}");
    }
    // One array a task count, and in each one number a task.
    let cases: serde_json::Value = serde_json::from_str(&rtems::json(&result)).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() >= 10, "{cases:?}");
    for case in cases {
        let counters = case["counter"].as_array().unwrap();
        for (tasks, counter) in (1..).zip(counters) {
            assert_eq!(counter.as_array().unwrap().len(), tasks, "{case}");
        }
    }
}

#[test]
fn donation_accounts_for_all_contestants() {
    accounts_for_all_contestants("donation");
}

#[test]
fn vfs_accounts_for_all_contestants() {
    accounts_for_all_contestants("vfs");
}

#[test]
fn rt_latency_accounts_for_all_contestants() {
    accounts_for_all_contestants("rt-latency");
}

#[test]
fn footprint_accounts_for_all_contestants() {
    let result = accounts_for_all_contestants("footprint");
    for row in result.rows {
        // A mutex is zero: its program may have no data.
        let may_be_none = row.params.case == Some(Variant::ProgramData);
        assert!(row.figure.min > 0.0 || may_be_none, "{row:?}");
        assert_eq!(row.figure.min, row.figure.max);
    }
}

#[test]
fn spawn_accounts_for_all_contestants() {
    accounts_for_all_contestants("spawn");
}

#[test]
fn heap_accounts_for_all_contestants() {
    accounts_for_all_contestants("heap");
}

#[test]
fn list_names_every_scenario_and_contestant_and_the_package_of_an_absent_one() {
    let mut out = Vec::new();
    table::print_list(scenarios::ALL, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for scenario in scenarios::ALL {
        assert!(text.contains(scenario.name()));
        if let Some(source) = scenario.source() {
            let source = source.to_string();
            assert!(text.contains(&source), "{source} is not in {text}");
        }
        for contestant in scenario.contestants() {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(contestant.name))
                .unwrap_or_else(|| panic!("{} is not listed", contestant.name));
            if let Some(package) = contestant.absent.and_then(|absent| absent.package) {
                assert!(line.contains(package), "{line}");
            }
        }
        let base = scenario
            .contestants()
            .iter()
            .any(|one| one.name == scenario.base());
        assert!(base, "the base of {} is no contestant", scenario.name());
    }
}

#[test]
fn a_scenario_names_the_publication_that_it_repeats() {
    let source = |name| {
        find(name)
            .unwrap()
            .source()
            .map(|source| source.to_string())
    };
    assert!(source("inversion").unwrap().ends_with("pages 9 and 10"));
    assert!(source("spawn").unwrap().ends_with("page 7"));
    assert_eq!(source("busy"), None);
    for scenario in scenarios::ALL {
        // A sentence of the report begins before it and ends after it.
        let is_one_line = |source: &str| !source.contains('\n') && !source.ends_with('.');
        let source = source(scenario.name());
        assert!(source.as_deref().is_none_or(is_one_line), "{source:?}");
    }
}

#[test]
fn an_unknown_scenario_is_an_error_that_lists_the_known() {
    let Err(error) = measure("call-overheat", &Options::default()) else {
        panic!("measured a scenario that does not exist");
    };
    let text = error.to_string();
    assert!(
        text.contains("'call-overheat'") && text.contains("context-switch"),
        "{text}"
    );
}

#[test]
fn an_unknown_contestant_is_an_error_that_lists_the_known() {
    let Args { options, .. } = parse("bench spawn --only fork,vfork");
    let error = run_scenarios(&options, &mut Vec::new()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("'vfork'") && text.contains("posix_spawn"),
        "{text}"
    );
}

#[test]
fn only_keeps_the_base() {
    let Args { options, .. } = parse("bench spawn --only fork");
    let scenario = find("spawn").unwrap();
    let plan = Plan::new(&options).unwrap();
    assert!(plan.wants(scenario.base(), "fork") && plan.wants(scenario.base(), "pthread_create"));
    assert!(!plan.wants(scenario.base(), "posix_spawn"));
}

#[test]
fn fewer_than_five_rounds_need_quick() {
    let rounds = |line: &str| {
        let Args { options, .. } = parse(line);
        Plan::new(&options).map(|plan| plan.rounds)
    };
    assert!(matches!(
        rounds("bench heap --rounds 4"),
        Err(Error::TooFewRounds { rounds: 4 })
    ));
    assert_eq!(rounds("bench heap --rounds 4 --quick").unwrap(), 4);
    assert_eq!(rounds("bench heap").unwrap(), 5);
}

#[test]
fn task_counts_are_refused_where_they_would_do_nothing() {
    let Args { options, .. } = parse("bench call-overhead --tasks 1,2");
    let error = run_scenarios(&options, &mut Vec::new()).unwrap_err();
    assert!(matches!(
        error,
        Error::TasksDoNotApply {
            scenario: "call-overhead"
        }
    ));
}

#[test]
fn loads_and_windows_are_refused_where_they_would_do_nothing() {
    for (line, refused) in [
        ("bench call-overhead --load 1,sleep", "--load"),
        ("bench heap spawn --window 20", "--window"),
    ] {
        let Args { options, .. } = parse(line);
        let error = run_scenarios(&options, &mut Vec::new()).unwrap_err();
        assert!(
            matches!(error, Error::NothingOfLoads { option } if option == refused),
            "{error}"
        );
    }
    for wrong in [
        "bench futex-lock --load 0",
        "bench futex-lock --load 1,nap",
        "bench futex-lock --window 0",
    ] {
        assert!(
            Command::try_parse_from(wrong.split(' ')).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn chosen_loads_and_windows_are_measured() {
    let Args { options, .. } = parse(
        "bench futex-lock --quick --rounds 1 --tasks 2 --only std --load 7,sleep,7 --window 3",
    );
    let result = measure("futex-lock", &options).unwrap();
    assert_eq!(
        result
            .warnings
            .iter()
            .find(|warning| matches!(warning, Warning::Failed { .. })),
        None
    );
    let mut works = BTreeSet::new();
    for row in &result.rows {
        works.insert((row.params.load.unwrap(), row.params.sleeps.unwrap()));
        assert!(row.extra["window_ms"] >= 3.0, "{row:?}");
        assert_eq!(row.durations.as_ref().unwrap().of, "wait");
    }
    assert_eq!(Vec::from_iter(works), [(7, 0), (10, 1024)]);
    // glibc with threads and processes, std with threads.
    assert_eq!(result.rows.len(), 2 * 3);
}

#[test]
fn the_recorded_command_has_what_changes_the_measurement() {
    let line = "bench spawn --load 1,sleep --json x --quick --tasks 2,36 --report y --rounds 7";
    let Args { mut options, .. } = parse(line);
    let words = " --quick --rounds 7 --tasks 2,36 --load 1,sleep";
    assert_eq!(options.words(), words);
    options.only = vec!["glibc PI".into(), "std".into()];
    assert_eq!(options.words(), format!("{words} --only 'glibc PI,std'"));
    assert_eq!(Options::default().words(), "");
}

#[test]
fn an_unwritable_file_is_detected_before_measuring() {
    let Args { options, .. } = parse("bench heap --json /nonexistent/results.json");
    let error = run_scenarios(&options, &mut Vec::new()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot write /nonexistent/results.json"),
        "{error}"
    );
}

#[test]
fn counters_of_rtems_need_its_scenario_and_a_file() {
    let refused = |line: &str| {
        let Args { options, .. } = parse(line);
        run_scenarios(&options, &mut Vec::new()).unwrap_err()
    };
    let error = refused("bench heap --rtems-json /nonexistent/rtems.json");
    assert!(matches!(error, Error::NothingOfRtems));
    let error = refused("bench heap fine-grained --rtems-json /nonexistent/rtems.json");
    assert!(matches!(error, Error::Write { .. }), "{error}");
}

#[test]
fn an_unwritable_report_is_detected_before_measuring() {
    let Args { options, .. } = parse("bench heap --report /dev/null");
    let error = run_scenarios(&options, &mut Vec::new()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot write /dev/null: it is not a directory"),
        "{error}"
    );
}

#[test]
fn list_needs_no_scenario_and_a_run_needs_one() {
    assert!(matches!(parse("bench list").verb, Some(Verb::List)));
    assert!(Command::try_parse_from(["bench"]).is_err());
    assert_eq!(
        parse("bench spawn heap").options.scenarios,
        ["spawn", "heap"]
    );
}
