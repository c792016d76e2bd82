//! The machine code of the inline functions, and the symbols of the shared library.

use super::support::{MUSL, by, compiler, has, installed, run, source};
use std::process::Command;

/// The instructions of a function up to its first return: those of a free lock, for what is not likely stands
/// behind.
fn straight(assembly: &str, function: &str) -> Vec<String> {
    let label = format!("{function}:");
    let lines = assembly
        .lines()
        .skip_while(|line| !line.starts_with(&label));
    let mut instructions = Vec::new();
    for line in lines.skip(1).map(str::trim) {
        let is_label = line
            .split_whitespace()
            .next()
            .is_none_or(|word| word.ends_with(':'));
        // "lock" may stand on a line of its own, before its instruction.
        if is_label || line.starts_with(['.', '#']) || line == "lock" {
            continue;
        }
        instructions.push(line.to_owned());
        if line.starts_with("ret") {
            return instructions;
        }
    }
    panic!("{function} does not return")
}

/// Whether a function is nothing but a call of one of the library.
#[cfg(target_arch = "x86_64")]
fn is_a_call(assembly: &str, function: &str) -> bool {
    let label = format!("{function}:");
    let lines = assembly
        .lines()
        .skip_while(|line| !line.starts_with(&label));
    let end = format!(".size\t{function},");
    let body: Vec<_> = lines.take_while(|line| !line.contains(&end)).collect();
    let is_atomic = |line: &&str| line.contains("lock") && line.contains("cmpxchg");
    assert!(!body.is_empty(), "{function} is missing");
    body.iter().any(|line| line.contains("jmp\tlw__")) && !body.iter().any(is_atomic)
}

/// The machine code of `fast.c` by each compiler that is there.
#[cfg(target_arch = "x86_64")]
fn assemblies() -> impl Iterator<Item = String> {
    let hows = ["gcc", "clang"].map(|name| by(name, &["-std=c11", "-O2"]));
    hows.into_iter().filter(|how| how.is_there()).map(|how| {
        let mut command = compiler(how);
        command.args(["-S", "-o", "-"]).arg(source("fast.c"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    })
}

#[cfg(target_arch = "x86_64")]
fn calls(instruction: impl AsRef<str>) -> bool {
    instruction.as_ref().starts_with("call")
}

/// How many atomic instructions there are on x86-64.
#[cfg(target_arch = "x86_64")]
fn atomics(path: &[String]) -> usize {
    let is_atomic = |line: &&String| {
        line.contains("cmpxchg") || line.starts_with("xchg") || line.contains("xadd")
    };
    path.iter().filter(is_atomic).count()
}

/// Each kind's pair, with the most instructions that it may have on x86-64.
const PAIRS: [(&str, usize, usize); 12] = [
    ("lw_mutex", 10, 14),
    ("lw_shared_mutex", 10, 14),
    ("lw_tp_mutex", 14, 14),
    ("lw_pi_mutex", 14, 14),
    ("lw_plain_pi_mutex", 14, 14),
    ("lw_recursive_mutex", 20, 26),
    ("lw_robust_mutex", 36, 36),
    ("lw_robust_tp_mutex", 36, 36),
    ("lw_robust_pi_mutex", 42, 36),
    ("lw_region_mutex", 18, 22),
    ("lw_region_tp_mutex", 18, 22),
    ("lw_spin", 10, 12),
];

#[cfg(target_arch = "x86_64")]
#[test]
fn a_free_pair_is_inlined_with_one_atomic_instruction_each_way_and_no_call() {
    for assembly in assemblies() {
        for (kind, lock, unlock) in PAIRS {
            for (function, most) in [("lock", lock), ("unlock", unlock)] {
                let name = format!("{kind}_pair_{function}");
                let path = straight(&assembly, &name);
                // A spinlock is released by a plain store.
                let expected = usize::from(name != "lw_spin_pair_unlock");
                assert_eq!(atomics(&path), expected, "{name}: {path:#?}");
                assert!(!path.iter().any(calls), "{name}: {path:#?}");
                assert!(path.len() <= most, "{name} has {}: {path:#?}", path.len());
            }
        }
    }
}

/// A traced call, of a lock that is free, takes the same way as the call that is not traced; it also stores what it did.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_traced_call_stores_what_it_did_and_does_no_more_than_the_other() {
    const STORES: usize = 4;
    let mutexes = ["lock", "unlock"];
    let rwlocks = ["rdlock", "wrlock", "unlock"];
    let kinds: [(_, &[&str]); 4] = [
        ("lw_tp_mutex", &mutexes),
        ("lw_robust_tp_mutex", &mutexes),
        ("lw_rwlock", &rwlocks),
        ("lw_rf_rwlock", &rwlocks),
    ];
    for assembly in assemblies() {
        for (kind, functions) in kinds {
            for function in functions {
                let name = format!("{kind}_traced_pair_{function}");
                if (kind, *function) == ("lw_robust_tp_mutex", "unlock") {
                    assert!(is_a_call(&assembly, &name));
                    continue;
                }
                let plain = straight(&assembly, &format!("{kind}_pair_{function}"));
                let traced = straight(&assembly, &name);
                assert_eq!(atomics(&traced), 1, "{kind} {function}: {traced:#?}");
                let mut all = plain.iter().chain(&traced);
                assert!(!all.any(calls), "{plain:#?} {traced:#?}");
                assert!(
                    traced.len() <= plain.len() + STORES,
                    "{kind} {function}: {plain:#?} {traced:#?}"
                );
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_pair_with_a_ceiling_is_two_function_calls() {
    for assembly in assemblies() {
        for kind in ["lw_pp_mutex", "lw_robust_pp_mutex"] {
            for function in ["lock", "unlock"] {
                let name = format!("{kind}_pair_{function}");
                assert!(is_a_call(&assembly, &name), "{name}");
            }
        }
    }
}

/// The kinds' pairs for aarch64, by a cross compiler on other processors: with the atomic instructions of Armv8.1, and
/// with exclusive loads and stores.
#[test]
fn a_free_pair_is_inlined_on_aarch64_with_one_acquiring_and_one_releasing_operation() {
    const LSE: &[&str] = &["-std=c11", "-O2", "-march=armv8.1-a"];
    const EXCLUSIVE: &[&str] = &["-std=c11", "-O2", "-march=armv8-a", "-mno-outline-atomics"];
    let gcc = if cfg!(target_arch = "aarch64") {
        "gcc"
    } else {
        "aarch64-linux-gnu-gcc"
    };
    // What begins an operation that acquires, and one that releases.
    let ways: [(_, &[&str], &[&str]); 2] = [
        (by(gcc, LSE), &["casa"], &["swpl", "casl", "ldaddl"]),
        (by(gcc, EXCLUSIVE), &["ldaxr"], &["stlxr"]),
    ];
    for (how, acquiring, releasing) in ways {
        if !how.is_there() {
            continue;
        }
        let mut command = compiler(how);
        command.args(["-S", "-o", "-"]).arg(source("fast.c"));
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let assembly = String::from_utf8(output.stdout).unwrap();
        for (kind, _, _) in PAIRS {
            for (function, names) in [("lock", acquiring), ("unlock", releasing)] {
                let name = format!("{kind}_pair_{function}");
                let path = straight(&assembly, &name);
                let names = if name == "lw_spin_pair_unlock" {
                    &["stlr"]
                } else {
                    names
                };
                let starts = |line: &String, name: &str| line.split('\t').next() == Some(name);
                let ordered = |line: &&String| names.iter().any(|name| starts(line, name));
                assert_eq!(path.iter().filter(ordered).count(), 1, "{name}: {path:#?}");
                assert!(
                    !path.iter().any(|line| starts(line, "bl")),
                    "{name}: {path:#?}"
                );
                assert!(path.len() <= 40, "{name} has {}: {path:#?}", path.len());
            }
        }
    }
}

/// What the shared library exports, by name.
fn exported() -> Vec<String> {
    let library = installed().join("lib/liblatchwork.so");
    let mut command = Command::new("objdump");
    command.arg("-T").arg(library);
    let listed = run(command);
    let defined = listed.lines().filter(|line| !line.contains("*UND*"));
    let names = defined.filter(|line| line.contains("LATCHWORK_0.1"));
    names
        .filter_map(|line| Some(line.split_whitespace().last()?.to_owned()))
        .collect()
}

#[test]
fn only_inline_functions_are_versioned_symbols() {
    if MUSL {
        println!("skipped: the symbols of the shared library, which musl has none of");
        return;
    }
    if !has("objdump") {
        eprintln!("skipped: objdump is not installed");
        return;
    }
    let exported = exported();
    for name in [
        "lw_mutex_lock",
        "lw_robust_pi_mutex_unlock",
        "lw_region_mutex_clocklock",
        "lw_region_tp_mutex_unlock",
        "lw_shared_sem_post",
        "lw_rf_rwlock_tryrdlock",
        "lw_cond_wait",
        "lw_once",
        "lw_robust_rwlock_unlock_inconsistent",
        "lw_cond_has_waiters",
        "lw_this_task",
        "coproc_create",
        "mutex_debug_lock",
    ] {
        assert!(
            exported.iter().any(|known| known == name),
            "{name} is missing"
        );
    }
    let ours = ["lw_", "coproc_", "mutex_debug_", "rtems_", "LATCHWORK_"];
    for name in &exported {
        assert!(
            ours.iter().any(|start| name.starts_with(start)),
            "{name} is exported"
        );
    }
}
