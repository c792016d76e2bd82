//! Each program comes to its right end.

use latchwork_testkit::output_of;
use std::process::{Command, Stdio};

/// What a program prints, which ends well and leaves no region.
fn said(program: &str) -> String {
    said_with(program, &[])
}

fn said_with(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let process = child.id();
    let output = output_of(child);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program}: {output:?}");
    let left = std::fs::read_dir("/dev/shm").unwrap().flatten();
    let is_its = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(&format!("-{process}"));
    let left: Vec<_> = left
        .map(|file| file.file_name())
        .filter(|name| is_its(name))
        .collect();
    assert!(left.is_empty(), "{program} left {left:?}");
    text
}

#[test]
fn a_counter_is_repaired_after_a_kill() {
    // The first and the last worker, the one that dies in its 501st round, and one more.
    let text = said(env!("CARGO_BIN_EXE_counter"));
    assert_eq!(text, "counted 2502 ([1001, 501, 1000]), repaired 1 time\n");
}

#[test]
fn a_pool_loses_no_job_and_gives_up_the_one_that_kills() {
    let text = said(env!("CARGO_BIN_EXE_pool"));
    let first = text.lines().next();
    assert_eq!(first, Some("120 jobs: 119 done, 1 given up"), "{text}");
    assert!(text.contains(" workers killed, "), "{text}");
}

#[test]
fn a_server_loses_no_key_when_its_workers_are_killed() {
    let name = format!("test-{}", std::process::id());
    let text = said_with(env!("CARGO_BIN_EXE_kv"), &["trial", &name]);
    assert_eq!(text, "450 keys stored and read, 10 workers killed\n");
}

#[test]
fn a_pipeline_handles_each_reading_with_and_without_a_ceiling() {
    for arguments in [&["--plain"][..], &[]] {
        let text = said_with(env!("CARGO_BIN_EXE_pipeline"), arguments);
        let handled = "300 readings, 15 of them alarms; the longest time";
        assert!(text.lines().any(|line| line.starts_with(handled)), "{text}");
    }
}

/// `guides.rs` of `latchwork-cli` runs it with its receiver in C.
#[test]
fn a_sender_without_a_region_says_what_it_needs() {
    let output = Command::new(env!("CARGO_BIN_EXE_readings")).output();
    let errors = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(errors.contains("usage: readings REGION"), "{errors}");
}

#[test]
fn sessions_come_and_go() {
    let text = said(env!("CARGO_BIN_EXE_sessions"));
    assert_eq!(text, "200 sessions, 1200 requests\n");
}

/// `lost_wakeup.rs` of `latchwork-c` runs the same against the robust mutexes of pthread and C.
#[test]
fn killed_waiters_for_a_region_lock_take_no_wake_up_along() {
    for form in [&[] as &[&str], &["throughput"]] {
        let text = said_with(env!("CARGO_BIN_EXE_lost_wakeup"), form);
        assert!(text.starts_with("no hang in 50 rounds: kills "), "{text}");
    }
}

#[test]
fn a_queue_is_waited_for_by_epoll() {
    let text = said(env!("CARGO_BIN_EXE_queue_epoll"));
    assert_eq!(text, "100 messages by epoll\n");
}

#[test]
fn a_queue_is_waited_for_in_tokio() {
    let text = said(env!("CARGO_BIN_EXE_queue_tokio"));
    assert_eq!(text, "100 messages in tokio, their sum 4950\n");
}

#[test]
fn every_program_is_named_and_run() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = std::fs::read_to_string(folder.join("src/lib.rs")).unwrap();
    let here = std::fs::read_to_string(folder.join("tests/programs.rs")).unwrap();
    for program in folder.join("src/bin").read_dir().unwrap().flatten() {
        let name = program.file_name().into_string().unwrap();
        let name = name.trim_end_matches(".rs");
        assert!(library.contains(&format!("`{name}`")), "{name}");
        assert!(here.contains(&format!("CARGO_BIN_EXE_{name}")), "{name}");
    }
}
