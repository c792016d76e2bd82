//! The exit status of the command, by one rule for all verbs that are given the name of a missing object.

mod common;

use common::{Holder, Named, WAITED_FOR, run, run_as_nobody, unique};
use latchwork_testkit::{Leftover, Watchdog};
use std::process::Output;
use std::thread::sleep;
use std::time::Duration;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// More than the most that the kernel gives a process.
const NO_PROCESS: &str = "4194305";

#[test]
fn a_missing_object_is_one_line_and_a_failure_for_each_verb() {
    let name = unique("nosuch");
    let no_region = format!("there is no region {name:?}");
    let no_file = format!("{name}: No such file or directory (os error 2)");
    let no_process = format!("there is no process {NO_PROCESS}");
    for (args, message) in [
        (&["ps", &name][..], &no_region),
        (&["ps", &name, "--json"], &no_region),
        // What is named twice is missing once.
        (&["ps", &name, &name], &no_region),
        (&["gc", &name], &no_region),
        (&["gc", "--dry-run", &name], &no_region),
        (&["gc", "--json", &name], &no_region),
        (&["locks", "--region", &name], &no_region),
        (&["locks", "--region", &name, "--json"], &no_region),
        (&["locks", "--region", &name, "--watch=0.05"], &no_region),
        (&["locks", "--pid", NO_PROCESS], &no_process),
        (&["locks", "--pid", NO_PROCESS, "--json"], &no_process),
        (&["locks", "--pid", NO_PROCESS, "--watch=0.05"], &no_process),
        (&["order", "show", &name], &no_file),
        (&["order", "merge", &name], &no_file),
        (&["order", "diff", &name, &name], &no_file),
        (&["top"], &"there is no terminal: try --once".to_owned()),
    ] {
        let output = run(args);
        let expected = format!("latchwork: {}: {message}\n", args[0]);
        assert_eq!(said(&output), expected, "{args:?}");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        // A line of the table would be the name of a missing object.
        let is_json = args.contains(&"--json");
        assert!(is_json || !shown(&output).contains(&name), "{output:?}");
    }
}

#[test]
fn existing_objects_are_shown_despite_missing_ones() {
    let named = Named::new("there");
    let holder = Holder::with_waiter(&named.0);
    let name = unique("nosuch");
    let pid = holder.pid().to_string();
    let watchdog = Watchdog::start("a lock that is waited for".into());
    while !shown(&run(&["locks", "--region", &named.0])).contains(WAITED_FOR) {
        sleep(Duration::from_millis(10));
    }
    drop(watchdog);
    for (args, part) in [
        (&["ps", &name, &named.0][..], named.0.as_str()),
        (&["gc", &name, &named.0], &named.0),
        (
            &["locks", "--region", &name, "--region", &named.0],
            WAITED_FOR,
        ),
        (
            &["locks", "--json", "--region", &name, "--region", &named.0],
            WAITED_FOR,
        ),
        (&["locks", "--pid", NO_PROCESS, "--pid", &pid], WAITED_FOR),
        (
            &["locks", "--json", "--pid", NO_PROCESS, "--pid", &pid],
            WAITED_FOR,
        ),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        assert_eq!(said(&output).lines().count(), 1, "{args:?}: {output:?}");
        assert!(shown(&output).contains(part), "{args:?}: {output:?}");
    }
}

#[test]
fn existing_objects_are_no_failure() {
    let named = Named::new("there");
    let holder = Holder::of(&named.0);
    let pid = holder.pid().to_string();
    for args in [
        &["ps"][..],
        &["ps", &named.0],
        &["gc", &named.0],
        &["locks", "--region", &named.0],
        &["locks", "--pid", &pid],
        &["top", "--once"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        assert_eq!(said(&output), "", "{args:?}");
    }
    assert_eq!(run(&["ps", "--nosuch"]).status.code(), Some(2));
}

#[test]
fn an_inaccessible_object_is_reported() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to become somebody else");
        return;
    }
    let named = Named::new("private");
    let holder = Holder::of(&named.0);
    let pid = holder.pid().to_string();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(named.path(), mode).unwrap();
    for args in [
        &["ps", &named.0][..],
        &["gc", &named.0],
        &["locks", "--region", &named.0],
        &["locks", "--pid", &pid],
    ] {
        let Some(output) = run_as_nobody(args) else {
            return;
        };
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        assert_eq!(said(&output).lines().count(), 1, "{args:?}: {output:?}");
        let reasons = ["ermission denied", "belongs to another user"];
        let is_said = reasons.iter().any(|reason| said(&output).contains(reason));
        assert!(is_said, "{args:?}: {output:?}");
    }
}

#[test]
fn a_name_cannot_control_the_terminal() {
    let folder = Leftover::folder("order");
    let file = folder.path().join("\x1b[31mred");
    std::fs::write(&file, "nonsense").unwrap();
    for args in [
        &["ps", "\x1b[31mred"][..],
        &["gc", "\x1b[31mred"],
        &["locks", "--region", "\x1b[31mred"],
        &["order", "show", file.to_str().unwrap()],
        &["order", "show", "\x1b[31mred"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(
            !said(&output).contains('\x1b'),
            "{args:?}: {:?}",
            said(&output)
        );
    }
}

#[test]
fn the_rule_is_in_the_help() {
    let help = shown(&run(&["--help"]));
    for part in ["Exit status:", "does not exist", "127"] {
        assert!(help.contains(part), "{help}");
    }
}
