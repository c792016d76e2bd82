//! The drivers of RTEMS's tables, run on a model of semaphores that is simple enough to be right, and on
//! ones with a mistake.

mod class;
mod fault;
mod mock;

use fault::Fault;
use latchwork_testkit::Watchdog;
use latchwork_testkit::conformance::semaphores;
use latchwork_testkit::conformance::{Report, Table};
use mock::Mock;
use std::sync::Arc;

fn watchdog(test: &str) -> Arc<Watchdog> {
    Arc::new(Watchdog::start(test.to_owned()))
}

#[test]
fn conforming_semaphores_pass() {
    let watchdog = watchdog("conforming_semaphores_pass");
    let report = semaphores::run(&Arc::new(Mock::new(&watchdog, None)));
    report.assert_passed();
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["actions"].as_array().unwrap().len(), 29);
}

#[test]
fn waiters_that_do_not_sleep_are_waited_for() {
    let watchdog = watchdog("waiters_that_do_not_sleep_are_waited_for");
    let mock = Arc::new(Mock::spinning(&watchdog));
    let actions = [
        "rtems/sem/delete",
        "rtems/sem/obtain",
        "rtems/sem/release",
        "rtems/sem/timeout",
        "score/tq/enqueue-mrsp",
        "score/tq/surrender-mrsp",
        "score/tq/timeout-mrsp",
    ];
    let actions = actions.map(|action| semaphores::run_action(&mock, Table::named(action)));
    Report {
        actions: actions.into(),
    }
    .assert_passed();
}

/// Each mistake, and an action that must find it.
const FAULTS: [(Fault, &str); 15] = [
    (Fault::AlwaysFifo, "score/sem/surrender"),
    (Fault::AnybodyReleases, "score/mtx/surrender"),
    (Fault::NoInheritance, "score/mtx/seize-wait"),
    (Fault::NoCeiling, "score/mtx/seize-try"),
    (Fault::NoCeilingCheck, "score/mtx/seize-try"),
    (Fault::NoRecursion, "rtems/sem/obtain"),
    (Fault::NoDeadlocks, "score/tq/enqueue-deadlock"),
    (Fault::DeleteOwned, "rtems/sem/delete"),
    (Fault::DeleteStrandsWaiters, "rtems/sem/delete"),
    (Fault::FlushCounts, "rtems/sem/flush"),
    (Fault::CountsPastMaximum, "rtems/sem/release"),
    (Fault::KeepsPriorityAfterTimeout, "rtems/sem/timeout"),
    (Fault::SetsPriorityOfAny, "rtems/sem/set-priority"),
    (Fault::OneCeilingForAllSchedulers, "rtems/sem/set-priority"),
    (Fault::MovesWhenItObtains, "rtems/sem/mrsp-obtain"),
];

#[test]
fn each_mistake_is_detected_by_its_action() {
    let watchdog = watchdog("each_mistake_is_detected_by_its_action");
    for (fault, action) in FAULTS {
        let mock = Arc::new(Mock::new(&watchdog, Some(fault)));
        let report = semaphores::run_action(&mock, Table::named(action));
        let first = report.failed.first();
        let first = first.unwrap_or_else(|| panic!("{action} did not notice {fault:?}"));
        println!("{fault:?}: {first}");
    }
}
