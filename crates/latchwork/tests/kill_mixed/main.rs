//! All kinds of locks side by side, used by threads and coprocs at once, some of which are killed.
//!
//! | file | what |
//! | --- | --- |
//! | `control.rs` | what driver and tasks know of each other |
//! | `witness.rs` | what is checked beside each lock |
//! | `locks.rs`, `stores.rs`, `mail.rs` | mutexes and reader/writer locks, condition variables, the queue |
//! | `field.rs` | all of them |
//! | `task.rs` | what a task decides and does |
//! | `driver.rs` | rounds and halts; kills, signals, priorities, processors, steps of the clock |
//! | `report.rs` | what it says |
//! | `broken.rs` | locks that are none, each of which must be found out |
//!
//! Coprocs that are killed keep to what is robust. `LATCHWORK_STRESS_SECONDS` says how long it goes on, 3
//! by default; the long run takes 600:
//!
//! ```text
//! LATCHWORK_STRESS_SECONDS=600 cargo test --release -p latchwork --test kill_mixed -- --nocapture all_kinds
//! ```
#![cfg(not(loom))]

mod broken;
mod control;
#[path = "../coproc_support/mod.rs"]
mod coproc_support;
mod driver;
mod field;
mod locks;
mod mail;
mod report;
mod stores;
mod task;
mod witness;

use driver::{Crew, play};
use field::{Everything, private_kinds};
use latchwork_testkit::priority::may_use_priorities;
use latchwork_testkit::{Trial, WallClock};
use std::time::Instant;

#[test]
fn all_kinds_of_locks_hold_while_tasks_are_killed_and_interrupted() {
    let name = "all_kinds_of_locks_hold_while_tasks_are_killed_and_interrupted";
    let trial = Trial::begin(name);
    // Without them: no protect, no robust protect, no real-time tasks.
    let priorities = may_use_priorities("the part of kill_mixed with ceilings and real-time tasks");
    let crew = Crew {
        threads: 4,
        steady: 2,
        mortal: 4,
        patience: None,
    };
    let end = Instant::now() + trial.stress_time();
    let private = || private_kinds(priorities);
    // However slow the machine is, somebody is killed.
    let ended = play::<Everything>(&trial, crew, priorities, private, |driver| {
        driver.clock = WallClock::of_own_machine("the part of kill_mixed with steps of the clock");
        driver.rounds(|driver| Instant::now() >= end && driver.tally.kills() > 0)
    });
    let tally = ended.unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(tally.kills() > 0 && tally.rounds > 0);
}
