//! The machine code of a free lock's pair: one atomic read-modify-write each way, no call, and few
//! instructions. It is that of an optimised user of the library, whatever this test was compiled with.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

#[path = "fast_path/aarch64.rs"]
mod aarch64;
mod compiler_support;
#[cfg(target_arch = "x86_64")]
#[path = "fast_path/x86_64.rs"]
mod x86_64;

use latchwork_testkit::Leftover;
use std::process::Command;

/// Pairs of few instructions.
const PAIRS: [&str; 4] = [
    "pair_wait_wake",
    "pair_throughput",
    "pair_inherit",
    "pair_inherit_plain",
];

/// Pairs that read the thread's record, count the lock there, and make a guard in a `Result`.
const REGION_PAIRS: [&str; 2] = ["pair_in_region", "pair_in_region_throughput"];

/// Other pairs that are not checked.
const LONGER_PAIRS: [&str; 4] = ["pair_robust", "pair_write", "pair_read", "pair_semaphore"];

/// The assembly of `tests/fast_path/pairs.rs`.
fn assembly(mut rustc: Command, options: &[&str]) -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fast_path/pairs.rs");
    // Two compilers would use the same names of files in one folder.
    let folder = Leftover::folder("fast_path");
    let output = rustc
        .current_dir(folder.path())
        .args(["--crate-type=lib", "--crate-name=pairs"])
        .args(["-Copt-level=3", "-Ccodegen-units=1"])
        .args(options)
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
        |line: &&str| line.starts_with('\t') && !line.trim_start().starts_with(['.', '#', '/']);
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

/// All of a function, what is not likely included.
fn whole<'a>(assembly: &'a str, function: &str) -> Vec<&'a str> {
    let (label, end) = (format!("{function}:"), format!(".size\t{function},"));
    let lines = assembly.lines().skip_while(|line| *line != label);
    let body = lines.take_while(|line| !line.trim_start().starts_with(&end));
    body.collect()
}

fn checker_stays_out(assembly: &str) {
    // Of the modules `check` and `hook`, in either way to spell a path in a symbol.
    let is_checkers = |line: &&&str| line.contains("5check") || line.contains("4hook");
    for function in [&PAIRS[..], &REGION_PAIRS, &LONGER_PAIRS].concat() {
        let body = whole(assembly, function);
        assert!(body.len() > 4, "{function} is not there");
        let found: Vec<_> = body.iter().filter(is_checkers).collect();
        assert!(found.is_empty(), "{function}: {found:?}");
    }
    // One that is checked shows that the search finds something.
    let body = whole(assembly, "pair_checked");
    assert!(body.iter().any(|line| is_checkers(&line)), "{body:?}");
}
