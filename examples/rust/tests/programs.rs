//! Each program comes to its right end.

use latchwork_testkit::output_of;
use std::process::{Command, Stdio};

/// What a program prints, which ends well and leaves no region.
fn said(program: &str) -> String {
    let mut command = Command::new(program);
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
fn sessions_come_and_go() {
    let text = said(env!("CARGO_BIN_EXE_sessions"));
    assert_eq!(text, "200 sessions, 1200 requests\n");
}

/// `lost_wakeup.rs` of `latchwork-c` runs the same against the robust mutexes of pthread and C.
#[test]
fn killed_waiters_for_a_region_lock_take_no_wake_up_along() {
    let text = said(env!("CARGO_BIN_EXE_lost_wakeup"));
    assert_eq!(text, "50 rounds, in none of which a wake-up was lost\n");
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
