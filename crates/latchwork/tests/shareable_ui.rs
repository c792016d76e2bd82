//! What may, and what must not, be placed in a region, or be used without a pin: the programs of `tests/ui`. The first line of one that must not
//! compile is the error that it must have.

mod compiler_support;

use compiler_support::rustc;
use latchwork_testkit::{Leftover, output_of};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs with such names.
fn programs(is_it: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let files = folder.read_dir().unwrap().map(|file| file.unwrap().path());
    let is_it = |file: &PathBuf| is_it(file.file_stem().unwrap().to_str().unwrap());
    files.filter(is_it).collect()
}

#[test]
fn only_what_means_the_same_everywhere_can_be_placed_in_a_region() {
    let folder = Leftover::folder("ui");
    let programs = programs(|name| name.starts_with("not_"));
    assert!(programs.len() >= 45, "{programs:?}");
    for program in programs {
        let source = std::fs::read_to_string(&program).unwrap();
        let expected = source.lines().next().unwrap().trim_start_matches("// ");
        assert!(expected.starts_with("error"), "{}", program.display());
        let mut command = rustc();
        command.args(["--emit=metadata", "--error-format=short", "-o"]);
        let output = command
            .arg(folder.path().join("metadata"))
            .arg(&program)
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let place = program.display().to_string();
        let errors: Vec<_> = text.lines().filter(|line| line.contains(&place)).collect();
        let is_expected = matches!(*errors, [error] if error.contains(expected));
        assert!(!output.status.success() && is_expected, "{place}: {text}");
    }
}

/// What the compiler says of a program, in full.
fn said_of(program: &str) -> String {
    let folder = Leftover::folder("ui");
    let file = programs(|name| name == program).pop().unwrap();
    let mut command = rustc();
    command.args(["--emit=metadata", "-o"]);
    let output = command
        .arg(folder.path().join("metadata"))
        .arg(file)
        .output();
    String::from_utf8_lossy(&output.unwrap().stderr).into_owned()
}

#[test]
fn who_locks_a_robust_lock_without_a_pin_is_told_how_to_pin_it() {
    for program in ["not_locked_without_a_pin", "not_read_without_a_pin"] {
        let said = said_of(program);
        for advice in [
            "#[derive(PinnedFields)]",
            "#[pin]",
            "value.field().lock()",
            "Pin::static_ref(&LOCK)",
            "std::pin::pin!(lock)",
            "latchwork::region::each_pinned",
        ] {
            assert!(said.contains(advice), "{program}: {advice}: {said}");
        }
        assert!(!said.contains("RawLock"), "{program}: {said}");
    }
}

#[test]
fn plain_data_and_containers_can_be_placed_in_a_region() {
    let folder = Leftover::folder("ui");
    let programs = programs(|name| name.ends_with("_can"));
    assert!(programs.len() >= 4, "{programs:?}");
    for program in programs {
        let executable = folder.path().join("program");
        let mut command = rustc();
        let output = command.arg("-o").arg(&executable).arg(&program).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {text}", program.display());
        let mut command = Command::new(executable);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output_of(command.spawn().unwrap());
        assert!(output.status.success(), "{}: {output:?}", program.display());
    }
}
