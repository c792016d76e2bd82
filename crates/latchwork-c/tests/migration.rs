//! The migration from semaphores to mutexes by `migrate.h`: each step compiles, and the last one leaves plain names.

mod support;

use latchwork as _;
use latchwork_c as _;
use std::path::PathBuf;
use std::process::Command;
use support::{How, by, check, compile, compiler, repository, run, scratch, source};

const GCC: How = by("gcc", &["-std=c11"]);
const CLANG: How = by("clang", &["-std=c17", "-O2"]);
const GPP: How = by("g++", &["-std=c++17"]);
const CLANGPP: How = by("clang++", &["-std=c++20", "-O2"]);
const MIGRATED: &str = "-DLATCHWORK_MIGRATED";
const CHECKED: &str = "-DLATCHWORK_DEBUG_MUTEXES";
const FULL: &str = "-DLATCHWORK_DEBUG_MUTEX_FULL";

fn step(number: usize) -> PathBuf {
    const STEPS: [&str; 5] = ["semaphores", "debug", "mutex", "sorted", "plain"];
    let name = format!(
        "examples/migrate/test-mutex-{number}-{}.c",
        STEPS[number - 1]
    );
    repository().join(name)
}

/// What the compiler says of a file, or nothing if it takes it.
fn said(how: How, file: &PathBuf, options: &[&str]) -> Option<String> {
    let mut command = compiler(how);
    command.args(options).arg("-fsyntax-only").arg(file);
    let output = command.output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn each_step_compiles_with_each_option_that_fits_it() {
    for how in [GCC, CLANG].into_iter().filter(How::is_there) {
        for (number, options) in [
            (1, [&[][..], &[CHECKED], &[FULL, CHECKED]]),
            (2, [&[], &[CHECKED], &[FULL]]),
            (3, [&[], &[CHECKED], &[FULL]]),
            (4, [&[], &[CHECKED], &[FULL]]),
            (5, [&[], &[CHECKED], &[MIGRATED]]),
        ] {
            for options in options {
                let said = said(how, &step(number), options);
                assert_eq!(said, None, "step {number} with {options:?}");
            }
        }
    }
}

#[test]
fn the_last_step_changes_names_only() {
    let text = |number| std::fs::read_to_string(step(number)).unwrap();
    let renamed = text(4).replace("arch_", "");
    let (sorted, plain) = (renamed.lines(), text(5));
    // What the last step adds before the include.
    let mut plain = plain
        .lines()
        .filter(|line| !line.contains("LATCHWORK_MIGRATED") && *line != "#endif");
    for line in sorted {
        let other = plain.next();
        if !line.starts_with("/* Step") {
            assert_eq!(other, Some(line));
        }
    }
    assert_eq!(plain.next(), None);
}

#[test]
fn after_the_migration_semaphores_count_and_mutexes_exclude() {
    let gnu = "-D_GNU_SOURCE";
    check("migrated.c", &[GCC, CLANG.statically()], &[gnu], "plain");
    check("migrated.c", &[GCC, CLANG], &[gnu, CHECKED], "plain");
    check("migrated.c", &[GPP, CLANGPP], &[], "plain");
    check("migrated.c", &[GPP], &[CHECKED], "plain");
}

#[test]
fn a_mutex_is_used_for_the_first_time_in_a_child_although_another_thread_was_at_that() {
    let hows = [GCC, GPP];
    check("debug_forks.c", &hows, &["-D_GNU_SOURCE"], "forked");
}

#[test]
fn types_rules_and_reports_are_as_the_manual_says() {
    for program in ["said_migrate.c", "said_reports.c"] {
        check(program, &[GCC, CLANG], &["-D_GNU_SOURCE"], "said");
        check(program, &[GPP, CLANGPP], &[], "said");
    }
}

/// What the migration has left behind is refused, by what it was called or is to be called.
#[test]
fn what_served_the_migration_is_gone_after_it() {
    let of = "void f(struct arch_semaphore *a, struct mutex_debug *d, struct semaphore *s, struct mutex *m)";
    let head = format!(
        "#include \"migrate.h\"\nstruct arch_semaphore;\n{of};\n{of} {{ (void)a; (void)d; (void)s; (void)m; "
    );
    // The call, what is said of it in C, and in C++.
    let cases = [
        ("down(a)", "it is called struct semaphore again", "down()"),
        ("up(a)", "it is called struct semaphore again", "up()"),
        ("(void)sema_count(a)", "called struct semaphore again", "a"),
        ("mutex_lock(d)", "make it a struct mutex", "mutex_lock()"),
        (
            "mutex_unlock(d)",
            "make it a struct mutex",
            "mutex_unlock()",
        ),
        ("down(d)", "make it a struct mutex", "down()"),
        (
            "(void)mutex_trylock(s)",
            "takes a struct mutex",
            "a struct mutex",
        ),
        ("down(m)", "use mutex_lock() and mutex_unlock()", "down()"),
        (
            "arch_down(a)",
            "arch_down() is called down() again",
            "arch_down",
        ),
        (
            "(void)arch_sema_count(a)",
            "is called sema_count() again",
            "arch_sema_count",
        ),
    ];
    for how in [GCC, CLANG, GPP, CLANGPP] {
        if !how.is_there() {
            continue;
        }
        let file = scratch().join(format!("gone-{}.c", how.compiler));
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write(&format!("{head} }}\n"));
        assert_eq!(said(how, &file, &[MIGRATED]), None);
        for (call, in_c, in_cpp) in cases {
            write(&format!("{head} {call}; }}\n"));
            let said = said(how, &file, &[MIGRATED]).expect(call);
            let expected = if how.is_cpp() { in_cpp } else { in_c };
            assert!(said.contains(expected), "{}, {call}: {said}", how.compiler);
        }
        for definition in [
            "struct arch_semaphore a",
            "DECLARE_ARCH_MUTEX(a)",
            "DEFINE_MUTEX_DEBUG(d)",
        ] {
            write(&format!("#include \"migrate.h\"\n{definition};\n"));
            assert!(said(how, &file, &[MIGRATED]).is_some(), "{definition}");
        }
        write("#include \"migrate.h\"\n");
        let refused = said(how, &file, &[MIGRATED, FULL]).expect("both options");
        assert!(refused.contains("each struct semaphore counts"));
    }
}

/// The sizes that `docs/results.md` gives beside those of 2005.
#[test]
fn the_sizes_are_those_of_the_results_page() {
    if !GCC.is_there() {
        return;
    }
    let program = compile(&source("migrated.c"), GCC, &["-D_GNU_SOURCE"]);
    let mut command = Command::new(program);
    command.arg("sizes");
    let page = std::fs::read_to_string(repository().join("docs/results/generic-mutex.md")).unwrap();
    let sizes = run(command);
    assert_eq!(sizes.lines().count(), 4);
    for line in sizes.lines() {
        let (name, size) = line.split_once(' ').unwrap();
        let (row, column) = match name {
            "semaphore" => ("`migrate.h`", 0),
            "mutex" => ("`migrate.h`", 1),
            "mutex_debug" => ("`migrate.h`", 2),
            "lw_tp_mutex_t" => ("POSIX semaphore, throughput", 1),
            other => panic!("no row for {other}"),
        };
        // The first table with such a row is that of the sizes. A cell has the size, and its factor.
        let row = format!("|  | **here**: {row} | ");
        let cells = page
            .lines()
            .find_map(|line| line.strip_prefix(&row))
            .unwrap();
        let cell = cells.split(" | ").nth(column).unwrap();
        let shown = cell.split([',', ' ']).next().unwrap();
        assert_eq!(shown, size, "{name}");
    }
}
