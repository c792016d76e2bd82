//! Tasks that start and join coprocs, and coprocs that end, killed at any instruction.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use latchwork::coproc::{Attributes, Coproc, Coprocs, Options, Outcome, SpawnError};
use latchwork::region::inspect::inspect_path;
use latchwork::region::{Region, RegionOptions};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Leftover, Trial, step};
use std::time::Duration;

fn runtime(region: &Region, options: &Options) -> Coprocs {
    // SAFETY: what the test owns in the region, its coprocs do not use; nor do they descriptors of the creator's.
    unsafe { Coprocs::with_options(region, options) }.unwrap()
}

fn double(_: &Region, value: i32) -> i32 {
    2 * value
}

fn start(coprocs: &Coprocs) -> Coproc {
    coprocs.spawn_value(double, 21, &Attributes::new()).unwrap()
}

/// A snapshot has the tracer's breakpoint in its copy of the code. If it comes there before it has started, it dies, and
/// another coproc takes its place: the creator, which then ends otherwise, is killed later.
fn start_snapshot(coprocs: &Coprocs) -> Coproc {
    // SAFETY: the closure reaches nothing.
    match unsafe { coprocs.snapshot(|| 42, &Attributes::new()) } {
        Err(SpawnError::Died) => start(coprocs),
        started => started.unwrap(),
    }
}

fn join(coproc: Coproc) {
    let outcome = coproc.join().unwrap().outcome;
    // See `start_snapshot`.
    let has_met_breakpoint = matches!(
        outcome,
        Outcome::Signalled {
            signal: libc::SIGTRAP,
            ..
        }
    );
    assert!(
        outcome == Outcome::Returned(42) || has_met_breakpoint,
        "{outcome:?}"
    );
}

/// Wherever it is killed: no task of the region is left, its heap has the blocks that it had, and another process can
/// start and join coprocs.
fn starts(trial: &Trial, operation: &str, options: &Options, start: fn(&Coprocs) -> Coproc) {
    let (name, file) = Leftover::region("coproc");
    let region = RegionOptions::new().max_bytes(8 << 20).max_tasks(64);
    let region = region.create_named(&name).unwrap();
    region.join("test").unwrap();
    let blocks = || {
        let stats = region.heap_stats();
        stats.private_blocks + stats.shared_blocks
    };
    let at_first = blocks();
    // At last this is the only task of the region. Returns how many tasks it swept.
    let settle = || {
        let mut swept = 0;
        trial.wait_until(|| {
            swept += region.sweep().unwrap().dead.len();
            let report = inspect_path(file.path()).unwrap();
            report.contents.unwrap().tasks.len() == 1
        });
        region.check_heap().unwrap();
        assert_eq!(blocks(), at_first, "{operation}");
        swept
    };
    let others = || Child::fork(|| join(start(&runtime(&region, options)))).succeed();
    others();
    settle();
    step::each_instruction_and_recovery(
        trial,
        operation,
        || (),
        |(), span| {
            let coprocs = runtime(&region, options);
            // The pool is full, if there is one.
            let filled = Deadline::after(Duration::from_secs(60));
            coprocs.fill(filled).unwrap();
            join(start(&coprocs));
            coprocs.fill(filled).unwrap();
            span.run(|| join(start(&coprocs)));
        },
        // The coproc wakes it.
        |()| true,
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
            });
        },
        |(), _| {
            let swept = settle();
            others();
            settle();
            match swept {
                0 => "another task swept, the zygote freed all records",
                _ => "the test swept, the zygote freed all records",
            }
        },
    );
}

#[test]
fn starting_and_joining_are_recoverable_at_every_instruction() {
    let trial = Trial::begin("starting_and_joining_are_recoverable_at_every_instruction");
    starts(&trial, "start and join a coproc", &Options::new(), start);
}

#[test]
fn taking_a_ready_coproc_is_recoverable_at_every_instruction() {
    let trial = Trial::begin("taking_a_ready_coproc_is_recoverable_at_every_instruction");
    let pool = Options::new().pool(2);
    starts(
        &trial,
        "take a coproc from the pool, and join it",
        &pool,
        start,
    );
}

#[test]
fn a_snapshot_is_recoverable_at_every_instruction() {
    let trial = Trial::begin("a_snapshot_is_recoverable_at_every_instruction");
    starts(
        &trial,
        "start and join a snapshot",
        &Options::new(),
        start_snapshot,
    );
}

/// Ends, with its result, as soon as it is traced.
fn end(region: &Region, value: i32) -> i32 {
    let go = region.find::<AtomicU32>("go").unwrap();
    while go.load(SeqCst) == 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
    // SAFETY: a signal to the own thread, at which the tracer takes over.
    unsafe { libc::raise(libc::SIGSTOP) };
    2 * value
}

/// A coproc that is killed on its way from its function's end to its own, while its creator joins it: the join says that it
/// was killed, or has the result; then nothing of it is left, and another coproc can be started.
fn ends(trial: &Trial, operation: &str, options: &Options) {
    let (name, file) = Leftover::region("coproc-end");
    let region = RegionOptions::new().max_bytes(8 << 20).max_tasks(64);
    let region = region.create_named(&name).unwrap();
    region.join("test").unwrap();
    let go = region.object("go", || AtomicU32::new(0)).unwrap();
    let coprocs = runtime(&region, options);
    let filled = Deadline::after(Duration::from_secs(60));
    let fill = || coprocs.fill(filled).unwrap();
    fill();
    join(start(&coprocs));
    let state = || {
        fill();
        region.sweep().unwrap();
        let stats = region.heap_stats();
        let report = inspect_path(file.path()).unwrap();
        let tasks = report.contents.unwrap().tasks.len();
        (stats.private_blocks, stats.shared_blocks, tasks)
    };
    let at_first = state();
    step::each_instruction_to_the_end(
        trial,
        operation,
        || {
            go.store(0, SeqCst);
            let coproc = coprocs.spawn_value(end, 21, &Attributes::new()).unwrap();
            let process = coproc.pid();
            let joiner = std::thread::spawn(move || coproc.join().unwrap().outcome);
            (joiner, process)
        },
        |_| go.store(1, SeqCst),
        |joiner, point| {
            let outcome = joiner.join().unwrap();
            let is_killed = matches!(
                outcome,
                Outcome::Signalled {
                    signal: libc::SIGKILL,
                    ..
                }
            );
            let is_right = outcome == Outcome::Returned(42);
            assert!(
                is_right || is_killed && point != step::Point::Finished,
                "killed at {point:?}: {outcome:?}"
            );
            trial.wait_until(|| state() == at_first);
            region.check_heap().unwrap();
            join(start(&coprocs));
            match is_killed {
                true => "the join said that it was killed",
                false => "the join had the result",
            }
        },
    );
}

#[test]
fn a_coproc_is_joined_whatever_instruction_is_its_last() {
    let trial = Trial::begin("a_coproc_is_joined_whatever_instruction_is_its_last");
    ends(&trial, "end of a coproc", &Options::new());
    let pool = Options::new().pool(2);
    ends(&trial, "end of a coproc from the pool", &pool);
}
