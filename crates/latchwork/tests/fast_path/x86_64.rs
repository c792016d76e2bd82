//! The machine code for x86-64.

use super::{PAIRS, REGION_PAIRS, checker_stays_out, straight};
use crate::compiler_support::rustc;
use std::sync::OnceLock;

/// Made once: two compilers at a time would share names of files.
fn assembly() -> &'static str {
    static ASSEMBLY: OnceLock<String> = OnceLock::new();
    ASSEMBLY.get_or_init(|| super::assembly(rustc(), &["-Cllvm-args=-x86-asm-syntax=att"]))
}

fn is_atomic(instruction: &str) -> bool {
    ["cmpxchg", "xchg", "xadd"]
        .iter()
        .any(|name| instruction.contains(name))
}

/// What a function does to have registers of its own, which code that a lock is inlined into does once
/// for all that it does.
fn is_frame(instruction: &str) -> bool {
    ["push", "pop", "ret", "movq\t%rdi, %r"]
        .iter()
        .any(|start| instruction.starts_with(start))
        || instruction.ends_with(", %rsp")
}

#[test]
fn a_free_pair_is_two_atomic_instructions_and_few_others() {
    let assembly = assembly();
    for function in PAIRS {
        let path = straight(assembly, function);
        let listing = format!("{function}:\n{}", path.join("\n"));
        assert_eq!(
            path.iter().filter(|line| is_atomic(line)).count(),
            2,
            "{listing}"
        );
        assert!(
            !path.iter().any(|line| line.starts_with("call")),
            "{listing}"
        );
        let change = path.iter().position(|line| line.starts_with("incq"));
        let change = change.expect("the data is changed");
        let own = |lines: &[&str]| lines.iter().filter(|line| !is_frame(line)).count();
        let (locking, unlocking) = (own(&path[..change]), own(&path[change + 1..]));
        println!("{listing}\n{locking} to lock, {unlocking} to unlock\n");
        assert!(locking <= 8 && unlocking <= 8, "{listing}");
    }
}

#[test]
fn a_free_pair_of_a_region_lock_is_two_atomic_instructions_and_no_call() {
    for function in REGION_PAIRS {
        let path = straight(assembly(), function);
        // What follows the unlock belongs to the error.
        let unlock = path.iter().rposition(|line| is_atomic(line));
        let path = &path[..=unlock.expect("the lock is released")];
        let listing = path.join("\n");
        let atomics = path.iter().filter(|line| is_atomic(line)).count();
        assert_eq!(atomics, 2, "{listing}");
        let calls = |line: &&str| line.starts_with("call");
        assert!(!path.iter().any(calls), "{listing}");
        let own = path.iter().filter(|line| !is_frame(line)).count();
        println!("{listing}\n{own} in all");
        assert!(own <= 40, "{listing}");
    }
}

#[test]
fn a_lock_that_is_not_checked_has_no_instruction_of_the_checker() {
    checker_stays_out(assembly());
}
