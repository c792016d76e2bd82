//! C programs that use everything, with each lock inside of their mutexes.

use latchwork_testkit::{Leftover, output_of};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The interposer that Cargo has built for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("liblatchwork_preload.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

/// Compiles a program of this directory; `None`, and a line, where there is no C compiler.
fn compile(source: &str, name: &str, options: &[&str]) -> Option<(PathBuf, Leftover)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(source);
    let program = std::env::temp_dir().join(format!("latchwork-{}-{name}", std::process::id()));
    let leftover = Leftover::new(program.clone());
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(&compiler)
        .args(["-O1", "-pthread", "-o"])
        .args([program.as_os_str(), source.as_os_str()])
        .args(options)
        .status();
    match built {
        Ok(status) => {
            assert!(status.success(), "{}", source.display());
            Some((program, leftover))
        }
        Err(error) => {
            eprintln!("skipped: no C compiler ({}): {error}", compiler.display());
            None
        }
    }
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

fn all_is_as_with_glibc(mutex: &str) {
    let Some((program, _leftover)) = compile("uses.c", &format!("uses-{mutex}"), &[]) else {
        return;
    };
    let shared = ["-shared", "-fPIC"];
    let Some((late, _late)) = compile("late.c", &format!("late-{mutex}.so"), &shared) else {
        return;
    };
    let output = run(&program, &[], mutex, &late);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{mutex}: {}: {errors}",
        output.status
    );
    assert!(errors.is_empty(), "{mutex}: {errors}");
}

#[test]
fn a_program_goes_on_as_it_would_with_throughput_locks() {
    all_is_as_with_glibc("tp");
}

#[test]
fn a_program_goes_on_as_it_would_with_wait_wake_locks() {
    all_is_as_with_glibc("wait-wake");
}

#[test]
fn a_program_goes_on_as_it_would_with_inheriting_locks() {
    all_is_as_with_glibc("pi");
}

#[test]
fn a_program_goes_on_as_it_would_where_nothing_is_replaced() {
    all_is_as_with_glibc("glibc");
}

#[test]
fn an_unknown_lock_is_said_and_replaces_nothing() {
    let Some((program, _leftover)) = compile("uses.c", "uses-unknown", &[]) else {
        return;
    };
    let output = run(&program, &["c11"], "magic", Path::new(""));
    assert!(output.status.success(), "{}", output.status);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("LATCHWORK_MUTEX is \"magic\""), "{errors}");
}
