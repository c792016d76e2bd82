//! Two namespaces share a region as two containers do: the example of `docs/containers.md`.

mod support;

use latchwork as _;
use latchwork_c as _;
use std::process::Command;
use support::{How, by, compile, finish, repository};

const GCC: How = by("gcc", &["-std=c11"]);
/// The script's exit status where namespaces cannot be made.
const SKIPPED: i32 = 77;

#[test]
fn a_container_learns_that_another_one_was_killed() {
    if !GCC.is_there() {
        return;
    }
    let examples = repository().join("examples/regions");
    let program = compile(&examples.join("containers.c"), GCC, &[]);
    let mut script = Command::new(examples.join("containers.sh"));
    let output = finish(script.arg(program));
    let text = String::from_utf8(output.stdout).unwrap();
    eprint!("{text}{}", String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(SKIPPED) {
        println!("SKIPPED: a_container_learns_that_another_one_was_killed: {text}");
        return;
    }
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
