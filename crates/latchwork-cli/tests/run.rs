//! `latchwork run`: what it says of programs that it cannot do anything with, and that others are theirs.

mod common;

use common::{command, unique};
use latchwork_testkit::{Leftover, output_of, write_program};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    output_of(command().arg("run").args(args).spawn().unwrap())
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_status_and_the_output_are_the_programs_own() {
    for kind in [
        "--mutex=tp",
        "--mutex=wait-wake",
        "--mutex=pi",
        "--mutex=glibc",
        "--heal",
        "--heal=end",
        "--check",
    ] {
        let output = run(&[kind, "--", "sh", "-c", "echo out; exit 7"]);
        assert_eq!(output.status.code(), Some(7), "{kind}: {}", errors(&output));
        assert_eq!(output.stdout, b"out\n", "{kind}");
    }
}

/// Both libraries would keep data in the same bytes of a mutex.
#[test]
fn a_run_within_a_run_replaces_it() {
    let own = command();
    let own = own.get_program().to_str().unwrap();
    let show = "echo \"$LD_PRELOAD,$LATCHWORK_MUTEX,$LATCHWORK_CHECK\"";
    for (outer, inner, kept) in [
        ("--mutex=pi", "--check", "_check.so,,on"),
        ("--check", "--mutex=pi", "_preload.so,pi,"),
        ("--mutex=tp", "--mutex=pi", "_preload.so,pi,"),
    ] {
        let inner = [own, "run", inner, "--quiet", "--", "sh", "-c", show];
        let output = run(&[&[outer, "--quiet", "--"], &inner[..]].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_one = said.matches("liblatchwork").count() == 1;
        assert!(is_one && said.trim_end().ends_with(kept), "{said}");
    }
}

#[test]
fn the_summary_at_the_end_can_be_switched_off() {
    // It leaves by the front door, with standard error open.
    let output = run(&["--mutex=tp", "--", "getconf", "PAGESIZE"]);
    assert!(
        errors(&output).contains("replaced by throughput locks"),
        "{}",
        errors(&output)
    );
    for options in [["--heal", "--mutex=tp"], ["--heal=end", "--mutex=glibc"]] {
        let output = run(&[&options[..], &["--", "getconf", "PAGESIZE"]].concat());
        assert!(
            errors(&output).contains("0 robust process-shared mutexes healed, 0 waits reported"),
            "{}",
            errors(&output)
        );
    }
    let output = run(&["--heal", "--check", "--", "getconf", "PAGESIZE"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let output = run(&["--check", "--json", "--", "getconf", "PAGESIZE"]);
    let summary: serde_json::Value = serde_json::from_str(&errors(&output)).unwrap();
    assert_eq!(summary["findings"], 0);
    let output = run(&["--mutex=tp", "--quiet", "--", "getconf", "PAGESIZE"]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_rule_can_be_excluded_and_a_potential_deadlock_is_a_finding() {
    let source = "../latchwork-preload-check/tests/programs/orders.c";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let Some((program, _leftover)) = latchwork_testkit::compile(&source, "suspected", &[]) else {
        return;
    };
    let program = program.to_str().unwrap();
    let check = |options: &[&str]| {
        let program = ["--", program, "statics"];
        run(&[&["--check", "--quiet"], options, &program].concat())
    };
    let found = check(&[]);
    let told = errors(&found);
    assert!(told.contains("ONE TASK SO FAR [one-task-order]"), "{told}");
    assert!(
        told.contains(
            "(a deadlock is suspected: it is possible if a second task takes these locks, too)"
        ),
        "{told}"
    );
    assert!(found.status.success(), "{}", found.status);
    let left_out = check(&["--without=one-task-order"]);
    let told = errors(&left_out);
    assert!(left_out.status.success() && told.is_empty(), "{told}");
    let fatal = check(&["--fatal"]);
    assert_eq!(fatal.status.signal(), Some(libc::SIGABRT));
    let unknown = check(&["--without=no-such-rule"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(errors(&unknown).contains("one-order, one-task-order"));
}

#[test]
fn a_program_that_cannot_be_run_is_named_with_the_reason() {
    let unknown = unique("program");
    let output = run(&["--mutex=tp", "--", &unknown]);
    assert_eq!(output.status.code(), Some(127));
    assert!(
        errors(&output).contains("there is no program"),
        "{}",
        errors(&output)
    );
    let output = run(&["--check", "--", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(
        errors(&output).contains("may not be executed"),
        "{}",
        errors(&output)
    );
    let output = run(&["true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        errors(&output).contains("--check, --heal and --mutex=KIND"),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_static_program_is_refused() {
    let Ok(true) = std::fs::exists("/sbin/ldconfig") else {
        eprintln!("skipped: /sbin/ldconfig is not there");
        return;
    };
    let output = run(&["--check", "--", "/sbin/ldconfig", "--version"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(
        errors(&output).contains("linked statically"),
        "{}",
        errors(&output)
    );
}

/// This test program, with the name of musl's dynamic linker in place of glibc's.
#[test]
fn a_program_for_musl_is_refused_before_it_starts() {
    let mut program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let name = b"/lib/ld-musl-x86_64.so.1\0";
    let names: &[&[u8]] = &[
        b"/lib64/ld-linux-x86-64.so.2\0",
        b"/lib/ld-linux-aarch64.so.1\0",
    ];
    let place = names.iter().find_map(|name| {
        let mut parts = program[..4096].windows(name.len());
        parts.position(|part| part == *name)
    });
    let Some(place) = place else {
        eprintln!("skipped: this program has another dynamic linker");
        return;
    };
    program[place..place + name.len()].copy_from_slice(name);
    let folder = Leftover::folder("musl");
    let path = folder.path().join("program");
    write_program(&path, &program);
    for option in ["--check", "--heal", "--mutex=tp"] {
        let output = run(&[option, "--", path.to_str().unwrap()]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(126), "{option}: {said}");
        assert!(said.contains("built for musl"), "{option}: {said}");
        assert!(
            said.contains("\"/lib/ld-musl-x86_64.so.1\""),
            "{option}: {said}"
        );
    }
}

/// Whether the C compiler has the library that programs load: it then prints a path instead of the name.
fn has_address_sanitizer() -> bool {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .arg("-print-file-name=libasan.so")
        .output();
    output.is_ok_and(|output| output.stdout.contains(&b'/'))
}

/// AddressSanitizer refuses to start behind another library.
#[test]
fn a_program_with_address_sanitizer_starts() {
    let source = "../latchwork-preload-check/tests/programs/orders.c";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    if !has_address_sanitizer() {
        eprintln!("skipped: the C compiler has no shared library of AddressSanitizer");
        return;
    }
    let options = ["-fsanitize=address"];
    let Some((program, _leftover)) = latchwork_testkit::compile(&source, "sanitized", &options)
    else {
        return;
    };
    let program = program.to_str().unwrap();
    let list = Command::new(program).output().unwrap();
    assert!(list.status.success(), "{}", errors(&list));
    for option in ["--check", "--heal", "--mutex=tp"] {
        let output = run(&[option, "--", program, "statics"]);
        let said = errors(&output);
        assert!(output.status.success(), "{option}: {said}");
        if option == "--check" {
            assert!(said.contains("[one-task-order]"), "{said}");
        }
    }
}

/// Those that are installed here, as they are, with throughput locks, and under the checker: each run ends as it
/// should, and the checker finds nothing that is not there.
#[test]
fn real_programs_end_as_they_should() {
    let folder = Leftover::folder("programs");
    let file = folder.path().join("json");
    let mut bench = command();
    bench.args(["bench", "check-overhead", "--quick", "--rounds", "1"]);
    bench.args(["--only", "program --mutex=tp", "--only", "program --check"]);
    // It ends each program that does not end by itself.
    let output = bench.arg("--json").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = std::fs::read_to_string(&file).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    for warning in result["warnings"].as_array().unwrap() {
        let text = warning.to_string();
        assert!(!text.contains("failed"), "{text}");
        if text.contains("is not installed") {
            eprintln!("{text}");
        }
    }
    for row in result["rows"].as_array().unwrap() {
        // (stress-ng's mutexes are waited for by threads of high priority, and held by others of low.)
        if row["contestant"] == "program --check" && row["params"]["case"] != "stress-mutex" {
            assert_eq!(row["extra"]["findings"], 0.0, "{row}");
        }
    }
}
