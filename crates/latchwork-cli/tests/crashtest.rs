//! `latchwork crashtest`: planted faults are found at their lines, correct programs pass, and nothing is left running.

mod common;

use common::command;
use latchwork_step::{Resume, Task};
use latchwork_testkit::{Leftover, Watchdog, compile, output_of};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A compiled program, and its folder.
struct Program(PathBuf, Leftover);

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

impl Program {
    fn of(source: &str, options: &[&str]) -> Option<Self> {
        let include = format!("-I{}", here("../latchwork-c/include").display());
        let options = [options, &["-Wall", "-Wextra", "-Werror", &include]].concat();
        let (program, folder) = compile(&here(source), "program", &options)?;
        Some(Self(program, folder))
    }

    fn pair(fault: &str) -> Option<Self> {
        Self::of("../../examples/crashtest/pair.c", &[fault])
    }

    fn case() -> Option<Self> {
        Self::of("tests/crashtest/cases.c", &[])
    }

    fn run(&self, options: &[&str], arguments: &[&str]) -> Output {
        let mut command = command();
        command
            .arg("crashtest")
            .args(options)
            .arg("--")
            .arg(&self.0);
        output_of(command.args(arguments).spawn().unwrap())
    }

    /// The report, and the exit status.
    fn report(&self, options: &[&str], arguments: &[&str]) -> (Value, Option<i32>) {
        let output = self.run(&[&["--json"], options].concat(), arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.is_empty(), "{errors}");
        let report = serde_json::from_slice(&output.stdout).unwrap();
        (report, output.status.code())
    }
}

/// Whether this system permits what the tests need; says so if not.
fn is_permitted(program: &Program) -> bool {
    let output = program.run(&["--at", "1"], &["calls"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_forbidden = errors.contains("is forbidden here");
    if is_forbidden {
        eprintln!("skipped: {errors}");
    }
    !is_forbidden
}

/// `None` without a compiler, or where tracing is forbidden.
fn cases() -> Option<Program> {
    Program::case().filter(is_permitted)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn outputs(sweep: &Value) -> Vec<&str> {
    let rows = sweep["outcomes"].as_array().unwrap();
    rows.iter()
        .map(|row| row["output"].as_str().unwrap())
        .collect()
}

/// The line of a source, from 1 on, that contains this text for the `nth` time.
fn line_of(text: &str, nth: usize) -> usize {
    let source = std::fs::read_to_string(here("../../examples/crashtest/pair.c")).unwrap();
    let lines = source.lines().enumerate();
    let mut lines = lines.filter(|(_, line)| line.contains(text));
    lines.nth(nth).unwrap().0 + 1
}

#[test]
fn a_change_without_a_journal_is_found_at_its_line() {
    let Some(program) = Program::pair("-DTORN") else {
        return;
    };
    if cases().is_none() {
        return;
    }
    let (report, status) = program.report(&[], &[]);
    assert_eq!(status, Some(1));
    assert_eq!(report["schema"], "latchwork-crashtest/1");
    assert_eq!(report["holds"], false);
    assert_eq!(report["kills"]["killed"], report["operation"]["points"]);
    let violations = report["kills"]["violations"].as_array().unwrap();
    assert!(!violations.is_empty());
    let place = format!("pair.c:{} (update)", line_of("pair->other = value", 0));
    for violation in violations {
        let source = violation["place"]["source"].as_str().unwrap();
        assert!(source.ends_with(&place), "{source} is not {place}");
        assert_eq!(violation["status"], "exit status 1");
        assert_eq!(violation["output"], "torn: 2 and 1");
        assert_eq!(violation["kind"], "before");
    }
    assert_eq!(
        outputs(&report["kills"]),
        ["the new value", "the old value", "torn: 2 and 1"]
    );
    // The text names the line and the point, which a second run repeats.
    let point = number(&violations[0]["point"]).to_string();
    let output = program.run(&["--at", &point], &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        &place,
        "killed at 1 point\n",
        "VIOLATED  torn: 2 and 1",
        &format!("exit status 1 at point {point}, address 0x"),
        "operation killed before /",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A process that ends has no maps any more. The command runs as on a busy machine: after each of its system calls its
/// program gets on as far as it can, so that the process has ended by the time of the next one.
#[test]
fn a_place_has_its_line_however_soon_the_program_ends() {
    let Some(program) = Program::pair("-DTORN") else {
        return;
    };
    if cases().is_none() {
        return;
    }
    let (report, _) = program.report(&[], &[]);
    let point = number(&report["kills"]["violations"][0]["point"]).to_string();
    let mut command = command();
    command.args(["crashtest", "--json", "--at", &point, "--"]);
    let output = as_if_busy(command.arg(&program.0));
    let report: Value = serde_json::from_slice(&output).unwrap();
    let source = report["kills"]["violations"][0]["place"]["source"].as_str();
    assert!(source.unwrap().contains("pair.c:"), "{report:#}");
}

/// The output of a program that goes on after a system call only when none of its children runs.
#[allow(unsafe_code)]
#[allow(clippy::zombie_processes, reason = "`waitpid` reaps it")]
fn as_if_busy(command: &mut Command) -> Vec<u8> {
    // SAFETY: one system call, after which the new program begins with a stop.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let _watchdog = Watchdog::start("a program that is traced".into());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id().cast_signed();
    let mut status = 0;
    loop {
        // SAFETY: the kernel fills in the variable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        if !libc::WIFSTOPPED(status) {
            break;
        }
        while children_of(pid).any(runs) {
            std::thread::yield_now();
        }
        let signal = Some(libc::WSTOPSIG(status)).filter(|signal| *signal != libc::SIGTRAP);
        Task(pid)
            .resume(Resume::ToCall, signal.unwrap_or(0))
            .unwrap();
    }
    let mut output = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut output)
        .unwrap();
    output
}

fn children_of(pid: i32) -> impl Iterator<Item = String> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let all: Vec<_> = children.split_whitespace().map(str::to_owned).collect();
    all.into_iter()
}

fn runs(pid: String) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('R'))
}

#[test]
fn a_change_with_a_journal_passes_and_so_does_its_recovery() {
    let Some(program) = Program::pair("-DCORRECT") else {
        return;
    };
    if cases().is_none() {
        return;
    }
    let (report, status) = program.report(&["--recoverer", "--points", "40"], &[]);
    assert_eq!(status, Some(0), "{report:#}");
    assert_eq!(report["holds"], true);
    let seed = number(&report["seed"]).to_string();
    for sweep in [&report["kills"], &report["recoverer"]] {
        assert_eq!(outputs(sweep), ["the new value", "the old value"]);
        assert_eq!(sweep["violations"].as_array().unwrap().len(), 0);
        assert_eq!(sweep["killed"], sweep["rounds"]);
    }
    assert!(number(&report["recoverer"]["killed"]) > 20);
    // A seed repeats a run.
    let options = ["--recoverer", "--points", "40", "--seed", &seed];
    assert_eq!(program.report(&options, &[]), (report, Some(0)));
}

/// The first thread of the check is the last of its threads to end.
#[test]
fn a_recovery_in_a_second_thread_may_be_killed() {
    let Some(program) = Program::pair("-DTHREAD") else {
        return;
    };
    if cases().is_none() {
        return;
    }
    let (report, status) = program.report(&["--recoverer", "--points", "20"], &[]);
    assert_eq!(status, Some(0), "{report:#}");
    assert!(number(&report["recoverer"]["killed"]) > 5);
}

#[test]
fn a_recovery_that_may_not_be_killed_is_found_at_its_line() {
    let Some(program) = Program::pair("-DHASTY") else {
        return;
    };
    if cases().is_none() {
        return;
    }
    let (report, status) = program.report(&["--recoverer"], &[]);
    assert_eq!(status, Some(1));
    assert_eq!(report["kills"]["violations"].as_array().unwrap().len(), 0);
    let violations = report["recoverer"]["violations"].as_array().unwrap();
    let place = format!(
        "pair.c:{} (recover)",
        line_of("pair->other = pair->next", 0)
    );
    assert!(!violations.is_empty());
    for violation in violations {
        let source = violation["place"]["source"].as_str().unwrap();
        assert!(source.ends_with(&place), "{source} is not {place}");
        assert!(violation["recovery_point"].is_number());
    }
}

/// A lock that a killed process leaves locked. (The time limit is far beyond what a round takes that does not hang.)
#[test]
fn a_check_that_hangs_is_reported() {
    let Some(program) = Program::pair("-DHANG") else {
        return;
    };
    if cases().is_none() {
        return;
    }
    let (report, status) = program.report(&["--timeout", "10", "--every", "18"], &[]);
    assert_eq!(status, Some(1));
    let violations = report["kills"]["violations"].as_array().unwrap();
    assert!(!violations.is_empty());
    for violation in violations {
        assert_eq!(violation["status"], "hang");
        let details = violation["details"].to_string();
        assert!(details.contains("(program)"), "{details}");
    }
}

#[test]
fn what_cannot_be_tested_is_an_error_that_says_why() {
    let Some(program) = cases() else { return };
    for (options, case, status, message) in [
        (
            &[][..],
            "unmarked",
            125,
            "without a mark of where its operation begins",
        ),
        (&[], "unmarked", 125, "(exit status 3)"),
        (&[], "unmarked", 125, "a complaint"),
        (
            &[],
            "unended",
            125,
            "the mark of the operation's end is missing",
        ),
        (
            &["--timeout", "10"],
            "stuck",
            125,
            "came to no end within the time limit",
        ),
        (
            &[],
            "fails",
            125,
            "the check fails although nothing was killed: exit status 4",
        ),
        (&["--check", "exit 5"], "calls", 125, "exit status 5"),
        (
            &["--at", "100000"],
            "calls",
            125,
            "there is no point 100000",
        ),
        (
            &["--recoverer", "--points", "1"],
            "calls",
            125,
            "lw_crashtest_recovery_begin()",
        ),
        (
            &["--points", "1", "--at", "1"],
            "calls",
            2,
            "cannot be used with",
        ),
        (&["--every", "0"], "calls", 2, "0 is too small"),
        (&["--timeout", "0"], "calls", 2, "0 is too short"),
        (&["--timeout", "-1"], "calls", 2, "--timeout"),
    ] {
        let output = program.run(options, &[case]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{case}: {errors}");
        assert!(errors.contains(message), "{case}: {errors}");
    }
    let missing = common::run(&["crashtest", "--", "./no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    let unfit = common::run(&["crashtest", "--", here("Cargo.toml").to_str().unwrap()]);
    assert_eq!(unfit.status.code(), Some(126), "{unfit:?}");
}

#[test]
fn the_edges_of_system_calls_are_points_of_each_choice() {
    let Some(program) = cases() else { return };
    let (report, status) = program.report(&["--every", "100000"], &["calls"]);
    assert_eq!(status, Some(0));
    assert_eq!(report["operation"]["system_calls"], 2);
    assert_eq!(report["operation"]["process"], "first");
    // The first point, those before and after each call, and the last one.
    let killed = number(&report["kills"]["killed"]);
    assert!((5..=6).contains(&killed), "{report:#}");
    assert_eq!(outputs(&report["kills"]), ["0 bytes", "1 bytes", "2 bytes"]);
}

#[test]
fn a_task_is_killed_asleep_too() {
    let Some(program) = cases() else { return };
    let (report, status) = program.report(&["--every", "100000"], &["sleeps"]);
    assert_eq!(status, Some(0));
    let instructions = number(&report["operation"]["instructions"]);
    // One for each instruction, one asleep, and the last one.
    assert_eq!(number(&report["operation"]["points"]), instructions + 2);
    assert_eq!(report["kills"]["killed"], report["kills"]["rounds"]);
}

#[test]
fn operations_with_other_threads_and_operations_that_fork_are_killed_by_counting() {
    let Some(program) = cases() else { return };
    for (case, threads) in [("threads", 2), ("forks", 1)] {
        let (report, status) = program.report(&["--points", "20"], &[case]);
        assert_eq!(status, Some(0), "{report:#}");
        assert_eq!(report["operation"]["threads"], threads);
        assert_eq!(report["operation"]["found_by"], "count");
        assert!(number(&report["kills"]["killed"]) > 5, "{report:#}");
        assert_eq!(outputs(&report["kills"]), ["checked"]);
    }
}

#[test]
fn a_shell_command_can_check() {
    let Some(program) = cases() else { return };
    let check =
        "test \"$LATCHWORK_CRASHTEST\" = check && wc -c < \"$LATCHWORK_CRASHTEST_DIR/file\"";
    let (report, status) = program.report(&["--check", check], &["calls"]);
    assert_eq!(status, Some(0));
    assert_eq!(outputs(&report["kills"]), ["0", "1", "2"]);
    let check = "test $(wc -c < \"$LATCHWORK_CRASHTEST_DIR/file\") != 1";
    let (report, status) = program.report(&["--check", check], &["calls"]);
    assert_eq!(status, Some(1));
    assert!(!report["kills"]["violations"].as_array().unwrap().is_empty());
}

/// The process that a file names, once it is there.
fn announced(path: &Path) -> String {
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Waits until a process has ended.
fn wait_for_end(pid: &str) {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    // Through a pidfd, since the process ID may be reused.
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return,
        process => process.unwrap(),
    };
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    while poll(&mut ended, None) != Ok(1) {}
}

/// A watchdog would end the process if one were left.
#[test]
fn no_process_and_no_folder_is_left() {
    let Some(program) = cases() else { return };
    let _watchdog = Watchdog::start("crashtest leaves something".into());
    let temporary = program.1.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let file = program.1.path().join("daemon");
    let path = file.to_str().unwrap();
    let start = |more: &[&str]| {
        let mut command = command();
        command.env("TMPDIR", &temporary);
        command.args(["crashtest", "--at", "1", "--timeout", "1000", "--"]);
        command.arg(&program.0).args(["daemon", path]).args(more);
        command.spawn().unwrap()
    };
    let is_empty = || std::fs::read_dir(&temporary).unwrap().next().is_none();
    let output = output_of(start(&[]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    wait_for_end(&announced(&file));
    assert!(is_empty());
    // Interrupted in the first round, which does not end.
    for signal in ["TERM", "KILL"] {
        std::fs::remove_file(&file).unwrap();
        let tool = start(&["for-ever"]);
        let pid = announced(&file);
        let mut kill = Command::new("kill");
        let killed = kill.args(["-s", signal, &tool.id().to_string()]).status();
        assert!(killed.unwrap().success());
        let output = output_of(tool);
        if signal == "TERM" {
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            assert!(is_empty());
        }
        wait_for_end(&pid);
    }
}

#[test]
fn a_robust_mutex_reports_its_owners_death_at_each_point() {
    let Some(program) = Program::of("../../examples/crashtest/robust-mutex.c", &[]) else {
        return;
    };
    if cases().is_none() {
        return;
    }
    let (report, status) = program.report(&["--points", "150"], &["owner"]);
    assert_eq!(status, Some(0), "{report:#}");
    assert_eq!(report["operation"]["process"], "child");
    assert!(number(&report["kills"]["killed"]) >= 150);
    let outputs = outputs(&report["kills"]);
    assert!(outputs.contains(&"EOWNERDEAD"), "{outputs:?}");
}
