//! Two namespaces share a region as two containers do: the example of `docs/containers.md`.

mod support;

use latchwork as _;
use latchwork_c as _;
use std::path::Path;
use std::process::{Command, Output};
use support::{How, by, compile, finish, has, repository, scratch};

const GCC: How = by("gcc", &["-std=c11"]);
/// The script's exit status where namespaces cannot be made.
const SKIPPED: i32 = 77;

/// What the script says and returns with this program; `None` if it cannot be run here.
fn containers(test: &str, program: &Path) -> Option<(String, Output)> {
    if !GCC.is_there() {
        return None;
    }
    let program = compile(program, GCC, &[]);
    let mut script = Command::new(repository().join("examples/regions/containers.sh"));
    let output = finish(script.arg(program));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    eprint!("{text}{}", String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(SKIPPED) {
        println!("skipped: {test}: {text}");
        return None;
    }
    Some((text, output))
}

#[test]
fn a_container_learns_that_another_one_was_killed() {
    let test = "a_container_learns_that_another_one_was_killed";
    let program = repository().join("examples/regions/containers.c");
    let Some((text, output)) = containers(test, &program) else {
        return;
    };
    assert!(output.status.success(), "{}", output.status);
    let expected = [
        "container one: process 1 holds the lock",
        "container one is killed",
        "container two: process 1 waits for the lock",
        "container two: process 1 learns that the owner has died: 1 begun, 0 done",
        "container two: process 1 has repaired the counts and goes on: 1 begun, 1 done",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

/// The commands of the guide, and its manifest, with the container engines that are installed.
#[test]
fn containers_of_an_engine_share_a_region() {
    let test = "containers_of_an_engine_share_a_region";
    if !GCC.is_there() || cfg!(target_env = "musl") {
        println!("skipped: {test}: gcc for glibc is not installed");
        return;
    }
    for engine in ["docker", "podman"] {
        if !has(engine) {
            println!("skipped: {test}: {engine} is not installed");
            continue;
        }
        let file = repository().join("examples/regions/containers.c");
        let program = compile(&file, GCC.statically(), &[]);
        let mut script = Command::new(repository().join("examples/regions/engine.sh"));
        let output = finish(script.arg(engine).arg(program));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.code() == Some(SKIPPED) {
            println!("skipped: {test}: {text}");
            continue;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
        let ways: &[&str] = match engine {
            "podman" => &[
                "the /dev/shm of container one",
                "a directory of the host",
                "a pod",
            ],
            _ => &["the /dev/shm of container one", "a directory of the host"],
        };
        for way in ways {
            if *way == "a pod" && text.contains("cannot run a pod here") {
                println!("skipped: {test}: {text}");
                continue;
            }
            let repaired = format!("{way}: process 1 has repaired the counts and goes on");
            assert!(text.contains(&repaired), "{text}");
        }
    }
}

/// The negative twin: the same program without the option.
#[test]
fn a_container_is_refused_a_region_for_another_namespace() {
    let test = "a_container_is_refused_a_region_for_another_namespace";
    let source = repository().join("examples/regions/containers.c");
    let text = std::fs::read_to_string(source).unwrap();
    let without = text.replace("options.flags = LW_REGION_ANY_PID_NAMESPACE;", "");
    assert_ne!(text, without);
    let program = scratch().join("without.c");
    std::fs::write(&program, without).unwrap();
    let Some((_, output)) = containers(test, &program) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("belongs to PID namespace"), "{errors}");
}
