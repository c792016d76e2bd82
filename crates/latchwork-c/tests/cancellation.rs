//! Cold places of the library in threads that were asked to end: no request is acted on in them.

mod support;

use latchwork_c as _;
use std::process::{Command, Output};
use support::{How, MUSL, by, check, compile, run, source};

const GCC: How = by("gcc", &["-std=c11"]);
const CLANG_OPTIMISED: How = by("clang", &["-std=c2x", "-O2"]);
const GPP: How = by("g++", &["-std=c++17"]);
const GNU: &[&str] = &["-D_GNU_SOURCE"];

#[test]
fn a_thread_that_was_asked_to_end_returns_from_calls_that_do_not_wait() {
    let hows = [GCC, CLANG_OPTIMISED.statically(), GPP];
    check("undisturbed.c", &hows, GNU, "undisturbed");
}

/// The negative twins: where nothing disables cancellation, the thread ends in each of these cold places.
#[test]
fn a_cold_place_that_acts_on_a_request_is_detected() {
    if !GCC.is_there() {
        return;
    }
    let twin = ["-D_GNU_SOURCE", "-DLATCHWORK_TWIN"];
    let program = compile(&source("undisturbed.c"), GCC, &twin);
    let (mut cold, mut warm) = (
        vec![
            "first use elsewhere",
            "sweep in a receive",
            "sweep in a lock",
            "report",
            "directive",
            "coprocs",
        ],
        vec!["first use", "dead owner"],
    );
    // musl disables cancellation before it runs a thread's destructors: nothing to detect there.
    if MUSL { &mut warm } else { &mut cold }.push("end");
    for case in cold {
        let output = Command::new(&program).arg(case).output().unwrap();
        assert!(!output.status.success(), "{case}");
    }
    // In these ways there is none.
    for case in warm {
        let mut rest = Command::new(&program);
        rest.arg(case);
        assert_eq!(run(rest).trim(), "undisturbed", "{case}");
    }
}

/// Wherever the programs of the other tests come to a cancellation point of libc, in whichever state, no thread can be
/// cancelled.
#[test]
fn no_test_comes_to_a_cancellation_point_of_libc_that_could_end_its_thread() {
    if !GCC.is_there() {
        return;
    }
    if MUSL {
        println!("skipped: a static program cannot preload the watcher");
        return;
    }
    let options = ["-D_GNU_SOURCE", "-shared", "-fPIC", "-ldl"];
    let watcher = compile(&source("points_of_libc.c"), GCC, &options);
    let watched = |name: &str, twin: Option<&str>| -> Output {
        let mut program = Command::new(compile(&source(name), GCC, GNU));
        program.env("LD_PRELOAD", &watcher);
        if let Some(case) = twin {
            program.env("TWIN", "1").arg(case);
        }
        program.output().unwrap()
    };
    for name in [
        "conformance.c",
        "coproc.c",
        "coproc_effects.c",
        "directives.c",
        "ending.c",
        "events.c",
        "messages.c",
        "migrate.c",
        "queues.c",
        "regions.c",
        "robust.c",
        "schedulers.c",
        "undisturbed.c",
    ] {
        let output = watched(name, None);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    }
    // The watcher's negative twin.
    let output = watched("undisturbed.c", Some("directive"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("may end the thread"), "{said}");
}
