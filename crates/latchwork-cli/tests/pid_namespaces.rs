//! The command on a region whose tasks belong to other PID namespaces.
#![allow(unsafe_code)]

mod common;

use common::{Named, json, run, stdout};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use latchwork::mutex::{InRegion, Mutex};
use latchwork::region::RegionOptions;
use latchwork_testkit::{Namespace, Page, Trial};
use serde_json::Value;

fn tasks(name: &str) -> Vec<Value> {
    let report = json(&["ps", name]);
    let tasks = &report["regions"][0]["contents"]["tasks"];
    tasks.as_array().unwrap().clone()
}

/// The tasks of a region, as `top` shows them.
fn tasks_in_top(region: &str) -> String {
    let all = ["top", "--once", "--size", "200x1000", "--pane", "tasks"];
    stdout(&run(&[&all[..], &["--filter", region]].concat()))
}

fn row_of<'a>(frame: &'a str, task: &str) -> Option<&'a str> {
    let is_of_task = |row: &&str| row.split_whitespace().any(|cell| cell == task);
    frame.lines().find(is_of_task)
}

#[test]
fn tasks_are_shown_by_the_ids_that_they_have_here() {
    let test = "tasks_are_shown_by_the_ids_that_they_have_here";
    if let Err(error) = Namespace::may_be_made() {
        println!("skipped: {test}: PID namespaces with a /proc cannot be made here: {error}");
        return;
    }
    let trial = Trial::begin(test);
    let named = Named::new("namespaces");
    let options = RegionOptions::new()
        .max_bytes(1 << 20)
        .any_pid_namespace(true);
    let region = options.create_named(&named.0).unwrap();
    let lock = region
        .object("lock", || Mutex::<u64, InRegion>::in_region(0))
        .unwrap()
        .get_ref();
    let holds = Page::<AtomicBool>::new();
    let holder = Namespace::start(true, || {
        region.join("holder").unwrap();
        core::mem::forget(lock.lock().unwrap());
        holds.store(true, SeqCst);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| holds.load(SeqCst));
    let waiter = Namespace::start(false, || {
        region.join("waiter").unwrap();
        let _ = lock.lock();
    });
    // From here both are seen, by the IDs that they have here.
    let (holder, waiter) = (&holder, &waiter);
    trial.wait_until(|| {
        let look = json(&["locks", "--region", &named.0]);
        let pid = |task: &Value| look["tasks"][task.as_u64()? as usize]["pid"].as_u64();
        let lock = &look["locks"][0];
        pid(&lock["owners"][0]) == Some(holder.id().into())
            && pid(&lock["waiters"][0]["task"]) == Some(waiter.id().into())
    });
    let by_name = |name: &str| {
        let found = tasks(&named.0)
            .into_iter()
            .find(|task| task["name"] == name);
        found.unwrap()
    };
    for (name, namespace) in [("holder", holder), ("waiter", waiter)] {
        let task = by_name(name);
        assert_eq!(
            (&task["state"], task["pid"].as_u64()),
            (&"alive".into(), Some(namespace.id().into()))
        );
        assert_eq!(task["tid"], namespace.id());
    }
    assert_ne!(
        by_name("holder")["pid_namespace"],
        by_name("waiter")["pid_namespace"]
    );
    assert!(stdout(&run(&["ps", &named.0])).contains("it is for tasks of any PID namespace"));
    let seen = tasks_in_top(&named.0);
    for (name, namespace) in [("holder", holder), ("waiter", waiter)] {
        let id = namespace.id().to_string();
        let row = row_of(&seen, name).unwrap_or_else(|| panic!("{name} in {seen}"));
        assert!(
            row.split_whitespace().any(|cell| cell == id),
            "{id} in {row}"
        );
    }

    // From a third namespace neither is visible, and no other process is taken for one of them.
    Namespace::start(true, || {
        for name in ["holder", "waiter"] {
            let task = by_name(name);
            assert_eq!(
                (&task["state"], &task["pid"], &task["tid"]),
                (&"unseen".into(), &1.into(), &1.into())
            );
        }
        let text = stdout(&run(&["ps", &named.0]));
        assert!(text.contains("are not visible here"), "{text}");
        let look = json(&["locks", "--region", &named.0]);
        assert!(look["tasks"].as_array().unwrap().is_empty(), "{look:#}");
        let seen = tasks_in_top(&named.0);
        for name in ["holder", "waiter"] {
            let row = row_of(&seen, name).unwrap_or_else(|| panic!("{name} in {seen}"));
            assert!(!row.split_whitespace().any(|cell| cell == "1"), "{row}");
        }
        let doctor = stdout(&run(&["doctor"]));
        assert!(doctor.contains("pid:["), "{doctor}");
        assert!(!doctor.contains("the machine's own"), "{doctor}");
    })
    .succeed();
}
