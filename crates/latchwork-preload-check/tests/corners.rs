//! Edges that a checker of programs falls over: each a case of a C program.

use latchwork_testkit::{Leftover, output_of};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Compiles a program of this directory.
fn compile(source: &str, name: &str, options: &[&str]) -> Option<(PathBuf, Leftover)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    latchwork_testkit::compile(&directory.join(source), name, options)
}

/// Runs a case, with a library that is loaded behind the checker, and set to work before it.
fn goes_well(case: &str, behind: Option<&str>) {
    findings(case, behind, "");
}

/// What is found in a case, which gets `library` by a variable.
fn findings(case: &str, behind: Option<&str>, library: &str) -> String {
    let library_name = behind.and_then(|source| source.rsplit('/').next());
    let name = |what: &str| format!("{case}-{}-{what}", library_name.unwrap_or("alone"));
    let Some((program, _leftover)) = compile("corners.c", &name("corners"), &["-fno-builtin"])
    else {
        return String::new();
    };
    // The interposer that Cargo has built for this test.
    let test = std::env::current_exe().unwrap();
    let checker = test.with_file_name("liblatchwork_preload_check.so");
    let mut preload = checker.into_os_string();
    let shared = ["-shared", "-fPIC", "-fno-builtin"];
    let behind = behind.and_then(|source| compile(source, &name("behind"), &shared));
    if let Some((behind, _)) = &behind {
        preload.push(":");
        preload.push(behind);
    }
    let folder = Leftover::folder("findings");
    let json = folder.path().join("jsonl");
    let child = Command::new(&program)
        .arg(case)
        .env("LD_PRELOAD", preload)
        .env("CORNERS_LIBRARIES", library)
        .env(
            "LATCHWORK_CHECK",
            format!("quiet,long=0,json={}", json.display()),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = output_of(child);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert!(errors.is_empty(), "{errors}");
    std::fs::read_to_string(&json).unwrap_or_default()
}

#[test]
fn an_invalid_time_is_refused_as_without_the_checker() {
    goes_well("times", None);
}

#[test]
fn the_smallest_stack_is_large_enough() {
    goes_well("small", None);
}

/// As it is documented.
#[test]
fn only_small_stacks_are_enlarged() {
    goes_well("stacks", None);
}

/// As glibc allows it; the record of the thread that had locked it says too long that it holds the lock.
#[test]
fn a_lock_that_another_thread_has_released_is_its_next_owners() {
    let found = findings("handed_over", None, "");
    let rules: Vec<_> = found
        .lines()
        .map(|line| line.contains("owner-unlocks"))
        .collect();
    assert_eq!(rules, [true], "{found}");
}

/// The checker has ended in the thread before that.
#[test]
fn a_lock_that_a_threads_last_destructor_destroys_can_be_initialised_again() {
    let found = findings("destroyed_late", None, "");
    assert!(found.is_empty(), "{found}");
}

#[test]
fn a_lock_that_only_the_second_attempt_acquires_is_held() {
    let found = findings("ceiling", None, "");
    assert!(found.is_empty(), "{found}");
}

#[test]
fn findings_go_to_no_file_of_the_programs() {
    goes_well("closed", None);
}

/// Runs a case of a program under the checker, alone.
fn under_checker(program: &Path, case: &str, check: &str) -> Output {
    let test = std::env::current_exe().unwrap();
    let checker = test.with_file_name("liblatchwork_preload_check.so");
    let child = Command::new(program)
        .arg(case)
        .env("LD_PRELOAD", checker)
        .env("LATCHWORK_CHECK", check)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    output_of(child)
}

/// What a case has on standard error, as its text is not asked to be left out.
fn said(case: &str) -> Option<String> {
    let (program, _leftover) = compile("corners.c", &format!("said-{case}"), &[])?;
    let output = under_checker(&program, case, "long=0");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = output.status;
    assert!(status.success(), "{case}: {status}: {errors}");
    Some(errors)
}

#[test]
fn text_of_findings_goes_to_the_original_standard_error_only() {
    for (case, is_reported) in [("replaced", true), ("left", true), ("none_left", false)] {
        let Some(errors) = said(case) else { return };
        assert_eq!(
            errors.contains("one-order"),
            is_reported,
            "{case}: {errors}"
        );
    }
}

#[test]
fn text_without_a_reader_ends_no_program() {
    let Some(errors) = said("unread") else { return };
    assert_eq!(errors, "");
}

#[test]
fn findings_and_orders_without_disk_space_are_reported_and_end_no_program() {
    let Some((program, _leftover)) = compile("corners.c", "corners-full", &[]) else {
        return;
    };
    let folder = Leftover::folder("findings");
    let [json, order] = ["jsonl", "order"].map(|name| folder.path().join(name));
    let files = |json: &Path, order: &Path| {
        let (json, order) = (json.display(), order.display());
        format!("quiet,long=0,json={json},order={order}")
    };
    let full = Path::new("/dev/full");
    for (case, check) in [
        ("limited", files(&json, &order)),
        ("reported_order", files(full, full)),
    ] {
        let output = under_checker(&program, case, &check);
        let errors = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(status.success(), "{case}: {status}: {errors}");
        for lost in [
            "a finding could not be written",
            "cannot save the lock order",
        ] {
            assert!(errors.contains(lost), "{case}: {errors}");
        }
    }
}

#[test]
fn memory_that_is_freed_while_the_function_is_looked_up_ends_nothing() {
    goes_well("nothing", Some("early.c"));
}

#[test]
fn objects_that_were_made_before_the_checker_began_are_not_uninitialised() {
    assert_eq!(findings("made_early", Some("made_early.c"), ""), "");
}

#[test]
fn an_allocator_may_lock_and_need_not_know_block_sizes() {
    goes_well("nothing", Some("pages.c"));
}

#[test]
fn a_library_loaded_at_a_reused_address_has_locks_of_its_own() {
    let shared = ["-shared", "-fPIC", "-fno-builtin"];
    let Some((one, _one)) = compile("order.c", "one.so", &shared) else {
        return;
    };
    let reversed = ["-shared", "-fPIC", "-DREVERSED"];
    let Some((other, _other)) = compile("order.c", "other.so", &reversed) else {
        return;
    };
    let libraries = format!("{} {}", one.display(), other.display());
    assert_eq!(findings("unloaded", None, &libraries), "");
}

#[test]
fn memory_of_an_unloaded_library_is_another_threads_by_the_time_that_is_noticed() {
    let shared = ["-shared", "-fPIC", "-fno-builtin"];
    let Some((library, _library)) = compile("order.c", "closed.so", &shared) else {
        return;
    };
    let found = findings("unloaded", Some("closing.c"), library.to_str().unwrap());
    assert_eq!(found, "");
}

/// Its twin: the lock is the library's.
#[test]
fn the_unloading_of_a_library_whose_lock_is_held_is_reported() {
    let shared = ["-shared", "-fPIC", "-fno-builtin"];
    let Some((library, _library)) = compile("order.c", "held.so", &shared) else {
        return;
    };
    let found = findings("unloaded_held", None, library.to_str().unwrap());
    let reported = found.matches("no-free-holding").count();
    assert!(reported > 0 && found.lines().count() == 1, "{found}");
}

#[test]
fn a_lock_that_a_fork_handler_releases_is_not_held_in_the_child() {
    assert_eq!(findings("forked", Some("atfork.c"), ""), "");
}

#[test]
fn an_old_dynamic_linker_gives_no_old_condition_variables() {
    goes_well("notified", None);
    goes_well(
        "notified",
        Some("../../../latchwork-preload/tests/programs/old.c"),
    );
}

/// What a program ends with that is in the midst of its threads' work: a status, or a signal.
const ENDS: [(&str, Result<i32, i32>); 13] = [
    ("exit", Ok(3)),
    ("return", Ok(3)),
    ("_exit", Ok(3)),
    ("quick_exit", Ok(3)),
    ("pthread_exit", Err(libc::SIGALRM)),
    ("SIGTERM", Err(libc::SIGTERM)),
    ("SIGKILL", Err(libc::SIGKILL)),
    ("abort", Err(libc::SIGABRT)),
    ("fork", Ok(3)),
    ("exec", Ok(3)),
    ("exec_in_thread", Ok(3)),
    ("spawn", Ok(3)),
    ("closed", Ok(3)),
];

#[test]
fn a_program_ends_in_whatever_way_it_likes() {
    let source = "../../../latchwork-preload/tests/programs/ends.c";
    let Some((program, _leftover)) = compile(source, "ends", &[]) else {
        return;
    };
    for (case, expected) in ENDS {
        let output = under_checker(&program, case, "quiet,long=0");
        let status = output.status;
        let ended = status.code().ok_or_else(|| status.signal().unwrap());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(ended, expected, "{case}: {errors}");
        assert!(errors.is_empty(), "{case}: {errors}");
    }
}
