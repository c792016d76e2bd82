//! C programs that use everything, with each lock inside of their mutexes.

use latchwork_testkit::{Leftover, Namespace, output_of};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The interposer that Cargo has built for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("liblatchwork_preload.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

/// Compiles a program of this directory.
fn compile(source: &str, name: &str, options: &[&str]) -> Option<(PathBuf, Leftover)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    latchwork_testkit::compile(&directory.join(source), name, options)
}

fn run(program: &Path, arguments: &[&str], mutex: &str, late: &Path) -> Output {
    let child = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env("LATCHWORK_MUTEX", mutex)
        .env("USES_LIBRARY", late)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    output_of(child)
}

/// What a program, and the library in it, wrote to standard error. Left out: that a thread releases a mutex which another one has
/// taken. A program here does so after that thread was joined, and the library reports it only if the thread still exists:
/// the kernel wakes the joiner shortly before a thread's number is gone.
fn messages(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines = errors.split_inclusive('\n');
    lines
        .filter(|line| !line.ends_with("it inherits no priority from now on\n"))
        .collect()
}

/// Each uses all that its name says.
const USES: [&str; 3] = ["mutexes", "conditions", "surroundings"];

fn all_is_as_with_glibc(mutex: &str) {
    let shared = ["-shared", "-fPIC"];
    let Some((late, _late)) = compile("late.c", &format!("late-{mutex}.so"), &shared) else {
        return;
    };
    for uses in USES {
        let name = format!("{uses}-{mutex}");
        let Some((program, _leftover)) = compile(&format!("{uses}.c"), &name, &[]) else {
            return;
        };
        let output = run(&program, &[], mutex, &late);
        let errors = messages(&output);
        assert!(
            output.status.success(),
            "{name}: {}: {errors}",
            output.status
        );
        assert!(errors.is_empty(), "{name}: {errors}");
    }
}

#[test]
fn a_program_behaves_the_same_with_throughput_locks() {
    all_is_as_with_glibc("tp");
}

#[test]
fn a_program_behaves_the_same_with_wait_wake_locks() {
    all_is_as_with_glibc("wait-wake");
}

#[test]
fn a_program_behaves_the_same_with_inheriting_locks() {
    all_is_as_with_glibc("pi");
}

#[test]
fn a_program_behaves_the_same_if_nothing_is_replaced() {
    all_is_as_with_glibc("glibc");
}

/// In a new PID namespace the second process has the ID 2. With glibc 2.43 this is the value of the word that the kernel
/// clears when a thread ends, in every thread.
#[test]
fn a_process_with_a_tiny_id_is_not_mistaken_for_its_threads() {
    let (source, name) = ("mutexes.c", "mutexes-tiny");
    let Some((program, _leftover)) = compile(source, name, &[]) else {
        return;
    };
    if let Err(reason) = Namespace::may_be_made() {
        println!("skipped: no PID namespace can be made: {reason}");
        return;
    }
    for mutex in ["tp", "wait-wake", "pi"] {
        Namespace::start(false, || {
            let output = run(&program, &[], mutex, Path::new(""));
            let errors = messages(&output);
            assert!(
                output.status.success(),
                "{mutex}: {}: {errors}",
                output.status
            );
            assert!(errors.is_empty(), "{mutex}: {errors}");
        })
        .succeed();
    }
}

#[test]
fn an_unknown_lock_is_reported_and_replaces_nothing() {
    let Some((program, _leftover)) = compile("surroundings.c", "uses-unknown", &[]) else {
        return;
    };
    let output = run(&program, &["c11"], "magic", Path::new(""));
    assert!(output.status.success(), "{}", output.status);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("LATCHWORK_MUTEX is \"magic\""), "{errors}");
}

/// The bodies of the library's own tests, as far as they can be written in C.
#[test]
fn mutexes_and_condition_variables_conform_as_glibcs_do() {
    let Some((program, _leftover)) = compile("conformance.c", "conformance", &[]) else {
        return;
    };
    let plain = Command::new(&program).stdout(Stdio::piped()).spawn();
    let plain = output_of(plain.unwrap());
    assert!(plain.status.success(), "{}", plain.status);
    for mutex in ["tp", "wait-wake", "pi"] {
        let output = run(&program, &[], mutex, Path::new(""));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && output.stdout == plain.stdout,
            "{mutex}: {}: {errors}",
            output.status
        );
    }
}

/// The negative twin of what `conditions.c` asks of cancelled waits.
#[test]
fn a_wait_with_wrong_cancellation_is_detected() {
    let Some((program, _leftover)) = compile("conditions.c", "uses-wrong", &[]) else {
        return;
    };
    let shared = ["-shared", "-fPIC"];
    let Some((wrong, _wrong)) = compile("wrong.c", "wrong.so", &shared) else {
        return;
    };
    let status = |case: &str, fault: &str| {
        let mut command = Command::new(&program);
        command.arg(case).env("LD_PRELOAD", &wrong);
        command.env("FAULT", fault).stderr(Stdio::null());
        if fault == "2" {
            // Somebody waits for ever.
            command.env("USES_PATIENCE", "3");
        }
        output_of(command.spawn().unwrap()).status
    };
    for (case, fault) in [("cancel", "1"), ("passed_on", "2")] {
        assert!(status(case, "0").success(), "{case} finds a fault in none");
        assert!(!status(case, fault).success(), "{case} misses a fault");
    }
}

/// The loader holds its lock while it runs constructors and destructors, which start and join threads.
#[test]
fn threads_begin_lock_and_end_while_a_library_is_being_loaded() {
    let shared = ["-shared", "-fPIC"];
    let Some((library, _library)) = compile("loading_library.c", "loading.so", &shared) else {
        return;
    };
    let Some((program, _leftover)) = compile("loading.c", "loading", &[]) else {
        return;
    };
    for mutex in ["tp", "wait-wake", "pi", "glibc"] {
        for case in ["joined", "meanwhile"] {
            let output = run(&program, &[case], mutex, &library);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{mutex}, {case}: {}: {errors}",
                output.status
            );
        }
    }
}
