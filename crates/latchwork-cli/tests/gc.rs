//! `latchwork gc`. Every test names the regions that it means: those of other programs on this
//! machine are not ours to collect.

mod common;

use common::{Holder, Named, command, gc, json, region_bytes, run, run_as_nobody, unique};
use latchwork::region::{AttachError, RegionOptions};
use latchwork_testkit::output_of;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The outcome after this process has given up its lock. A child that another test is just starting
/// has it, too, until it executes the command.
fn gc_when_free(name: &str) -> String {
    let start = Instant::now();
    loop {
        let outcome = gc(name, &[]);
        if outcome != "in use" || start.elapsed() > Duration::from_secs(60) {
            return outcome;
        }
    }
}

#[test]
fn the_region_of_a_killed_creator_is_removed() {
    let named = Named::new("killed");
    Holder::of(&named.0).kill();
    assert!(named.exists());
    assert_eq!(gc(&named.0, &["--dry-run"]), "removable");
    assert!(named.exists(), "a dry run removes nothing");
    assert_eq!(gc(&named.0, &[]), "removed");
    assert!(!named.exists());
    assert!(matches!(
        RegionOptions::new().attach(&named.0),
        Err(AttachError::NotFound)
    ));
}

#[test]
fn a_living_region_stays() {
    let named = Named::new("living");
    let holder = Holder::of(&named.0);
    assert_eq!(gc(&named.0, &[]), "in use");
    assert!(named.exists());
    // Whoever has it open counts, the creator or not.
    let own = RegionOptions::new().attach(&named.0).unwrap();
    holder.kill();
    assert_eq!(gc(&named.0, &[]), "in use");
    drop(own);
    assert_eq!(gc_when_free(&named.0), "removed");
}

#[test]
fn a_region_whose_tasks_are_dead_stays_while_a_process_has_it() {
    let named = Named::new("idle");
    let own = RegionOptions::new()
        .max_bytes(1 << 20)
        .create_named(&named.0)
        .unwrap();
    assert_eq!(gc(&named.0, &[]), "in use");
    drop(own);
}

#[test]
fn files_that_are_no_regions_are_ignored() {
    for (what, bytes) in [
        ("foreign", &b"somebody else's data"[..]),
        ("empty", b""),
        ("short", b"latchwrk"),
        ("zero", &[0; 8192]),
    ] {
        let named = Named::file(what, bytes);
        let outcome = gc(&named.0, &[]);
        match what {
            // Our magic, and nothing after it: no process could attach it.
            "short" => assert_eq!((outcome.as_str(), named.exists()), ("removed", false)),
            _ => assert_eq!(
                (outcome.as_str(), named.exists()),
                ("foreign", true),
                "{what}"
            ),
        }
    }
}

#[test]
fn regions_of_other_namespaces_are_judged_by_their_lock_and_reported() {
    const FINGERPRINT: usize = 16;
    const PID_NAMESPACE: usize = 40;
    for (what, at, words) in [
        ("build", FINGERPRINT, "a build with another layout"),
        ("namespace", PID_NAMESPACE, "PID namespace"),
    ] {
        let mut bytes = region_bytes();
        bytes[at] ^= 1;
        let named = Named::file(what, &bytes);
        // What every process that has a region holds.
        let user = std::fs::File::open(named.path()).unwrap();
        rustix::fs::flock(&user, rustix::fs::FlockOperation::LockShared).unwrap();
        let report = json(&["gc", &named.0]);
        assert_eq!(report["files"][0]["outcome"], "in use", "{what}");
        assert!(
            report["files"][0]["caution"]
                .as_str()
                .unwrap()
                .contains(words),
            "{report}"
        );
        assert!(named.exists());
        drop(user);
        assert_eq!(gc_when_free(&named.0), "removed", "{what}");
    }
}

#[test]
fn an_attach_that_waits_for_the_collector_fails_without_a_region() {
    let named = Named::file("race", &region_bytes());
    let collector = std::fs::File::open(named.path()).unwrap();
    rustix::fs::flock(&collector, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let name = named.0.clone();
    let attach = std::thread::spawn(move || RegionOptions::new().attach(&name).map(drop));
    // Whether it has reached the lock by now or not: it must find the name gone.
    std::thread::sleep(Duration::from_millis(50));
    std::fs::remove_file(named.path()).unwrap();
    drop(collector);
    assert!(matches!(attach.join().unwrap(), Err(AttachError::NotFound)));
}

#[test]
fn collecting_and_attaching_never_split_a_region_in_two() {
    // Each round, either the collector wins and the attach makes a new region, or it keeps the old
    // one: in both cases the name stands for the region that was attached.
    for round in 0..40 {
        let named = Named::file("both", &region_bytes());
        let collector = command().args(["gc", &named.0]).spawn().unwrap();
        let options = RegionOptions::new().max_bytes(1 << 20);
        let region = options.attach_or_create(&named.0).unwrap();
        output_of(collector);
        let there = rustix::fs::stat(named.path())
            .unwrap_or_else(|error| panic!("round {round}: the name is gone: {error}"));
        let mine = rustix::fs::fstat(region.file()).unwrap();
        assert_eq!(
            (mine.st_dev, mine.st_ino),
            (there.st_dev, there.st_ino),
            "round {round}"
        );
    }
}

#[test]
fn files_that_may_not_be_touched_are_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to become somebody else");
        return;
    }
    let unreadable = Named::file("unreadable", &region_bytes());
    let readable = Named::file("readable", &region_bytes());
    std::fs::set_permissions(unreadable.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(readable.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    for (named, call) in [(&unreadable, "open"), (&readable, "unlink")] {
        let Some(output) = run_as_nobody(&["gc", "--json", &named.0]) else {
            return;
        };
        assert_eq!(output.status.code(), Some(1));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let file = &report["files"][0];
        assert_eq!(file["outcome"], "failed");
        assert_eq!(file["path"].as_str(), named.path().to_str());
        assert!(file["error"].as_str().unwrap().starts_with(call), "{file}");
        assert!(named.exists());
    }
}

#[test]
fn an_unknown_name_is_a_failure() {
    for name in [unique("nobody"), "../escape".into(), String::new()] {
        let output = run(&["gc", &name]);
        assert_eq!(output.status.code(), Some(1), "{name:?}");
        let said = format!("latchwork: gc: there is no region {name:?}\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), said);
    }
}

/// A file is opened through `/proc`.
#[test]
fn without_proc_each_file_is_a_failure() {
    let named = Named::file("without-proc", &region_bytes());
    let hide = "umount -l /proc 2>/dev/null || exit 77; exec \"$0\" gc --dry-run \"$@\"";
    for names in [&[][..], &[named.0.as_str()]] {
        let mut unshare = std::process::Command::new("unshare");
        let unshare = unshare.args(["-m", "sh", "-c", hide, env!("CARGO_BIN_EXE_latchwork")]);
        let unshare = unshare.args(names);
        let started = unshare
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(started) = started else {
            println!("skipped: without_proc_each_file_is_a_failure: there is no unshare");
            return;
        };
        let output = output_of(started);
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(77) || errors.starts_with("unshare: ") {
            println!("skipped: without_proc_each_file_is_a_failure: no right to hide /proc");
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.contains(&named.0) && errors.contains("open in /proc"),
            "{errors}"
        );
    }
    let missing = run(&["gc", "--json", "there is none"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stdout).contains("\"missing\""));
}
