//! The machine code for aarch64: with the atomic instructions of Armv8.1 (LSE), with exclusive loads and stores, and as
//! the compiler makes it without options, with calls that choose between the two when they run.
//!
//! On another processor these tests need the library built for aarch64 beside their own, which
//! `ci/kernels/build-aarch64.sh` does.

use super::{PAIRS, REGION_PAIRS, checker_stays_out, straight};
use crate::compiler_support::{has_rustc, rustc, rustc_for};

/// How the compiler makes atomic operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Atomics {
    Lse,
    Exclusive,
    Outline,
}

use Atomics::{Exclusive, Lse, Outline};

fn assembly(atomics: Atomics) -> Option<String> {
    if !has_rustc() {
        println!("skipped: rustc is not installed");
        return None;
    }
    let compiler = if cfg!(target_arch = "aarch64") {
        rustc()
    } else {
        rustc_for("aarch64-unknown-linux-gnu")?
    };
    let options = match atomics {
        Lse => "-Ctarget-feature=+lse",
        Exclusive => "-Ctarget-feature=-outline-atomics",
        Outline => "-Ctarget-cpu=generic",
    };
    Some(super::assembly(compiler, &[options]))
}

fn name(instruction: &str) -> &str {
    instruction.split_whitespace().next().unwrap_or_default()
}

/// Whether a read-modify-write begins at this instruction.
fn is_atomic(instruction: &str) -> bool {
    let name = name(instruction);
    ["cas", "swp", "ldadd", "ldset", "ldclr", "ldeor"]
        .iter()
        .any(|start| name.starts_with(start))
        || name.starts_with("ldxr")
        || name.starts_with("ldaxr")
        || instruction.contains("__aarch64_")
}

/// Whether a read-modify-write is acquiring, or releasing.
fn has_order(path: &[&str], at: usize, acquire: bool) -> bool {
    let instruction = path[at];
    if let Some((_, helper)) = instruction.split_once("__aarch64_") {
        return helper.ends_with(if acquire { "_acq" } else { "_rel" })
            || helper.ends_with("_acq_rel");
    }
    let name_here = name(instruction);
    if name_here.starts_with("ldxr") || name_here.starts_with("ldaxr") {
        let store = path[at..].iter().map(|line| name(line));
        let store = store
            .filter(|name| name.starts_with("st"))
            .find(|name| name.starts_with("stxr") || name.starts_with("stlxr"));
        return if acquire {
            name_here.starts_with("lda")
        } else {
            store.is_some_and(|store| store.starts_with("stl"))
        };
    }
    // casa, casl, casal; also swpa, ldaddl, …
    let order = ["cas", "swp", "ldadd", "ldset", "ldclr", "ldeor"]
        .iter()
        .find_map(|start| name_here.strip_prefix(start));
    order.is_some_and(|order| order.contains(if acquire { 'a' } else { 'l' }))
}

/// A function's own work: registers that it saves and moves, which code that a lock is inlined into does once for all.
fn is_frame(instruction: &str) -> bool {
    instruction.starts_with("ret")
        || instruction.contains("sp")
        || instruction.starts_with("mov\tx19, x0")
}

fn calls(path: &[&str]) -> Vec<String> {
    let is_call =
        |line: &&&str| matches!(name(line), "bl" | "blr" | "br") && !line.contains("__aarch64_");
    path.iter()
        .filter(is_call)
        .map(|line| (*line).into())
        .collect()
}

/// Of a function that adds 1 to its data: the instructions before that, and those behind.
fn halves<'a, 'b>(path: &'b [&'a str]) -> (&'b [&'a str], &'b [&'a str]) {
    let add = path.iter().position(|line| {
        line.starts_with("add\tx") && line.ends_with(", #1") && !line.contains("sp")
    });
    let add = add.expect("the data is changed");
    let is_load = |line: &&str| line.starts_with("ldr\tx");
    let load = path[..add].iter().rposition(is_load);
    let store = path[add..]
        .iter()
        .position(|line| line.starts_with("str\tx"));
    (
        &path[..load.expect("the data is loaded")],
        &path[add + store.expect("the data is stored") + 1..],
    )
}

/// The places of a path's read-modify-writes.
fn atomics_of(path: &[&str]) -> Vec<usize> {
    (0..path.len()).filter(|at| is_atomic(path[*at])).collect()
}

#[test]
fn a_free_pair_on_aarch64_acquires_and_releases_with_one_instruction_each_and_few_others() {
    let Some(assembly) = assembly(Lse) else {
        return;
    };
    for function in PAIRS {
        let path = straight(&assembly, function);
        let listing = format!("{function}:\n{}", path.join("\n"));
        assert_eq!(atomics_of(&path).len(), 2, "{listing}");
        assert!(calls(&path).is_empty(), "{listing}");
        let (before, behind) = halves(&path);
        let own = |lines: &[&str]| lines.iter().filter(|line| !is_frame(line)).count();
        let (locking, unlocking) = (own(before), own(behind));
        println!("{listing}\n{locking} to lock, {unlocking} to unlock\n");
        assert!(locking <= 10 && unlocking <= 9, "{listing}");
    }
}

#[test]
fn a_free_pair_on_aarch64_has_the_orderings_of_a_lock_however_atomics_are_made() {
    for how in [Lse, Exclusive, Outline] {
        let Some(assembly) = assembly(how) else {
            return;
        };
        for function in [&PAIRS[..], &REGION_PAIRS].concat() {
            let path = straight(&assembly, function);
            let listing = format!("{how:?}, {function}:\n{}", path.join("\n"));
            let atomics = atomics_of(&path);
            let [lock, unlock] = atomics[..] else {
                panic!("not two atomic operations: {listing}")
            };
            assert!(has_order(&path, lock, true), "{listing}");
            assert!(has_order(&path, unlock, false), "{listing}");
            // No call before the unlock; in a region lock's, what follows belongs to the error.
            assert!(calls(&path[..unlock]).is_empty(), "{listing}");
            let outline = path.iter().any(|line| line.contains("__aarch64_"));
            assert_eq!(outline, how == Outline, "{listing}");
        }
    }
}

#[test]
fn a_lock_on_aarch64_that_is_not_checked_has_no_instruction_of_the_checker() {
    if let Some(assembly) = assembly(Outline) {
        checker_stays_out(&assembly);
    }
}
