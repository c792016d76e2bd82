//! The inspector or the inspected programs are killed at random moments.

use super::actor::Actor;
use super::common::{self, Named};
use latchwork_testkit::{Seed, Watchdog};
use serde_json::Value;
use std::io::BufRead;

/// Killed at random moments, while it reads a region and a board, the inspector leaves no trace, and the inspected program
/// continues.
#[test]
fn killing_the_inspector_harms_no_other_process() {
    let named = Named::new("inspected");
    let actor = Actor::role("busy", &named.0);
    let mut random = Seed::announced().rng(0);
    for _ in 0..30 {
        let mut inspector = common::command()
            .args(["locks", "--all", "--json", "--watch=0.05"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_micros(random.u64(0..60_000)));
        inspector.kill().unwrap();
        inspector.wait().unwrap();
    }
    let before = actor.progress();
    let watchdog = Watchdog::start("the inspected program stands still".into());
    while actor.progress() < before + 100 {
        std::thread::yield_now();
    }
    drop(watchdog);
    assert!(actor.finish(), "the inspected program ends in good order");
}

/// Programs start and end while they are inspected.
#[test]
fn killing_the_inspected_harms_no_inspector() {
    let mut random = Seed::announced().rng(1);
    let named = Named::new("dying");
    for _ in 0..20 {
        let mut inspector = common::command()
            .args(["locks", "--all", "--json"])
            .spawn()
            .unwrap();
        let actor = Actor::role("busy", &named.0);
        std::thread::sleep(std::time::Duration::from_micros(random.u64(0..20_000)));
        drop(actor);
        let output = latchwork_testkit::output_of(std::mem::replace(
            &mut inspector,
            common::command().arg("--version").spawn().unwrap(),
        ));
        inspector.wait().unwrap();
        assert_eq!(output.status.code(), Some(0), "{:?}", output.status);
        let _: Value = serde_json::from_slice(&output.stdout).unwrap();
        let _ = std::fs::remove_file(named.path());
    }
}

/// A watch continues when a process dies whose board it is reading.
#[test]
fn killing_the_inspected_ends_no_watch() {
    let mut random = Seed::announced().rng(2);
    let mut watch = common::command()
        .args(["locks", "--all", "--json", "--watch=0.05"])
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut looks = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let watchdog = Watchdog::start("the watch stands still".into());
    for _ in 0..10 {
        let named = Named::new("dying-watched");
        let actor = Actor::role("busy", &named.0);
        std::thread::sleep(std::time::Duration::from_micros(random.u64(0..50_000)));
        drop(actor);
        for _ in 0..2 {
            assert!(looks.next().is_some_and(|look| look["locks"].is_array()));
        }
        watchdog.progress();
    }
    drop(looks);
    // The pipe has no reader: it exits, successfully.
    assert!(watch.wait().unwrap().success());
}
