//! `latchwork doctor`, and what all verbs do with their output.

mod common;

use common::{command, json, run, run_as_nobody, stdout};
use latchwork_testkit::output_of;

#[test]
fn doctor_accepts_the_machine_of_its_tests() {
    let output = run(&["doctor"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    for part in [
        "Required",
        "Optional",
        "Privileges",
        "Limits",
        "futex_waitv",
        "This system has everything that Latchwork requires.",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn doctor_reports_the_same_in_json() {
    let report = json(&["doctor"]);
    assert_eq!(
        (report["schema"].as_str(), report["ok"].as_bool()),
        (Some("latchwork-doctor/1"), Some(true))
    );
    let features = report["features"].as_array().unwrap();
    for feature in features {
        assert!(
            ["available", "missing", "not permitted", "unknown"]
                .contains(&feature["status"].as_str().unwrap()),
            "{feature}"
        );
        assert!(
            !feature["consequence"].as_str().unwrap().is_empty(),
            "{feature}"
        );
    }
    let waitv = features
        .iter()
        .find(|feature| feature["name"] == "futex_waitv")
        .unwrap();
    assert_eq!(
        (waitv["since"].as_str(), waitv["group"].as_str()),
        (Some("5.16"), Some("optional"))
    );
}

#[test]
fn doctor_reports_the_consequences_to_an_unprivileged_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to become somebody else");
        return;
    }
    let Some(output) = run_as_nobody(&["doctor", "--json"]) else {
        return;
    };
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let status = |name: &str| {
        let features = report["features"].as_array().unwrap();
        features
            .iter()
            .find(|feature| feature["name"] == name)
            .unwrap()["status"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(status("CAP_SYS_NICE"), "not permitted");
    assert_eq!(
        output.status.code(),
        Some(0),
        "no privilege is required: {report:#}"
    );
}

#[test]
fn colour_is_for_terminals_only() {
    for verb in ["doctor", "ps"] {
        assert!(!stdout(&run(&[verb])).contains('\x1b'), "{verb}");
    }
}

#[test]
fn help_names_the_verbs_and_a_wrong_one_is_an_error() {
    let help = stdout(&run(&["--help"]));
    for verb in ["doctor", "ps", "gc", "bench"] {
        assert!(help.contains(verb), "{verb} in {help}");
    }
    assert_eq!(run(&["frobnicate"]).status.code(), Some(2));
}

#[test]
fn bench_reaches_the_experiments() {
    assert!(stdout(&run(&["bench", "list"])).contains("call-overhead"));
    let output = run(&["bench", "no-such-scenario"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("no-such-scenario")
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = command().arg("doctor").spawn().unwrap();
    drop(child.stdout.take());
    let output = output_of(child);
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}
