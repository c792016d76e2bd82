//! Tasks that start and join coprocs, and are killed at any instruction.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use latchwork::coproc::{Attributes, Coprocs, Options, Outcome};
use latchwork::region::inspect::inspect_path;
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Child, Leftover, Trial, step};

fn runtime(region: &Region) -> Coprocs {
    // SAFETY: what the test owns in the region, its coprocs do not use; nor do they descriptors of the creator's.
    unsafe { Coprocs::with_options(region, &Options::new()) }.unwrap()
}

fn double(_: &Region, value: i32) -> i32 {
    2 * value
}

fn start_and_join(coprocs: &Coprocs) {
    let coproc = coprocs.spawn_value(double, 21, &Attributes::new()).unwrap();
    assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(42));
}

/// Wherever it is killed: no task of the region is left, its heap is whole, and another process can start and join
/// coprocs.
#[test]
fn starting_and_joining_are_recoverable_at_every_instruction() {
    let trial = Trial::begin("starting_and_joining_are_recoverable_at_every_instruction");
    let (name, file) = Leftover::region("coproc");
    let region = RegionOptions::new().max_bytes(8 << 20).max_tasks(64);
    let region = region.create_named(&name).unwrap();
    region.join("test").unwrap();
    // At last this is the only task of the region. (A record can be left: the heap is whole, not always empty.)
    let settle = || {
        trial.wait_until(|| {
            region.sweep().unwrap();
            let report = inspect_path(file.path()).unwrap();
            report.contents.unwrap().tasks.len() == 1
        });
        region.check_heap().unwrap();
    };
    let others = || Child::fork(|| start_and_join(&runtime(&region))).succeed();
    others();
    settle();
    step::each_instruction(
        &trial,
        "start and join a coproc",
        || (),
        |(), span| {
            let coprocs = runtime(&region);
            start_and_join(&coprocs);
            span.run(|| start_and_join(&coprocs));
        },
        // The coproc wakes it.
        |()| true,
        |(), _| {
            settle();
            others();
            settle();
        },
    );
}
