//! What the scripts of `ci/kernels` make of a machine's console: a fault in it would hide the faults that a machine finds.

use latchwork_testkit::{Leftover, output_of, write_program};
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
    let refused = "@@ kernel 5.10\n@@ doctor 1\nRequired\n  no   WIPEONFORK  what for\n  yes  robust list  x\nOptional\n  no   mseal  y\n@@ shown doctor\n@@ all\n";
    let result = collected(folder.path(), refused, "0");
    assert!(
        result.contains("test one not run: the kernel is refused"),
        "{result}"
    );
    assert_eq!(outcome(folder.path(), &result), "refused: WIPEONFORK");
    let result = collected(
        folder.path(),
        &[START, "@@ begin one\n@@ late\n"].concat(),
        "124",
    );
    assert_eq!(outcome(folder.path(), &result), "not run");
}

/// What the script `found.sh` says of a machine with a planted fault, and its status.
fn verdict(folder: &Path, result: &str, control: &str) -> (String, bool) {
    let [report, without] = [("report", result), ("control", control)].map(|(name, text)| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        file
    });
    let output = script("found.sh")
        .arg(report)
        .arg(without)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (said.trim_end().to_owned(), output.status.success())
}

/// Only a test that fails, and passes without the fault, has found it: no machine that did not start, and no program that
/// could not run.
#[test]
fn a_planted_fault_is_found_by_a_test_that_passes_without_it() {
    let folder = Leftover::folder("kernels");
    let console = |second: &str| {
        let text = [START, ONE, second, THREE, "@@ all\n"].concat();
        collected(folder.path(), &text, "0")
    };
    let failed = console(
        "@@ begin two\n@@ end two failed passed=4 failed=1 ignored=0 status=101 seconds=5\n@@ fault two a_b\n",
    );
    let hung = console(
        "@@ begin two\n@@ end two hung passed=? failed=? ignored=? status=137 seconds=600\n",
    );
    let without = console(TWO);
    let of = |result: &str, control: &str| verdict(folder.path(), result, control);
    for (result, said) in [
        (&failed, "found by two (failed: a_b)"),
        (&hung, "found by two"),
    ] {
        assert_eq!(of(result, &without), (said.to_owned(), true));
        for control in ["", result] {
            let unknown = "not shown: no result without the fault of two".to_owned();
            assert_eq!(of(result, control), (unknown, false));
        }
    }
    assert_eq!(
        of(&without, &without),
        ("missed by one two three".to_owned(), false)
    );
    let stopped = collected(
        folder.path(),
        &[START, "@@ begin two\nKernel panic\n"].concat(),
        "0",
    );
    let no_end = "not shown: no program came to its end".to_owned();
    assert_eq!(of(&stopped, &without), (no_end, false));
    let no_machine = collected(folder.path(), "qemu: no such file\n", "1");
    let no_start = "not shown: the machine did not start".to_owned();
    assert_eq!(of(&no_machine, &without), (no_start, false));
}

/// What the script `add.sh` makes of files of results, the oldest first.
fn added(folder: &Path, files: &[&Path]) -> String {
    let list = folder.join("list");
    fs::write(
        &list,
        "one run\ntwo quick --skip x\nthree run\nfour no: why\n",
    )
    .unwrap();
    let mut command = script("add.sh");
    stdout(&command.args(files).env("LIST", list).output().unwrap())
}

#[test]
fn a_second_run_adds_to_a_result_of_the_same_kernel_and_replaces_that_of_another() {
    let folder = Leftover::folder("kernels");
    let new = folder.path().join("new");
    let old = folder.path().join("results/7.2-2.txt");
    let record = |commit: &str, console: &[&str]| {
        let result = collected(folder.path(), &console.concat(), "0");
        let head = format!("kernel 7.2\ndate 2026-01-0{commit}\ncommit {commit}\nkills 0.05\n");
        fs::write(&new, head + &result).unwrap();
        stdout(&script("record.sh").arg(&new).arg(&old).output().unwrap());
        fs::read_to_string(&old).unwrap()
    };
    let late = "@@ late\n";
    record("1", &[START, ONE, TWO, late]);
    let both = record("2", &[START, THREE, late]);
    assert_eq!(
        outcome(folder.path(), &both),
        "passed: 3 programs, 12 tests"
    );
    for line in [
        "skip two no net",
        "test one passed passed=3 failed=0 ignored=0 seconds=5 date=2026-01-01 commit=1 factor=0.05",
        "test three passed passed=5 failed=0 ignored=0 seconds=5 date=2026-01-02 commit=2 factor=0.05",
    ] {
        assert!(both.lines().any(|found| found == line), "{line} in {both}");
    }
    assert_eq!(both.matches("release ").count(), 1, "{both}");
    let failed = "@@ end one failed passed=2 failed=1 ignored=0 status=101 seconds=5\n";
    let worse = record("3", &[START, failed, late]);
    assert_eq!(outcome(folder.path(), &worse), "failed: one");
    // A machine that does not start says nothing of the programs.
    assert_eq!(record("4", &["qemu: no such file\n"]), worse);
    let other = record("5", &[&START.replace("7.2.13", "7.2.14"), TWO, late]);
    assert_eq!(
        outcome(folder.path(), &other),
        "passed: 1 programs, 4 tests; 2 not run"
    );
}

#[test]
fn results_of_several_days_add_up_to_the_newest_of_each_program() {
    let folder = Leftover::folder("kernels");
    let day = |day: u32, console: &[&str]| {
        let file = folder.path().join(format!("day-{day}"));
        let result = collected(folder.path(), &console.concat(), "0");
        fs::write(&file, format!("kernel 7.2\ndate 2026-01-0{day}\n{result}")).unwrap();
        file
    };
    let sum = |files: &[&Path]| {
        let sum = added(folder.path(), files);
        (outcome(folder.path(), &sum), sum)
    };
    let failed = "@@ end one failed passed=2 failed=1 ignored=0 status=101 seconds=5\n";
    let first = day(1, &[START, failed, TWO, "@@ late\n"]);
    let (says, _) = sum(&[&first]);
    assert_eq!(says, "failed: one");
    let second = day(2, &[START, ONE, "@@ late\n"]);
    let mut text = fs::read_to_string(&second).unwrap();
    text += "test two/storm passed passed=1 failed=0 ignored=0 seconds=5 kills=70\n";
    fs::write(&second, text).unwrap();
    let (says, both) = sum(&[&first, &second]);
    // Three has never run; many kills are no other program.
    assert_eq!(says, "passed: 2 programs, 7 tests; 1 not run");
    assert!(both.contains("kills=70 date=2026-01-02"), "{both}");
    // Only one kernel counts, that of the newest file.
    let third = day(3, &[&START.replace("7.2.13", "7.2.14"), THREE]);
    let (says, _) = sum(&[&first, &second, &third]);
    assert_eq!(says, "passed: 1 programs, 5 tests; 2 not run");
    // What the list no longer runs does not count.
    let four = "test four passed passed=9 failed=0 ignored=0 seconds=1\n";
    let text = fs::read_to_string(&third).unwrap();
    fs::write(&third, text + four).unwrap();
    let (says, _) = sum(&[&third]);
    assert_eq!(says, "passed: 1 programs, 5 tests; 2 not run");
}

/// What `kernels.sh --missing` runs.
#[test]
fn missing_programs_are_those_without_a_result_on_the_newest_kernel() {
    let folder = Leftover::folder("kernels");
    let list = folder.path().join("all");
    fs::write(&list, "one 600 a\nthree 600 b\nthree/storm 600 b\n").unwrap();
    let day = |day: u32, console: &[&str], more: &str| {
        let file = folder.path().join(format!("day-{day}"));
        let result = collected(folder.path(), &console.concat(), "0");
        let text = format!("kernel 7.2\ndate 2026-01-0{day}\n{result}{more}");
        fs::write(&file, text).unwrap();
        file
    };
    let missing = |files: &[&Path]| {
        let mut command = script("missing.sh");
        command.arg(&list).args(files);
        // The list of all programs, as in `added`.
        let programs = folder.path().join("list");
        fs::write(&programs, "one run\ntwo quick\nthree run\n").unwrap();
        let found = stdout(&command.env("LIST", programs).output().unwrap());
        let name = |line: &str| line.split(' ').next().unwrap().to_owned();
        found.lines().map(name).collect::<Vec<_>>()
    };
    assert_eq!(missing(&[]), ["one", "three", "three/storm"]);
    let first = day(1, &[START, ONE, "@@ late\n"], "");
    assert_eq!(missing(&[&first]), ["three", "three/storm"]);
    let storm = "test three/storm passed passed=1 failed=0 ignored=0 seconds=5 kills=70\n";
    let second = day(2, &[START, TWO, "@@ late\n"], storm);
    assert_eq!(missing(&[&first, &second]), ["three"]);
    let third = day(3, &[&START.replace("7.2.13", "7.2.14"), THREE], "");
    assert_eq!(missing(&[&first, &second, &third]), ["one", "three/storm"]);
}

#[test]
fn a_time_for_sweeps_is_a_number_and_for_sweeps_only() {
    for options in [
        &["--within", "5"][..],
        &["--sweep", "--within", "0"],
        &["--sweep", "--within", "5", "--missing"],
        &["--storm", "--within", "5"],
    ] {
        let mut command = Command::new(root().join("ci/kernels.sh"));
        let output = command.args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
}

/// The first process of a machine counts kills by what the tests print.
#[test]
fn kills_are_counted_as_storms_print_them() {
    let init = fs::read_to_string(root().join("ci/kernels/init")).unwrap();
    let line = init.lines().find(|line| line.contains(" kills[ ,]"));
    let count = line.expect("init counts kills").trim();
    let folder = Leftover::folder("kernels");
    let printed = folder.path().join("printed");
    let said = "a: LATCHWORK_SEED=3\na: 40 kills (30 single, 4 after SIGSTOP, 3 newborn, 2 in bursts, 1 of all at once)\n\
                b: 7 kills, Tally { kills: 7 }, 9 signals handled\n  90 operations, 5 kills of tasks, 2 namespaces ended\n";
    fs::write(&printed, said).unwrap();
    let text = count.replace("/tmp/out", printed.to_str().unwrap());
    let mut shell = Command::new("sh");
    let output = shell.arg("-c").arg(text + "; echo \"$kills\"").output();
    assert_eq!(stdout(&output.unwrap()).trim(), "52");
}

/// A folder of programs that replace others.
fn stubs(folder: &Path, programs: &[(&str, &str)]) -> String {
    let stubs = folder.join("stubs");
    fs::create_dir_all(&stubs).unwrap();
    for (name, text) in programs {
        let file = stubs.join(name);
        write_program(&file, format!("#!/bin/sh\n{text}\n").as_bytes());
    }
    let path = std::env::var("PATH").unwrap();
    format!("{}:{path}", stubs.display())
}

/// A machine that does not stop by itself is killed, and what has run counts.
#[test]
fn a_machine_is_stopped_at_its_limit() {
    let folder = Leftover::folder("kernels");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let path = stubs(
        folder.path(),
        &[(
            "qemu-system-x86_64",
            "trap '' TERM\nwhile :; do sleep 1; done",
        )],
    );
    let mut boot = script("boot.sh");
    boot.arg("x86_64").arg(&file).args(["2", "1"]).arg(&file);
    let output = boot.env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(124));
    let console = String::from_utf8_lossy(&output.stdout);
    assert!(console.ends_with("@@ late\n"), "{console}");
}

/// The limit of `--quick` is that of the whole run: this one would build for ever.
#[test]
fn a_quick_run_ends_at_its_limit_whatever_takes_so_long() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("skipped: the tests of other processors have no machine");
        return;
    }
    let folder = Leftover::folder("kernels");
    let nothing = "exit 0";
    let path = stubs(
        folder.path(),
        &[
            ("cargo", "trap '' TERM\nwhile :; do sleep 1; done"),
            ("qemu-system-x86_64", nothing),
            ("busybox", nothing),
            ("cpio", nothing),
            ("readelf", nothing),
            ("strip", nothing),
            ("cc", nothing),
        ],
    );
    for kernel in ["7.2", "7.2-rt"] {
        let kernel = folder.path().join("amd64").join(kernel);
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("image"), "").unwrap();
    }
    let mut quick = Command::new(root().join("ci/kernels.sh"));
    quick.arg("--quick").env("PATH", path);
    quick.env("LATCHWORK_KERNELS", folder.path());
    quick.env("LATCHWORK_KERNELS_LIMIT", "1");
    quick.stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = stdout(&output_of(quick.spawn().unwrap()));
    let reason = "skipped: building the tests took the 1 seconds of --quick";
    assert!(said.contains(reason), "{said}");
}

/// `ci/kernels.sh` refuses to run otherwise. (The models with loom run on no kernel.)
#[test]
fn each_test_program_has_a_line() {
    let list = fs::read_to_string(root().join("ci/kernels/tests.txt")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let known: Vec<_> = lines.filter_map(|line| line.split(' ').next()).collect();
    let mut count = 0;
    let mut must_know = |name: String| {
        assert!(known.contains(&name.as_str()), "{name} has no line");
        count += 1;
    };
    let files = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path())
    };
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut folders: Vec<_> = files(root().join("crates")).collect();
    folders.push(root().join("examples/rust"));
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        for path in files(folder.join("tests")) {
            let is_program = path.extension().is_some_and(|extension| extension == "rs")
                || path.join("main.rs").is_file();
            if is_program && !stem(&path).starts_with("loom_") {
                must_know(format!("{name}:{}", stem(&path)));
            }
        }
        // Unit tests, of the library and of each program.
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if folder.join("src/lib.rs").is_file() && !manifest.contains("\ntest = false") {
            must_know(format!("{name}:lib"));
        }
        for path in files(folder.join("src/bin")) {
            must_know(format!("{name}:bin-{}", stem(&path)));
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
