//! C programs under the checker: what it finds in those with a fault, and that others go on as they would.

use latchwork_testkit::{Leftover, output_of};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The interposer that Cargo has built for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("liblatchwork_preload_check.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

fn scratch(name: &str) -> (PathBuf, Leftover) {
    let folder = Leftover::folder("findings");
    (folder.path().join(name), folder)
}

/// Compiles a program, named as seen from this crate.
fn compile(source: &str, name: &str) -> Option<(PathBuf, Leftover)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    latchwork_testkit::compile(&source, name, &[])
}

fn run(program: &Path, arguments: &[&str], check: &str) -> Output {
    let child = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env("LATCHWORK_CHECK", check)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    output_of(child)
}

/// What is found in a program.
fn findings_in(program: &Path, case: &str) -> Vec<Value> {
    let (path, _leftover) = scratch(&format!("{case}.jsonl"));
    // Elsewhere the machine may be busy for longer than anybody would wait.
    let long = if case == "long_wait" { 50 } else { 0 };
    let check = format!("quiet,refuse,long={long},json={}", path.display());
    let output = run(program, &[case], &check);
    assert!(
        output.status.success(),
        "{case}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    // No room was lost, for instance.
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{case}: {errors}");
    let lines = std::fs::read_to_string(&path).unwrap_or_default();
    let finding = |line: &str| serde_json::from_str(line).unwrap();
    lines.lines().map(finding).collect()
}

/// The rules that a program breaks.
fn findings(program: &Path, case: &str) -> Vec<String> {
    let rule = |finding: &Value| finding["rule"].as_str().unwrap().to_owned();
    findings_in(program, case).iter().map(rule).collect()
}

/// Runs each case of a program, which names them, and the rule that each breaks. How many break one; `None` without a
/// compiler.
fn cases(name: &str) -> Option<usize> {
    let (program, _leftover) = compile(&format!("tests/programs/{name}.c"), name)?;
    let list = Command::new(&program).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let mut wrong = Vec::new();
    let mut faults = 0;
    for line in list.lines() {
        let (case, rule) = line.split_once(' ').unwrap();
        let found = findings(&program, case);
        let is_right = if rule.is_empty() {
            found.is_empty()
        } else {
            faults += 1;
            found.iter().any(|broken| broken == rule)
        };
        if !is_right {
            wrong.push(format!("{case}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Some(faults)
}

#[test]
fn every_planted_fault_is_reported_and_nothing_else() {
    assert!(cases("faults").is_none_or(|faults| faults >= 30));
}

#[test]
fn every_wrong_order_is_reported_and_nothing_else() {
    assert!(cases("orders").is_none_or(|faults| faults >= 14));
}

#[test]
fn tasks_have_the_names_that_they_set() {
    let Some((program, _leftover)) = compile("tests/programs/faults.c", "named") else {
        return;
    };
    for case in ["order_named", "deadlock_named"] {
        let found = findings_in(&program, case);
        let tasks = found[0]["tasks"].as_array().unwrap();
        let mut names: Vec<_> = tasks.iter().map(|task| &task["name"]).collect();
        names.sort_by_key(|name| name.as_str());
        assert_eq!(names, ["name 0", "name 1"], "{case}");
    }
}

/// By the program's own table of symbols; without one by their places.
#[test]
fn findings_name_statics_and_functions() {
    let build = |name: &str, options: &[&str]| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/faults.c");
        latchwork_testkit::compile(&source, name, options)
    };
    let Some((program, _leftover)) = build("called", &[]) else {
        return;
    };
    let Some((stripped, _stripped)) = build("bare", &["-s"]) else {
        return;
    };
    let found = &findings_in(&program, "deadlock")[0];
    let tasks = found["tasks"].as_array().unwrap();
    let mut names: Vec<_> = tasks.iter().map(|task| &task["holds"]["lock"]).collect();
    names.sort_by_key(|name| name.as_str());
    assert_eq!(names, ["called:a", "called:b"]);
    for task in tasks {
        let at = task["wants"]["at"].as_str().unwrap();
        assert!(
            at.starts_with("called+0x") && at.ends_with(" (cycle)"),
            "{at}"
        );
    }
    let stack = found["stack"][0].as_str().unwrap();
    assert!(stack.ends_with(" (cycle)"), "{stack}");
    let found = &findings_in(&stripped, "deadlock")[0];
    for task in found["tasks"].as_array().unwrap() {
        for what in [&task["holds"]["lock"], &task["wants"]["at"]] {
            let what = what.as_str().unwrap();
            assert!(
                what.starts_with("bare+0x") && !what.ends_with(')'),
                "{what}"
            );
        }
    }
}

/// One of those that use everything.
fn uses(name: &str, for_what: &str) -> Option<(PathBuf, Leftover)> {
    let source = format!("../latchwork-preload/tests/programs/{name}.c");
    compile(&source, &format!("{name}-{for_what}"))
}

#[test]
fn a_program_behaves_the_same() {
    for name in ["mutexes", "conditions", "surroundings"] {
        let Some((program, _leftover)) = uses(name, "on") else {
            return;
        };
        let output = run(&program, &[], "quiet");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{name}: {}: {errors}",
            output.status
        );
        assert!(errors.is_empty(), "{name}: {errors}");
    }
}

#[test]
fn a_program_without_a_fault_has_no_findings() {
    for (name, cases) in [
        ("conditions", &["conds", "many", "cancel", "passed_on"][..]),
        ("surroundings", &["forks", "signals", "semaphores"]),
    ] {
        let Some((program, _leftover)) = uses(name, "clean") else {
            return;
        };
        for case in cases {
            let found = findings(&program, case);
            assert!(found.is_empty(), "{case}: {found:?}");
        }
    }
}

#[test]
fn mutexes_and_condition_variables_conform_as_they_do_unchecked() {
    let source = "../latchwork-preload/tests/programs/conformance.c";
    let Some((program, _leftover)) = compile(source, "conformance") else {
        return;
    };
    let plain = Command::new(&program).stdout(Stdio::piped()).spawn();
    let plain = output_of(plain.unwrap());
    let (path, _findings) = scratch("conformance.jsonl");
    let check = format!("quiet,long=0,json={}", path.display());
    let output = run(&program, &[], &check);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && output.stdout == plain.stdout,
        "{}: {errors}",
        output.status
    );
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found.is_empty(), "{found}");
}

/// The loader holds its lock while it runs constructors and destructors, which start and join threads; and any thread's
/// start is this library's to make.
#[test]
fn threads_begin_lock_and_end_while_a_library_is_being_loaded() {
    let programs =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../latchwork-preload/tests/programs");
    let shared = ["-shared", "-fPIC"];
    let source = programs.join("loading_library.c");
    let Some((library, _library)) = latchwork_testkit::compile(&source, "loading.so", &shared)
    else {
        return;
    };
    let Some((program, _leftover)) = uses("loading", "on") else {
        return;
    };
    for case in ["joined", "meanwhile"] {
        let (path, _findings) = scratch("loading.jsonl");
        let child = Command::new(&program)
            .arg(case)
            .env("LD_PRELOAD", self::library())
            .env("LATCHWORK_CHECK", format!("long=0,json={}", path.display()))
            .env("USES_LIBRARY", &library)
            .stderr(Stdio::piped())
            .spawn();
        let output = output_of(child.unwrap());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{case}: {}: {errors}",
            output.status
        );
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found.is_empty(), "{case}: {found}");
    }
}
