//! Tasks that start and join coprocs, and are killed at any instruction.
#![cfg(not(loom))]
#![allow(unsafe_code)]

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
