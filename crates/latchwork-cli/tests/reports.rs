//! Reports of checked programs: with the lines of their sources if the command can determine them, else in the form
//! that the checker itself can print.

mod common;

use common::command;
use latchwork_testkit::{Leftover, compile, output_of};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program, if there is a compiler for C++.
fn program(name: &str) -> Option<(PathBuf, Leftover)> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let try_it = ["-x", "c++", "-fsyntax-only", "/dev/null"];
    let knows = Command::new(compiler)
        .args(try_it)
        .stderr(Stdio::null())
        .status();
    if !knows.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no C++ compiler");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/reports.cc");
    compile(&source, name, &[])
}

fn run(options: &[&str], program: &[&str]) -> Output {
    let arguments = ["run", "--check"].iter().chain(options).chain(&["--"]);
    output_of(command().args(arguments).args(program).spawn().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `file:line` of the fault, as the program says it.
fn line_of(output: &Output) -> String {
    let said = text(&output.stdout);
    let line = said.lines().last().unwrap_or_else(|| panic!("{output:?}"));
    format!("tests/programs/reports.cc:{line}")
}

/// What each report ends with, and begins with.
fn is_whole(report: &str) -> bool {
    report.contains("== latchwork: MISUSE [no-double-unlock]")
        && report.contains("to suppress: no-double-unlock")
        && report.matches("== latchwork").count() == 1
}

const FUNCTION: &str = "outer::a_namespace_with_a_name_that_is_too_long_for_the_checker::unlock_free<pthread_mutex_t>(pthread_mutex_t*)";
const STATIC: &str = "outer::a_namespace_with_a_name_that_is_too_long_for_the_checker::mutex";

#[test]
fn a_report_has_lines_of_sources_and_names_of_cpp() {
    let Some((program, _leftover)) = program("lines") else {
        return;
    };
    for case in ["fault", "waits", "killed"] {
        let output = run(&[], &[program.to_str().unwrap(), case]);
        let report = text(&output.stderr);
        let (killed, status) = (case == "killed", output.status);
        assert!(
            status.success() || killed && status.signal() == Some(libc::SIGKILL),
            "{case}: {report}"
        );
        assert!(is_whole(&report), "{case}: {report}");
        let place = line_of(&output);
        let used = report
            .lines()
            .find(|line| line.trim_start().starts_with("unlocks "));
        let used = used.unwrap_or_else(|| panic!("{case}: {report}"));
        assert!(
            used.contains(&place) && used.contains(FUNCTION),
            "{case}: {place}: {report}"
        );
        assert!(
            used.contains(&format!("lines:{STATIC}")),
            "{case}: {report}"
        );
        let stack = report
            .lines()
            .find(|line| line.trim_start().starts_with("stack: "));
        assert!(
            stack.is_some_and(|line| line.contains(&place)),
            "{case}: {place}: {report}"
        );
        // What starts `main` has no lines.
        let raw = report.lines().filter(|line| line.contains("lines+0x"));
        assert!(
            raw.clone().all(|line| line.ends_with(" (_start)")),
            "{case}: {report}"
        );
        assert!(!report.contains("wants"), "{case}: {report}");
    }
}

#[test]
fn findings_as_json_have_them_too_and_the_same_names() {
    let Some((program, _leftover)) = program("objects") else {
        return;
    };
    let output = run(
        &["--json", "--quiet"],
        &[program.to_str().unwrap(), "fault"],
    );
    let finding: serde_json::Value = serde_json::from_slice(&output.stderr)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let used = &finding["tasks"][0]["uses"];
    let at = used["at"].as_str().unwrap();
    assert!(
        at.contains(&line_of(&output)) && at.contains(FUNCTION),
        "{finding}"
    );
    assert_eq!(used["lock"].as_str(), Some(&*format!("objects:{STATIC}")));
    assert!(finding["tasks"][0]["wants"].is_null(), "{finding}");
}

/// Places are what a suppression goes by, and they are the same however they are shown.
#[test]
fn a_report_without_a_helper_is_the_checkers_own() {
    let Some((program, _leftover)) = program("alone") else {
        return;
    };
    let path = program.to_str().unwrap();
    let with = text(&run(&[], &[path, "fault"]).stderr);
    let last = |report: &str| {
        let line = report.lines().find(|line| line.contains("to suppress"));
        line.map(str::to_owned)
    };
    let helpers = [
        "/nowhere/latchwork",
        "/etc/passwd",
        "/bin/false",
        "/bin/true",
        "",
    ];
    let variables = helpers.map(|helper| format!("LATCHWORK_HELPER={helper}"));
    let by_env = variables
        .iter()
        .map(|variable| (variable.as_str(), vec!["env", variable, path, "fault"]));
    let by_itself = ["filtered", "rooted", "reaping"].map(|case| (case, vec![path, case]));
    for (case, words) in by_env.chain(by_itself) {
        let output = run(&[], &words);
        let report = text(&output.stderr);
        if text(&output.stdout).contains("skipped") {
            eprintln!("skipped: {case}: may not be set up here");
            continue;
        }
        assert!(
            output.status.success(),
            "{case}: {}: {report}",
            output.status
        );
        assert!(is_whole(&report), "{case}: {report}");
        // Without /proc no place can be resolved.
        if case != "rooted" {
            assert!(report.contains("alone+0x"), "{case}: {report}");
            assert_eq!(last(&report), last(&with), "{case}: {report}");
        }
    }
}

#[test]
fn a_report_is_written_before_a_fatal_finding_ends_the_program() {
    let Some((program, _leftover)) = program("fatal") else {
        return;
    };
    let output = run(&["--fatal"], &[program.to_str().unwrap(), "fault"]);
    let report = text(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{report}");
    let place = report
        .find(&line_of(&output))
        .unwrap_or_else(|| panic!("{report}"));
    let end = report
        .find("LATCHWORK_CHECK=fatal")
        .unwrap_or_else(|| panic!("{report}"));
    assert!(place < end, "{report}");
}

#[test]
fn a_thread_that_ends_holds_and_wants_nothing() {
    let Some((program, _leftover)) = program("held") else {
        return;
    };
    let output = run(&[], &[program.to_str().unwrap(), "ends"]);
    let report = text(&output.stderr);
    assert!(report.contains("[no-exit-holding]"), "{report}");
    assert!(report.contains("holds mutex held:outer::"), "{report}");
    assert!(!report.contains("wants"), "{report}");
}

#[test]
fn a_thread_that_unlocks_anothers_lock_does_not_want_it() {
    let Some((program, _leftover)) = program("owned") else {
        return;
    };
    let output = run(&[], &[program.to_str().unwrap(), "owned"]);
    let report = text(&output.stderr);
    assert!(report.contains("[owner-unlocks]"), "{report}");
    let used = report
        .lines()
        .find(|line| line.trim_start().starts_with("unlocks "));
    assert!(
        used.is_some_and(|line| line.contains(&line_of(&output))),
        "{report}"
    );
    assert!(!report.contains("wants mutex"), "{report}");
}
