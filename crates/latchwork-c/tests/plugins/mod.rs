//! Libraries that are loaded late, and use locks while they are.

use crate::GCC_OPTIMISED;
use crate::support::{MUSL, compile, run, source};
use std::process::Command;

/// Constructors, destructors and signal handlers are callers, too: in threads that they start and join, in threads that
/// are older than the library, and while their thread is inside the allocator.
#[test]
fn the_first_use_of_a_lock_neither_waits_nor_leaks() {
    if MUSL {
        println!("skipped: libraries that are loaded late: musl loads no such library");
        return;
    }
    if !GCC_OPTIMISED.is_there() {
        return;
    }
    let plugin = ["-D_GNU_SOURCE", "-DPLUGIN", "-shared", "-fPIC"];
    let plugin = compile(&source("loading.c"), GCC_OPTIMISED, &plugin);
    // The program alone loads nothing of it.
    let program = [
        "-D_GNU_SOURCE",
        "-DOWN_MALLOC",
        "-fno-builtin",
        "-Wno-pedantic",
        "-Wl,--as-needed",
    ];
    let program = compile(&source("loading.c"), GCC_OPTIMISED, &program);
    for case in [
        "joined",
        "many keys",
        "closed",
        "ended",
        "ended without a key",
        "handled",
    ] {
        let mut command = Command::new(&program);
        command.arg(&plugin).arg(case);
        assert_eq!(run(command).trim(), "loaded", "{case}");
    }
}
