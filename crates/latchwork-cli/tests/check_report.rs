//! Findings as text and as JSON, suppressions, and the order of locks from a program to `latchwork order`.
#![allow(unsafe_code)]

use latchwork::check::{self, Checked, Finding, Json};
use latchwork::mutex::{Mutex, WaitWake};
use latchwork_testkit::Leftover;
use serde_json::Value;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Mutex as StdMutex;

static FOUND: StdMutex<Vec<(u64, String, String)>> = StdMutex::new(Vec::new());

fn note(finding: &Finding) {
    let json = Json(finding).to_string();
    let entry = (finding.id, finding.to_string(), json);
    FOUND.lock().unwrap().push(entry);
}

type Lock = Mutex<u32, Checked<WaitWake>>;

fn lock(name: &str) -> Lock {
    Mutex::from_raw(Checked::named(name, WaitWake::new()), 0)
}

fn both_orders(a: &Lock, b: &Lock) {
    let run = |body: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| scope.spawn(body).join().unwrap());
    };
    run(&|| drop((a.lock(), b.lock())));
    run(&|| drop((b.lock(), a.lock())));
}

/// One test, since findings are the process's. (Others have a process of their own.)
#[test]
fn a_finding_is_the_same_as_text_as_json_and_in_the_next_run_and_can_be_suppressed() {
    check::set_text(false);
    check::set_reporter(Some(note));
    both_orders(&lock("left \"one\""), &lock("right"));
    let (id, text, json) = FOUND.lock().unwrap().remove(0);

    assert!(text.contains("POTENTIAL DEADLOCK [one-order]"), "{text}");
    assert!(
        text.contains("order right -> left \"one\" -> right"),
        "{text}"
    );
    assert!(text.contains("check_report.rs:"), "{text}");
    assert!(
        text.contains("how the deadlock would come about:"),
        "{text}"
    );
    assert!(
        text.ends_with(&format!("to suppress: one-order {id:016x}\n")),
        "{text}"
    );

    let value: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["schema"], "latchwork-finding-5");
    assert_eq!(value["verdict"], "POTENTIAL DEADLOCK");
    assert_eq!(value["rule"], "one-order");
    assert_eq!(value["confidence"], "follows");
    assert_eq!(value["id"], format!("{id:016x}"));
    assert_eq!(value["suppression"], format!("one-order {id:016x}"));
    let tasks = value["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 2);
    let names: Vec<_> = tasks.iter().map(|task| &task["holds"]["lock"]).collect();
    assert!(names.contains(&&Value::from("left \"one\"")), "{names:?}");
    assert!(!value["stack"].as_array().unwrap().is_empty());

    // Other locks, of the same names and places: the same finding, which is reported once, unless its record was dropped.
    both_orders(&lock("left \"one\""), &lock("right"));
    assert!(FOUND.lock().unwrap().is_empty());

    check::suppress(id);
    check::forget_reported();
    both_orders(&lock("left \"one\""), &lock("right"));
    assert!(FOUND.lock().unwrap().is_empty());

    let folder = Leftover::folder("order");
    let path = folder.path().join("order");
    let count = check::save_order(path.to_str().unwrap()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_latchwork"))
        .args(["order", "show"])
        .arg(&path)
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        count >= 2 && shown.contains("right -> left \"one\""),
        "{shown}"
    );
    assert_eq!(shown.matches("cycle: ").count(), 1, "{shown}");
}

const FOLDER: &str = "LATCHWORK_TEST_FOLDER";

/// A program that closes what it has not opened, and has files of its own there.
#[test]
fn program() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    both_orders(&lock("first"), &lock("second"));
    std::env::set_current_dir("/").unwrap();
    let own = std::fs::File::create(std::path::Path::new(&folder).join("own")).unwrap();
    for descriptor in 3..1000 {
        if descriptor != own.as_raw_fd() {
            // SAFETY: as such programs do; the owner of the descriptor must cope with it.
            unsafe { libc::dup2(own.as_raw_fd(), descriptor) };
        }
    }
    both_orders(&lock("third"), &lock("fourth"));
    for descriptor in 3..1000 {
        if descriptor != own.as_raw_fd() {
            // SAFETY: as above.
            unsafe { libc::close(descriptor) };
        }
    }
    both_orders(&lock("fifth"), &lock("sixth"));
    assert_eq!(own.metadata().unwrap().len(), 0);
}

#[test]
fn findings_go_to_their_file_and_no_other_whatever_the_program_closes() {
    let leftover = Leftover::folder("json");
    let folder = leftover.path();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program"])
        .env(FOLDER, folder)
        .env("LATCHWORK_CHECK", "quiet,json=findings")
        .current_dir(folder)
        .output()
        .unwrap();
    let findings = std::fs::read_to_string(folder.join("findings")).unwrap();
    assert!(output.status.success(), "{output:?}");
    let summary = |line: &str| {
        let finding: Value = serde_json::from_str(line).unwrap();
        finding["summary"].as_str().unwrap().to_owned()
    };
    let summaries: Vec<_> = findings.lines().map(summary).collect();
    assert_eq!(
        summaries,
        [
            "order second -> first -> second",
            "order fourth -> third -> fourth",
            "order sixth -> fifth -> sixth"
        ]
    );
}
