//! Edges that an interposer falls over: each a case of a C program, with each lock inside of its mutexes.

use latchwork_testkit::{Leftover, output_of};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Compiles a program of this directory.
fn compile(source: &str, name: &str, options: &[&str]) -> Option<(PathBuf, Leftover)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    latchwork_testkit::compile(&directory.join(source), name, options)
}

/// Runs a case with each lock.
fn goes_well(case: &str) {
    goes_well_before(case, None);
}

/// The same, with a library that is loaded behind the interposer.
fn goes_well_before(case: &str, behind: Option<&str>) {
    succeeds_and_prints(case, behind, |mutex, errors| {
        assert!(errors.is_empty(), "{mutex}: {errors}");
    });
}

/// The same, with a look at what is said with each lock.
fn succeeds_and_prints(case: &str, behind: Option<&str>, look: impl Fn(&str, &str)) {
    let Some((program, _leftover)) = compile("corners.c", case, &["-rdynamic"]) else {
        return;
    };
    let name = format!("{case}.so");
    let Some((late, _late)) = compile("constructor.c", &name, &["-shared", "-fPIC"]) else {
        return;
    };
    // The interposer that Cargo has built for this test.
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("liblatchwork_preload.so");
    let mut preload = library.into_os_string();
    let name = format!("{case}-behind.so");
    let behind = behind.and_then(|source| compile(source, &name, &["-shared", "-fPIC"]));
    if let Some((behind, _)) = &behind {
        preload.push(":");
        preload.push(behind);
    }
    for mutex in ["glibc", "tp", "wait-wake", "pi"] {
        let child = Command::new(&program)
            .arg(case)
            .env("LD_PRELOAD", &preload)
            .env("LATCHWORK_MUTEX", mutex)
            .env("CORNERS_LIBRARY", &late)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = output_of(child);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{mutex}: {}: {errors}",
            output.status
        );
        look(mutex, &errors);
    }
}

#[test]
fn a_mutex_can_be_destroyed_after_its_waiters_timed_out() {
    goes_well("destroyed");
}

#[test]
fn the_first_call_does_not_wait_for_a_constructor_that_waits_for_it() {
    goes_well("constructed");
}

#[test]
fn messages_go_to_no_file_of_the_program() {
    goes_well("replaced");
}

#[test]
fn a_child_with_its_parents_process_id_has_none_of_its_waiters() {
    goes_well("descended");
}

#[test]
fn a_program_has_as_many_keys_as_without() {
    goes_well("keys");
}

#[test]
fn each_mutex_is_counted_however_it_was_made() {
    goes_well("counted");
}

/// An inheriting lock is its owner's alone; so what is in such a mutex from then on inherits nothing, which is said, with
/// the place, as soon as it happens.
#[test]
fn a_normal_mutex_is_released_by_any_thread() {
    succeeds_and_prints("passed", None, |mutex, errors| {
        let said = |what: &str| errors.lines().filter(|line| line.contains(what)).count();
        // One whose owner has ended goes on as it was.
        let released = if mutex == "pi" { 3 } else { 0 };
        assert_eq!(
            said("inherits no priority from now on"),
            released,
            "{mutex}: {errors}"
        );
        assert_eq!(said(" (unlock_it)"), released, "{mutex}: {errors}");
        // A thread that waits for itself, or for a thread that has ended.
        let in_vain = said("which only another thread can release");
        assert_eq!(
            in_vain,
            if mutex == "pi" { 2 } else { 0 },
            "{mutex}: {errors}"
        );
        assert_eq!(
            errors.lines().count(),
            released + in_vain,
            "{mutex}: {errors}"
        );
    });
}

#[test]
fn a_summary_without_a_reader_does_not_change_the_exit() {
    goes_well("unread");
}

#[test]
fn an_old_dynamic_linker_gives_no_old_condition_variables() {
    goes_well_before("notified", Some("old.c"));
}

#[test]
fn without_priority_inheritance_no_thread_enters_by_mistake() {
    goes_well("refused");
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

/// Runs `ends.c`.
fn end(program: &Path, case: &str, mutex: &str) -> Output {
    let test = std::env::current_exe().unwrap();
    let child = Command::new(program)
        .arg(case)
        .env("LD_PRELOAD", test.with_file_name("liblatchwork_preload.so"))
        .env("LATCHWORK_MUTEX", mutex)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    output_of(child)
}

#[test]
fn a_program_ends_in_whatever_way_it_likes() {
    let Some((program, _leftover)) = compile("ends.c", "ends", &[]) else {
        return;
    };
    for mutex in ["glibc", "tp", "wait-wake", "pi"] {
        for (case, expected) in ENDS {
            let output = end(&program, case, mutex);
            let status = output.status;
            let ended = status.code().ok_or_else(|| status.signal().unwrap());
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(ended, expected, "{mutex}: {case}: {errors}");
            assert!(errors.is_empty(), "{mutex}: {case}: {errors}");
        }
    }
}

/// The dynamic linker loads nothing into it that its caller names.
#[test]
fn a_setuid_program_is_not_changed() {
    const NOBODY: u32 = 65_534;
    let Some((program, _leftover)) = compile("ends.c", "secure", &[]) else {
        return;
    };
    let may = chown(&program, Some(NOBODY), None).is_ok();
    // A change of owner takes the bit away.
    std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    let status = end(&program, "secure", "tp").status;
    match status.code() {
        Some(0) => {}
        Some(20) => {
            eprintln!("skipped: no set-user-ID programs here, or no right to make one ({may})")
        }
        _ => panic!("{status}"),
    }
}

#[test]
fn a_program_with_thread_sanitizer_keeps_its_mutexes() {
    let Some((program, _leftover)) = compile("sanitized.c", "sanitized", &["-rdynamic"]) else {
        return;
    };
    let test = std::env::current_exe().unwrap();
    let output = Command::new(&program)
        .env("LD_PRELOAD", test.with_file_name("liblatchwork_preload.so"))
        .env("LATCHWORK_MUTEX", "tp")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    let said = "ThreadSanitizer sees no locks but glibc's: mutexes stay glibc's";
    assert!(errors.contains(said), "{errors}");
}
