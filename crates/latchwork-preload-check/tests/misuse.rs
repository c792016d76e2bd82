//! Misuse of pthread objects that other checkers report, and what only looks like it.

mod common;

use common::{compile, run_case};
use latchwork_testkit::priority::may_use_priorities;
use std::process::Command;

#[test]
fn each_misuse_is_reported_and_none_of_its_harmless_twins() {
    let Some((program, _leftover)) = compile("misuse.c", "misuse", &[]) else {
        return;
    };
    let list = Command::new(&program).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let (mut faults, mut wrong) = (0, Vec::new());
    for line in list.lines() {
        let [case, rule, words] = line.splitn(3, ':').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        if rule == "-" {
            continue;
        }
        let found = run_case(&program, case, &format!("quiet,long=0,{words}")).each("rule");
        // Of one fault another one may follow, as that of a lock that was taken after its end.
        let is_right = match rule {
            "" => found.is_empty(),
            rule => found.first().is_some_and(|first| first == rule),
        };
        if !is_right {
            wrong.push(format!("{line}: {found:?}"));
        }
        faults += u32::from(!rule.is_empty());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(faults >= 50, "{faults}");
}

#[test]
fn a_call_that_fails_is_reported_once_for_each_place() {
    let Some((program, _leftover)) = compile("misuse.c", "often", &[]) else {
        return;
    };
    let outcome = run_case(&program, "fails_often", "quiet,long=0");
    assert_eq!(outcome.each("rule"), ["no-failed-call"; 2]);
    let summaries = outcome.each("summary");
    let is_right = |text: &String| {
        text.contains("called pthread_mutex_lock on") && text.contains("and got EDEADLK")
    };
    assert!(summaries.iter().all(is_right), "{summaries:?}");
}

#[test]
fn a_call_without_the_right_to_it_is_reported() {
    if !may_use_priorities("a_call_without_the_right_to_it_is_reported") {
        return;
    }
    let Some((program, _leftover)) = compile("misuse.c", "right", &[]) else {
        return;
    };
    let outcome = run_case(&program, "fails_right", "quiet,long=0");
    assert_eq!(outcome.each("rule"), ["no-failed-call"]);
    assert!(outcome.each("summary")[0].contains("and got EPERM"));
}
