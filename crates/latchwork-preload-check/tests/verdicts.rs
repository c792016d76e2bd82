//! How sure findings are: of deadlocks that another task may end, of ends of threads and of processes, and across forks.

mod common;

use common::{compile, run_case};

/// Case, words, rule, confidence, verdict; an empty rule: nothing is found.
type Expected = (&'static str, &'static str, &'static str, &'static str);

fn check_all(cases: &[Expected], words: &str) {
    let Some((program, _leftover)) = compile("verdicts.c", "verdicts", &[]) else {
        return;
    };
    for (case, rule, confidence, verdict) in cases {
        let outcome = run_case(&program, case, words);
        let found = outcome.each("rule");
        if rule.is_empty() {
            assert!(found.is_empty(), "{case}: {found:?}");
            continue;
        }
        let place = found.iter().position(|found| found == rule);
        let place = place.unwrap_or_else(|| panic!("{case}: {found:?}"));
        assert_eq!(outcome.each("confidence")[place], *confidence, "{case}");
        assert_eq!(outcome.each("verdict")[place], *verdict, "{case}");
    }
}

/// A deadlock that another task can end, by a release, is not reported as permanent.
#[test]
fn a_deadlock_that_another_task_can_end_is_not_reported_as_permanent() {
    let cases = [
        ("third_releases", "no-deadlock", "assumed", "DEADLOCK"),
        (
            "relocked_and_released_by_thread",
            "no-recursion",
            "assumed",
            "DEADLOCK",
        ),
        (
            "relocked_and_released_by_process",
            "no-recursion",
            "assumed",
            "DEADLOCK",
        ),
        (
            "relocked_timed",
            "no-recursion",
            "follows",
            "DEADLOCK THAT ENDS AT A DEADLINE",
        ),
    ];
    check_all(&cases, "quiet,long=0");
}

/// Their twins: no other task can end the deadlock, because of the kind of lock, or since all other threads wait, too.
#[test]
fn a_deadlock_that_no_other_task_can_end_is_reported_as_permanent() {
    let cases = [
        ("all_wait", "no-deadlock", "seen", "DEADLOCK NOW"),
        ("one_runs", "no-deadlock", "assumed", "DEADLOCK"),
        (
            "one_runs_but_owners_unlock",
            "no-deadlock",
            "seen",
            "DEADLOCK NOW",
        ),
    ];
    check_all(&cases, "quiet,long=0,refuse");
}

#[test]
fn a_child_that_unmaps_shared_memory_frees_no_locks() {
    check_all(&[("children_unmap", "", "", "")], "quiet,long=0");
    check_all(
        &[("unmap_shared_held", "no-free-holding", "seen", "MISUSE")],
        "quiet,long=0",
    );
}

#[test]
fn a_finding_is_reported_once_by_all_that_a_program_forks() {
    let Some((program, _leftover)) = compile("verdicts.c", "forking", &[]) else {
        return;
    };
    for (case, rule) in [
        ("children_break_a_rule", "no-double-unlock"),
        ("children_unmap_what_they_hold", "no-free-holding"),
    ] {
        let found = run_case(&program, case, "quiet,long=0").each("rule");
        assert_eq!(found, [rule], "{case}");
    }
}

#[test]
fn the_end_of_a_process_is_not_that_of_a_thread() {
    let cases = [
        ("thread_exits_process", "", "", ""),
        ("detached_thread_ends_and_process_exits", "", "", ""),
    ];
    check_all(&cases, "quiet,long=0");
}

/// The twins: who ends the process by that may ask for it, and a thread whose end is waited for has ended.
#[test]
fn the_end_of_a_thread_is_detected_while_the_process_continues() {
    const SEEN: (&str, &str) = ("seen", "MISUSE");
    let cases = [
        ("joined", "no-exit-holding", SEEN.0, SEEN.1),
        ("joined_c11", "no-exit-holding", SEEN.0, SEEN.1),
        (
            "detached_thread_ends_and_lock_is_wanted",
            "no-exit-holding",
            SEEN.0,
            SEEN.1,
        ),
    ];
    check_all(&cases, "quiet,long=0");
    let cases = [
        ("thread_exits_process", "no-exit-holding", SEEN.0, SEEN.1),
        (
            "detached_thread_ends_and_process_exits",
            "no-exit-holding",
            SEEN.0,
            SEEN.1,
        ),
        ("main_exits_holding", "no-exit-holding", SEEN.0, SEEN.1),
    ];
    check_all(&cases, "quiet,long=0,exit");
}
