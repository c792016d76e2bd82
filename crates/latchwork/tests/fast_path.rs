//! The machine code of a free lock's pair: one atomic read-modify-write each way, no call, and few
//! instructions. It is that of an optimised user of the library, whatever this test was compiled with.
#![cfg(target_arch = "x86_64")]

mod compiler_support;

use std::sync::OnceLock;

/// The assembly of `tests/fast_path/pairs.rs`, made once: two at a time would share names of files.
fn assembly() -> &'static str {
    static ASSEMBLY: OnceLock<String> = OnceLock::new();
    ASSEMBLY.get_or_init(compile)
}

fn compile() -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fast_path/pairs.rs");
    let output = compiler_support::rustc()
        .args(["--crate-type=lib", "--crate-name=pairs"])
        .args([
            "-Copt-level=3",
            "-Ccodegen-units=1",
            "-Cllvm-args=-x86-asm-syntax=att",
        ])
        .args(["--emit=asm", "-o", "-"])
        .arg(source)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The instructions of a function from its entry to its first return. These are executed where the lock is free: then
/// no jump is taken, and unlikely code comes after the return.
fn straight<'a>(assembly: &'a str, function: &str) -> Vec<&'a str> {
    let label = format!("{function}:");
    let lines = assembly.lines().skip_while(|line| *line != label).skip(1);
    let is_instruction =
        |line: &&str| line.starts_with('\t') && !line.trim_start().starts_with(['.', '#']);
    let mut instructions = Vec::new();
    for line in lines.filter(is_instruction).map(str::trim) {
        // "lock" is on a line of its own, or before its instruction.
        if line != "lock" {
            instructions.push(line);
        }
        if line.starts_with("ret") {
            return instructions;
        }
    }
    panic!("{function} does not return")
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
    for function in [
        "pair_wait_wake",
        "pair_throughput",
        "pair_inherit",
        "pair_inherit_plain",
    ] {
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

/// It reads the thread's record, counts the lock there, and makes a guard in a `Result`.
#[test]
fn a_free_pair_of_a_region_lock_is_two_atomic_instructions_and_no_call() {
    for function in ["pair_in_region", "pair_in_region_throughput"] {
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

/// All of a function, what is not likely included.
fn whole<'a>(assembly: &'a str, function: &str) -> Vec<&'a str> {
    let (label, end) = (format!("{function}:"), format!(".size\t{function},"));
    let lines = assembly.lines().skip_while(|line| *line != label);
    let body = lines.take_while(|line| !line.trim_start().starts_with(&end));
    body.collect()
}

#[test]
fn a_lock_that_is_not_checked_has_no_instruction_of_the_checker() {
    let assembly = assembly();
    // Of the modules `check` and `hook`, in either way to spell a path in a symbol.
    let is_checkers = |line: &&&str| line.contains("5check") || line.contains("4hook");
    for function in [
        "pair_wait_wake",
        "pair_throughput",
        "pair_inherit",
        "pair_inherit_plain",
        "pair_robust",
        "pair_in_region",
        "pair_in_region_throughput",
        "pair_write",
        "pair_read",
        "pair_semaphore",
    ] {
        let body = whole(assembly, function);
        assert!(body.len() > 4, "{function} is not there");
        let found: Vec<_> = body.iter().filter(is_checkers).collect();
        assert!(found.is_empty(), "{function}: {found:?}");
    }
    // One that is checked shows that the search finds something.
    let body = whole(assembly, "pair_checked");
    assert!(body.iter().any(|line| is_checkers(&line)), "{body:?}");
}
