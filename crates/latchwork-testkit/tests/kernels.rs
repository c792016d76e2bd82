//! What the scripts of `ci/kernels` make of a machine's console: a fault in it would hide the faults that a machine finds.

use latchwork_testkit::Leftover;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn script(name: &str) -> Command {
    Command::new(root().join("ci/kernels").join(name))
}

fn stdout(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The result of a machine that was to run `one`, `two` and `three`.
fn collected(folder: &Path, console: &str, status: &str) -> String {
    let log = folder.join("console");
    fs::write(&log, console).unwrap();
    let mut command = script("collect.sh");
    command.arg(log).arg(status);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut names = child.stdin.take().unwrap();
    names.write_all(b"one\ntwo\nthree\n").unwrap();
    drop(names);
    stdout(&child.wait_with_output().unwrap())
}

fn outcome(folder: &Path, result: &str) -> String {
    let file = folder.join("result");
    fs::write(&file, result).unwrap();
    let text = stdout(&script("outcome.sh").arg(file).output().unwrap());
    text.trim_end().to_owned()
}

/// A machine that has started; as on a serial line, with carriage returns.
const START: &str = "[    0.1] noise\r\n@@ kernel 7.2.13\r\n@@ version #1 SMP\r\n@@ processors 2\r\n@@ doctor 0\r\n";
const ONE: &str =
    "@@ begin one\r\n@@ end one passed passed=3 failed=0 ignored=0 status=0 seconds=5\r\n";
const TWO: &str = "@@ begin two\r\n@@ end two passed passed=4 failed=0 ignored=1 status=0 seconds=5\r\n@@ skip two skipped: no net\r\n";
const THREE: &str =
    "@@ begin three\r\n@@ end three passed passed=5 failed=0 ignored=0 status=0 seconds=5\r\n";

#[test]
fn a_machine_in_which_all_passed_has_passed() {
    let folder = Leftover::folder("kernels");
    let result = collected(
        folder.path(),
        &[START, ONE, TWO, THREE, "@@ all\r\n"].concat(),
        "0",
    );
    for line in [
        "release 7.2.13",
        "version #1 SMP",
        "processors 2",
        "test two passed passed=4 failed=0 ignored=1 seconds=5",
        "skip two no net",
    ] {
        assert!(
            result.lines().any(|found| found == line),
            "{line} in {result}"
        );
    }
    assert_eq!(
        outcome(folder.path(), &result),
        "passed: 3 programs, 12 tests"
    );
}

#[test]
fn a_failure_a_hang_and_a_machine_that_stops_are_failures() {
    let folder = Leftover::folder("kernels");
    let failed = "@@ begin two\n@@ end two failed passed=4 failed=1 ignored=0 status=101 seconds=5\n@@ fault two a_b\n";
    let hung = "@@ begin two\n@@ end two hung passed=? failed=? ignored=? status=137 seconds=600\n";
    for (second, line) in [
        (
            failed,
            "test two failed passed=4 failed=1 ignored=0 status=101 seconds=5",
        ),
        (
            hung,
            "test two hung passed=? failed=? ignored=? status=137 seconds=600",
        ),
    ] {
        let result = collected(
            folder.path(),
            &[START, ONE, second, THREE, "@@ all\n"].concat(),
            "0",
        );
        assert!(
            result.lines().any(|found| found == line),
            "{line} in {result}"
        );
        assert_eq!(outcome(folder.path(), &result), "failed: two");
    }
    let result = collected(
        folder.path(),
        &[START, ONE, "@@ begin two\nKernel panic\n"].concat(),
        "0",
    );
    assert!(
        result.contains("test two failed: the machine stopped"),
        "{result}"
    );
    assert!(
        result.contains("test three not run: the machine stopped"),
        "{result}"
    );
    assert_eq!(outcome(folder.path(), &result), "failed: two");
    let result = collected(folder.path(), "qemu: no such file\n", "1");
    assert_eq!(
        outcome(folder.path(), &result),
        "failed: the machine did not start"
    );
}

#[test]
fn a_program_that_had_no_time_was_not_run_and_a_refused_kernel_has_not_failed() {
    let folder = Leftover::folder("kernels");
    let result = collected(
        folder.path(),
        &[START, ONE, "@@ begin two\n@@ late\n"].concat(),
        "124",
    );
    assert!(
        result.contains("test two not run: the time of the machine was over"),
        "{result}"
    );
    assert_eq!(
        outcome(folder.path(), &result),
        "passed: 1 programs, 3 tests; 2 not run"
    );
    let refused = "@@ kernel 5.10\n@@ doctor 1\nRequired\n  no   futex_waitv  what for\n  yes  robust list  x\nOptional\n  no   mseal  y\n@@ shown doctor\n@@ all\n";
    let result = collected(folder.path(), refused, "0");
    assert!(
        result.contains("test one not run: the kernel is refused"),
        "{result}"
    );
    assert_eq!(outcome(folder.path(), &result), "refused: futex_waitv");
    let result = collected(
        folder.path(),
        &[START, "@@ begin one\n@@ late\n"].concat(),
        "124",
    );
    assert_eq!(outcome(folder.path(), &result), "not run");
}

#[test]
fn a_second_run_adds_to_a_result_of_the_same_sources_and_replaces_another() {
    let folder = Leftover::folder("kernels");
    let new = folder.path().join("new");
    let old = folder.path().join("results/7.2-2.txt");
    let record = |tree: &str, console: &[&str]| {
        let result = collected(folder.path(), &console.concat(), "0");
        fs::write(&new, format!("tree {tree}\n{result}")).unwrap();
        stdout(&script("record.sh").arg(&new).arg(&old).output().unwrap());
        fs::read_to_string(&old).unwrap()
    };
    let late = "@@ late\n";
    record("a", &[START, ONE, TWO, late]);
    let both = record("a", &[START, THREE, late]);
    assert_eq!(
        outcome(folder.path(), &both),
        "passed: 3 programs, 12 tests"
    );
    assert!(both.contains("skip two no net"), "{both}");
    assert_eq!(both.matches("release ").count(), 1, "{both}");
    let failed = "@@ end one failed passed=2 failed=1 ignored=0 status=101 seconds=5\n";
    let worse = record("a", &[START, failed, late]);
    assert_eq!(outcome(folder.path(), &worse), "failed: one");
    let other = record("b", &[START, TWO, late]);
    assert_eq!(
        outcome(folder.path(), &other),
        "passed: 1 programs, 4 tests; 2 not run"
    );
}

/// `ci/kernels.sh` refuses to run otherwise. (The models with loom run on no kernel.)
#[test]
fn each_test_program_has_a_line() {
    let list = fs::read_to_string(root().join("ci/kernels/tests.txt")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let known: Vec<_> = lines.filter_map(|line| line.split(' ').next()).collect();
    let mut count = 0;
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        let folder = folder.unwrap();
        let Ok(tests) = fs::read_dir(folder.path().join("tests")) else {
            continue;
        };
        for test in tests {
            let path = test.unwrap().path();
            let is_program = path.extension().is_some_and(|extension| extension == "rs")
                || path.join("main.rs").is_file();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if is_program && !stem.starts_with("loom_") {
                let name = format!("{}:{stem}", folder.file_name().to_str().unwrap());
                assert!(known.contains(&name.as_str()), "{name} has no line");
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn the_table_of_kernels_says_what_the_results_say() {
    let document = root().join("docs/platforms.md");
    let check = |document: &Path| {
        let mut command = script("table.sh");
        command.arg("check").env("DOCUMENT", document);
        command.output().unwrap()
    };
    stdout(&check(&document));

    let text = fs::read_to_string(&document).unwrap();
    let planted = text.replacen("| passed: ", "| passed: 1", 1);
    assert_ne!(planted, text);
    let folder = Leftover::folder("kernels");
    let copy = folder.path().join("platforms.md");
    fs::write(&copy, planted).unwrap();
    assert!(!check(&copy).status.success());
}
