//! The C++ classes, and the life of coprocs in C and C++, by programs with each compiler that is there.

mod support;

use latchwork as _;
use latchwork_c as _;
use support::{How, MUSL, by, check};

const GCC: How = by("gcc", &["-std=c11", "-O2"]);
const CLANG: How = by("clang", &["-std=c2x"]);
const GPP: How = by("g++", &["-std=c++17"]);
const GPP_20: How = by("g++", &["-std=c++20", "-O2"]);
const CLANGPP: How = by("clang++", &["-std=c++17", "-O2"]);
const CLANGPP_20: How = by("clang++", &["-std=c++20"]);
const GNU: &[&str] = &["-D_GNU_SOURCE"];
const ALL_CPP: &[How] = &[GPP, GPP_20.statically(), CLANGPP, CLANGPP_20.statically()];

#[test]
fn the_end_of_coprocs_is_that_of_all_of_them_and_a_new_beginning() {
    check("ending.c", &[GCC, CLANG.statically()], GNU, "ended");
    check("ending.c", &[GPP], &[], "ended");
}

#[test]
fn coprocs_and_tasks_are_not_those_of_a_child_with_the_same_process_id() {
    let hows = [GCC, CLANG.statically(), GPP];
    check("descent.c", &hows, GNU, "apart");
}

#[test]
fn coprocs_get_descriptors_and_rights_as_the_manual_says() {
    check(
        "coproc_rights.c",
        &[GCC, CLANG.statically(), GPP],
        GNU,
        "given",
    );
}

#[test]
fn each_generic_name_does_what_the_manual_documents_for_all_kinds() {
    check("sentences.c", &[GCC, CLANG.statically()], GNU, "said");
    check("sentences.c", &[GPP, CLANGPP_20], &[], "said");
}

/// Most pages of the manual.
#[test]
fn objects_do_what_the_manual_says() {
    let hows = [GCC, CLANG.statically(), GPP];
    for of in [
        "coprocs",
        "queue",
        "messages",
        "waits",
        "sems",
        "rwlocks",
        "mutexes",
        "regions",
        "crashtest",
    ] {
        check(&format!("said_{of}.c"), &hows, GNU, "said");
    }
}

#[test]
fn classes_do_what_the_manual_says() {
    check(
        "said_classes.cpp",
        &[GPP, CLANGPP_20.statically()],
        &[],
        "said",
    );
}

/// Processes with other configurations, priorities and rights, and with a kernel that refuses.
#[test]
fn directives_do_what_the_manual_says() {
    if MUSL {
        println!("skipped: said_classic.c: musl-gcc has no headers of the kernel");
        return;
    }
    let hows = [GCC, CLANG.statically(), GPP];
    check("said_classic.c", &hows, GNU, "said");
}

#[test]
fn directives_work_in_a_child_and_configurations_fail_without_a_trace() {
    let hows = [GCC, CLANG.statically(), GPP];
    check("classic_forks.c", &hows, GNU, "forked");
}

#[test]
fn directives_are_cancellation_points_as_their_header_documents() {
    check("points.c", &[GCC, CLANG.statically()], GNU, "pointed");
    check("points.c", &[GPP], &[], "pointed");
}

#[test]
fn an_owners_death_leaves_no_lock_locked_whatever_guard_was_to_hold_it() {
    check("deaths.cpp", ALL_CPP, &[], "recovered");
}

#[test]
fn classes_serve_threads_and_processes_and_coprocs_are_objects() {
    check("classes.cpp", ALL_CPP, &[], "classed");
}

/// With the shared library, whose function the program replaces.
#[test]
fn a_join_that_failed_and_can_be_repeated_leaves_the_coproc_to_its_object() {
    check("join.cpp", &[GPP, CLANGPP_20], &[], "joined");
}
