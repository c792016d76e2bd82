//! The interface, by programs in C and C++ with each compiler that is there, against the static and the shared
//! library, as they are installed; and by the bodies that the locks of Rust run.

#[cfg(not(target_env = "musl"))]
mod bodies;
mod inlined;
mod plugins;
mod support;

use latchwork as _;
use latchwork_c as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use support::{
    How, MUSL, by, check, compile, compiler, has, installed, run, scratch, source, walk,
};

const GCC: How = by("gcc", &["-std=c11"]);
const GCC_OPTIMISED: How = by("gcc", &["-std=c17", "-O2"]);
const CLANG: How = by("clang", &["-std=c11"]);
const CLANG_OPTIMISED: How = by("clang", &["-std=c2x", "-O2"]);
const GPP: How = by("g++", &["-std=c++17"]);
const CLANGPP: How = by("clang++", &["-std=c++20", "-O2"]);
const GNU: &[&str] = &["-D_GNU_SOURCE"];

#[test]
fn locks_behave_alike_in_c_and_in_cpp_with_each_compiler() {
    let hows = [
        GCC,
        GCC_OPTIMISED.statically(),
        CLANG_OPTIMISED,
        GPP,
        CLANGPP.statically(),
    ];
    check("conformance.c", &hows, GNU, "conforms");
}

#[test]
fn each_rare_error_of_the_manual_is_returned() {
    let hows = [GCC, CLANG_OPTIMISED.statically(), GPP];
    check("errors.c", &hows, GNU, "refused");
    check("region_errors.c", &hows, GNU, "refused");
}

#[test]
fn a_cancelled_wait_ends_as_pthreads_do_and_loses_nothing() {
    check(
        "cancel.c",
        &[GCC_OPTIMISED, CLANG.statically()],
        GNU,
        "cancelled",
    );
}

/// The negative twins: a cancelled waiter that keeps its notification, and one that keeps a token's wake-up. Another
/// waiter then waits for ever; without these faults none does.
#[test]
fn a_cancelled_wait_that_keeps_a_notification_is_detected() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (wait, include) = (sources.join("wait.c"), format!("-I{}", sources.display()));
    let how = GCC_OPTIMISED.statically();
    if !how.is_there() {
        return;
    }
    let program = |twin: &str| {
        let options = [
            "-D_GNU_SOURCE",
            "-fasynchronous-unwind-tables",
            "-Wno-unused-function",
            twin,
            &include,
            wait.to_str().unwrap(),
        ];
        Command::new(compile(&source("cancel.c"), how, &options))
    };
    for twin in ["-DLATCHWORK_TWIN=1", "-DLATCHWORK_TWIN=2"] {
        // It is killed when it has hung for so many seconds.
        let output = program(twin).arg("5").output().unwrap();
        let status = output.status;
        assert_eq!(status.signal(), Some(libc::SIGALRM), "{twin}: {status}");
    }
    assert_eq!(run(program("-DLATCHWORK_TWIN=3")).trim(), "cancelled");
}

/// In a program of one thread, which is linked statically, too.
#[test]
fn owner_deaths_are_reported_and_forked_children_hold_no_locks() {
    check(
        "robust.c",
        &[GCC_OPTIMISED.statically(), GCC, CLANG_OPTIMISED],
        GNU,
        "survived",
    );
}

#[test]
fn throughput_mutexes_say_how_they_are_taken_and_released() {
    let hows = [GCC, CLANG_OPTIMISED.statically(), GPP];
    check("traced.c", &hows, GNU, "traced");
    check("traced.cpp", &[GPP, CLANGPP], &[], "traced");
}

#[test]
fn reader_writer_locks_say_how_they_are_acquired_and_released() {
    let hows = [GCC, CLANG_OPTIMISED.statically(), GPP];
    check("rwlock_traced.c", &hows, GNU, "traced");
    check("rwlock_traced.cpp", &[GPP, CLANGPP], &[], "traced");
}

#[test]
fn cpp_classes_serve_the_standard_library() {
    check("raii.cpp", &[GPP, CLANGPP], &[], "held");
}

#[test]
fn regions_and_what_is_in_them_survive_deaths_in_c_and_cpp() {
    let hows = [GCC, CLANG_OPTIMISED.statically(), GPP];
    check("regions.c", &hows, GNU, "shared");
    check("regions.cpp", &[GPP, CLANGPP.statically()], &[], "shared");
}

#[test]
fn locks_of_regions_name_tasks_of_their_region() {
    let hows = [GCC, GCC_OPTIMISED.statically(), CLANG_OPTIMISED, GPP];
    for form in ["", "_tp"] {
        let kind = format!("-DLOCK=lw_region{form}_mutex_t");
        let initialiser = form.to_uppercase();
        let initialiser = format!("-DLOCK_INITIALIZER=LW_REGION{initialiser}_MUTEX_INITIALIZER");
        let defines = [GNU, &[&kind, &initialiser]].concat();
        check("region_mutex.c", &hows, &defines, "regional");
    }
    check("region_rwlock.c", &hows, GNU, "regional");
}

#[test]
fn queues_in_c_keep_orders_limits_and_messages_of_the_dead() {
    let hows = [GCC, CLANG_OPTIMISED.statically(), GPP];
    check("messages.c", &hows, GNU, "delivered");
}

#[test]
fn coprocs_have_their_attributes_and_end_as_they_should() {
    check(
        "coproc.c",
        &[GCC, CLANG_OPTIMISED.statically()],
        GNU,
        "joined",
    );
    check("coproc.c", &[GPP], &[], "joined");
}

/// System V adjustments, stacks, deaths of creators, control groups, regions.
#[test]
fn what_coprocs_share_and_are_given_takes_effect() {
    let hows = [GCC, CLANG_OPTIMISED.statically()];
    check("coproc_effects.c", &hows, GNU, "took effect");
    check("coproc_effects.c", &[GPP], &[], "took effect");
}

#[test]
fn semaphores_become_mutexes_type_by_type() {
    check("migrate.c", &[GCC_OPTIMISED, CLANG], GNU, "migrated");
    check("migrate.c", &[GPP, CLANGPP], &[], "migrated");
    let switched = [
        "-D_GNU_SOURCE",
        "-DLATCHWORK_DEBUG_MUTEX_FULL",
        "-DLATCHWORK_DEBUG_MUTEXES",
    ];
    check("migrate.c", &[GCC, CLANG_OPTIMISED], &switched, "migrated");
    check("migrate.c", &[GPP], &switched[1..], "migrated");
}

#[test]
fn directives_return_as_rtems_does_and_tasks_live_as_long_as_they_should() {
    check(
        "classic.c",
        &[GCC, CLANG_OPTIMISED.statically()],
        GNU,
        "directed",
    );
    check("classic.c", &[GPP], &[], "directed");
}

/// Receivers wait and do not run: what was sent or broadcast to them takes no place of the queue.
#[test]
fn only_pending_messages_take_places() {
    check(
        "queues.c",
        &[GCC_OPTIMISED, CLANG.statically()],
        GNU,
        "placed",
    );
    check("queues.c", &[GPP], &[], "placed");
}

#[test]
fn directives_have_the_statuses_of_rtems_and_objects_leave_nothing_behind() {
    check(
        "directives.c",
        &[GCC, CLANG_OPTIMISED.statically()],
        GNU,
        "answered",
    );
    check("directives.c", &[GPP], &[], "answered");
}

#[test]
fn tasks_run_on_the_processors_of_their_scheduler() {
    check(
        "schedulers.c",
        &[GCC, CLANG_OPTIMISED.statically()],
        GNU,
        "partitioned",
    );
    check("schedulers.c", &[GPP], &[], "partitioned");
}

#[test]
fn a_send_takes_the_events_that_it_satisfies_a_task_with() {
    check(
        "events.c",
        &[GCC, CLANG_OPTIMISED.statically()],
        GNU,
        "received",
    );
    check("events.c", &[GPP], &[], "received");
}

#[test]
fn tasks_end_where_they_wait_and_the_kernel_knows_their_priorities() {
    if MUSL {
        println!("skipped: tasks.c: it registers destructors of a thread as glibc does");
        return;
    }
    check(
        "tasks.c",
        &[GCC, CLANG_OPTIMISED.statically()],
        GNU,
        "ended",
    );
    check("tasks.c", &[GPP], &[], "ended");
}

/// The first step of `examples/migrate`, with all its semaphores made mutexes: one of them counts.
#[test]
fn a_semaphore_that_counts_is_reported_where_it_becomes_a_mutex() {
    let file = support::repository().join("examples/migrate/test-mutex-1-semaphores.c");
    for how in [GCC, CLANG].iter().filter(|how| how.is_there()) {
        let program = compile(&file, *how, &["-DLATCHWORK_DEBUG_MUTEX_FULL"]);
        let mut command = Command::new(program);
        command
            .env("LATCHWORK_CHECK", "fatal")
            .args(["V", "2", "1"]);
        let output = command.current_dir(scratch()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        for part in [
            "uses a count other than 0 and 1 to initialise",
            "mutex files",
            "test-mutex-1",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}

#[test]
fn calls_return_correctly_in_edge_cases() {
    let hows = [GCC, CLANG_OPTIMISED.statically()];
    check("corners.c", &hows, GNU, "cornered");
    check("corners.c", &[GPP], &[], "cornered");
    let shadow = ["-Wshadow", "-Wconversion"];
    check("corners.cpp", &[GPP, CLANGPP], &shadow, "cornered");
}

#[test]
fn a_lock_taken_by_one_copy_of_the_library_is_released_by_another() {
    if MUSL {
        println!(
            "skipped: the bodies of Rust's locks over those of C, and a second copy: musl loads no such library"
        );
        return;
    }
    if !GCC_OPTIMISED.is_there() {
        return;
    }
    // A program and its plug-in may each bring one.
    let second = scratch().join("second.so");
    std::fs::copy(installed().join("lib/liblatchwork.so"), &second).unwrap();
    let options = ["-D_GNU_SOURCE", "-Wno-pedantic", "-ldl"];
    let mut program = Command::new(compile(&source("twice.c"), GCC_OPTIMISED, &options));
    program.arg(&second);
    assert_eq!(run(program).trim(), "twice");
}

/// What a compiler says of a few lines that it must refuse.
fn refused(how: How, text: &str) -> String {
    let file = scratch().join(format!("refused-{}.c", how.compiler));
    std::fs::write(&file, text).unwrap();
    let mut command = compiler(how);
    let output = command.arg("-fsyntax-only").arg(&file).output().unwrap();
    assert!(!output.status.success(), "{} takes {text}", how.compiler);
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_call_that_does_not_fit_its_type_is_refused_with_a_reason() {
    let semaphore_reason = "takes a struct mutex, and this is";
    let mutex_reason = "takes a semaphore, and this is";
    let cases = [
        ("DECLARE_MUTEX(sem)", "mutex_lock(&sem)", semaphore_reason),
        ("DECLARE_MUTEX(sem)", "mutex_unlock(&sem)", semaphore_reason),
        (
            "DECLARE_ARCH_MUTEX(sem)",
            "mutex_trylock(&sem)",
            semaphore_reason,
        ),
        ("DEFINE_MUTEX(mutex)", "down(&mutex)", mutex_reason),
        ("DEFINE_MUTEX(mutex)", "up(&mutex)", mutex_reason),
        ("DEFINE_MUTEX(mutex)", "down_trylock(&mutex)", mutex_reason),
        ("int number", "mutex_lock(&number)", "mutex_lock() takes"),
    ];
    for how in [GCC, CLANG, GPP, CLANGPP] {
        if !how.is_there() {
            continue;
        }
        for (define, call, reason) in cases {
            let text =
                format!("#include \"migrate.h\"\n{define};\nvoid f(void) {{ (void){call}; }}\n");
            let said = refused(how, &text);
            assert!(said.contains(reason), "{}: {said}", how.compiler);
        }
        // An arch_ call takes nothing else, and a lock call no semaphore; and what is const is only looked at.
        refused(
            how,
            "#include \"migrate.h\"\nDEFINE_MUTEX(m);\nvoid f(void) { arch_down(&m); }\n",
        );
        refused(
            how,
            "#include \"latchwork.h\"\nLW_DEFINE_SEM(s, 1);\nvoid f(void) { lw_mutex_lock(&s); }\n",
        );
        for call in [
            "mutex_lock(m)",
            "mutex_init(m)",
            "down(s)",
            "sema_init(s, 1)",
        ] {
            refused(
                how,
                &format!(
                    "#include \"migrate.h\"\nvoid f(const struct mutex *, const struct semaphore *);\n\
                     void f(const struct mutex *m, const struct semaphore *s) {{ (void)m; (void)s; {call}; }}\n"
                ),
            );
        }
    }
}

/// No feature macro is needed, and nothing is defined twice.
#[test]
fn the_headers_compile_by_themselves_in_every_standard() {
    let headers = [
        "latchwork.h",
        "migrate.h",
        "latchwork.hpp",
        "coproc.h",
        "coproc.hpp",
        "classic.h",
        "crashtest.h",
        "latchwork/region.h",
        "latchwork/queue.h",
        "latchwork/region.hpp",
    ];
    let c: &[&[&str]] = &[&["-std=c11"], &["-std=gnu11"], &["-std=c17"], &["-std=c2x"]];
    let cpp: &[&[&str]] = &[&["-std=c++17"], &["-std=c++20"]];
    for (compiler_name, standards) in [("gcc", c), ("clang", c), ("g++", cpp), ("clang++", cpp)] {
        for standard in standards {
            let how = by(compiler_name, standard);
            if !how.is_there() {
                break;
            }
            let is_for = |header: &&&str| how.is_cpp() || !header.ends_with(".hpp");
            let mut text = String::new();
            for header in headers.iter().filter(is_for) {
                if installed().join("include").join(header).exists() {
                    text += &format!("#include \"{header}\"\n#include \"{header}\"\n");
                }
            }
            let file = scratch().join(format!("headers-{compiler_name}.c"));
            std::fs::write(&file, text + "typedef int not_empty;\n").unwrap();
            let mut command = compiler(how);
            let output = command
                .args(["-D_GNU_SOURCE", "-U_GNU_SOURCE"])
                .args(["-D_GNU_SOURCE", "-fsyntax-only"])
                .arg(&file)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{compiler_name} {standard:?}: {errors}"
            );
        }
    }
}

/// Clang sees a lock that is not released; sparse sees an imbalance.
#[test]
fn static_analysis_detects_planted_faults() {
    let text = "#include \"latchwork.h\"\n#include \"migrate.h\"\nstatic LW_DEFINE_MUTEX(lock);\nstatic int data LW_GUARDED_BY(lock);\n\
        int good(void);\nint good(void) { int seen; lw_mutex_lock(&lock); seen = data; lw_mutex_unlock(&lock); return seen; }\n\
        int tried(void);\nint tried(void) { if (lw_mutex_trylock(&lock) == 0) { data++; lw_mutex_unlock(&lock); } return 0; }\n";
    let bad = "int bad(void);\nint bad(void) { return data; }\n\
        int worse(void);\nint worse(void) { lw_mutex_lock(&lock); return 0; }\n";
    let file = scratch().join("analysed.c");
    if CLANG.is_there() {
        let analysed = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let mut command = compiler(CLANG);
            command
                .args(["-Wthread-safety", "-fsyntax-only"])
                .arg(&file);
            command.output().unwrap()
        };
        let output = analysed(text);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let output = analysed(&(text.to_owned() + bad));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("reading variable 'data' requires holding mutex 'lock'"),
            "{said}"
        );
        assert!(said.contains("mutex 'lock' is still held"), "{said}");
    }
    if has("sparse") {
        std::fs::write(&file, text.to_owned() + bad).unwrap();
        let include = installed().join("include");
        let mut command = Command::new("sparse");
        let output = command.arg("-I").arg(include).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("context imbalance in 'worse'"), "{said}");
        assert!(!said.contains("'good'"), "{said}");
    } else {
        eprintln!("skipped: sparse is not installed");
    }
}

/// Each file of `examples` that is a program, except for the one that hangs (`lost_wakeup.rs` runs it).
#[test]
fn the_examples_run() {
    let folder = support::repository().join("examples");
    let mut count = 0;
    for file in walk(&folder) {
        // Tests of their own run these: `lost_wakeup.rs`, `containers.rs`, and `crashtest.rs` and `guides.rs` of
        // `latchwork-cli`.
        let has_test = [
            "robust-lost-wakeup.c",
            "containers.c",
            "bank.c",
            "readings.c",
        ];
        let is_killed = file
            .parent()
            .is_some_and(|folder| folder.ends_with("crashtest"));
        if is_killed || has_test.iter().any(|name| file.ends_with(name)) {
            continue;
        }
        let hows: &[How] = match file.extension().and_then(|extension| extension.to_str()) {
            Some("c") => &[GCC, CLANG_OPTIMISED],
            Some("cpp") => &[GPP, CLANGPP],
            _ => continue,
        };
        for how in hows.iter().filter(|how| how.is_there()) {
            let mut command = Command::new(compile(&file, *how, &[]));
            // A short run, of those that have a longer one.
            if file
                .to_str()
                .is_some_and(|path| path.contains("test-mutex"))
            {
                command.args(["V", "4", "1"]).current_dir(scratch());
            }
            let said = run(command);
            assert!(!said.is_empty(), "{} says nothing", file.display());
            count += 1;
        }
    }
    assert!(count > 0 || !has("gcc"), "no example was found");
}
