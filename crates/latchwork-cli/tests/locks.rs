//! `latchwork locks` on programs that hang in known ways: unprepared pthread programs, this library's own
//! locks, and regions.

#[path = "locks/actor.rs"]
mod actor;
#[path = "locks/boards.rs"]
mod boards;
mod common;
#[path = "locks/kills.rs"]
mod kills;
#[path = "locks/priorities.rs"]
mod priorities;
#[path = "locks/roles.rs"]
mod roles;
#[path = "locks/screen.rs"]
mod screen;
#[path = "locks/traps.rs"]
mod traps;

use actor::{Actor, Look, c_program};
use common::{Named, json, run, stdout};
use latchwork_testkit::{Leftover, Watchdog};
use serde_json::Value;
use std::io::BufRead;

/// The report with `--pid`, as soon as it satisfies `is_there`.
fn seen(actor: &Actor, is_there: impl Fn(&Look) -> bool) -> Look {
    seen_by(&["--pid", &actor.pid().to_string()], is_there)
}

fn seen_by(which: &[&str], is_there: impl Fn(&Look) -> bool) -> Look {
    let watchdog = Watchdog::start("the situation never arose".into());
    loop {
        let look = Look(json(&[&["locks"], which].concat()));
        if is_there(&look) {
            drop(watchdog);
            return look;
        }
        // The situation takes some milliseconds to arise; a view, too.
        std::thread::yield_now();
    }
}

#[test]
fn a_pthread_program_that_hangs_is_explained() {
    let Some((program, _folder)) = c_program() else {
        return;
    };
    let actor = Actor::start(std::process::Command::new(program));
    let expected = [
        // Lock, type, state, owner, waiters.
        ("first", "pthread mutex", "held", Some("ada"), &["bob"][..]),
        ("second", "pthread mutex", "held", Some("bob"), &["ada"]),
        (
            "inherit",
            "pthread PI mutex",
            "held",
            Some("hang"),
            &["for_inherit"],
        ),
        (
            "robust",
            "pthread robust mutex",
            "held",
            Some("hang"),
            &["for_robust"],
        ),
        (
            "recursive",
            "pthread mutex",
            "held",
            Some("hang"),
            &["for_recursive"],
        ),
        (
            "written",
            "pthread rwlock",
            "held",
            Some("hang"),
            &["reader"],
        ),
        ("being_read", "pthread rwlock", "read", None, &["writer"]),
        (
            "condition",
            "pthread condvar",
            "unknown",
            None,
            &["waiter", "waiter"],
        ),
        ("semaphore", "POSIX semaphore", "count", None, &["counter"]),
    ];
    let look = seen(&actor, |look| {
        expected
            .iter()
            .all(|(name, .., waiters)| look.waiters(&format!("hang:{name}")).len() == waiters.len())
            && look.locks().any(|lock| lock["type"] == "end of a thread")
            && look.task("hang")["waits_for"] != serde_json::json!([])
    });
    for (name, kind, state, owner, waiters) in expected {
        let lock = look.lock(&format!("hang:{name}"));
        assert_eq!(lock["type"], kind, "{name}: {lock:#}");
        assert_eq!(lock["state"], state, "{name}: {lock:#}");
        assert_eq!(look.owner(&lock).as_deref(), owner, "{name}: {lock:#}");
        assert_eq!(look.waiters(&format!("hang:{name}")), waiters, "{name}");
        assert_eq!(lock["place"]["in"], "module", "{name}");
        let flags = &lock["flags"];
        let in_cycle = ["first", "second"].contains(&name);
        assert_eq!(
            *flags == serde_json::json!(["cycle"]),
            in_cycle,
            "{name}: {flags}"
        );
    }
    assert_eq!(look.cycles(), [["ada", "bob"]]);
    let end = look
        .locks()
        .find(|lock| lock["type"] == "end of a thread")
        .unwrap();
    assert_eq!(look.owner(end).as_deref(), Some("ada"));
    let text = stdout(&run(&["locks", "--pid", &actor.pid().to_string()]));
    for part in [
        "DEADLOCK: 2 tasks wait for each other",
        "hang:first",
        "OTHER:",
        "└─ ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// glibc keeps the ID of a thread that ended while it held a mutex, which no thread will release.
#[test]
fn a_mutex_whose_owner_ended_is_marked() {
    let Some((program, _folder)) = c_program() else {
        return;
    };
    let actor = Actor::start(std::process::Command::new(program));
    let look = seen(&actor, |look| {
        look.task("hang")["waits_for"] != serde_json::json!([])
    });
    let waited = look.task("hang")["waits_for"][0].as_u64().unwrap();
    let lock = &look.0["locks"][waited as usize];
    assert_eq!(lock["name"], "hang:dead", "{lock:#}");
    assert_eq!(lock["type"], "pthread mutex", "{lock:#}");
    assert_eq!(lock["owners"], serde_json::json!([]), "{lock:#}");
    assert!(lock["unseen_owner"].is_u64(), "{lock:#}");
    assert_eq!(lock["flags"], serde_json::json!(["owner-dead"]), "{lock:#}");
    let text = stdout(&run(&["locks", "--pid", &actor.pid().to_string()]));
    let owner = format!("thread {} (has died)", lock["unseen_owner"]);
    assert!(text.contains(&owner), "{owner} in {text}");
}

#[test]
fn memory_mapped_after_a_program_is_not_its_statics() {
    let Some((program, _folder)) = c_program() else {
        return;
    };
    let mut command = std::process::Command::new(program);
    command.arg("behind");
    let actor = Actor::start(command);
    let look = seen(&actor, |look| {
        look.locks()
            .any(|lock| lock["owners"] != serde_json::json!([]))
    });
    let lock = look.locks().next().unwrap();
    assert_eq!(lock["place"]["in"], "anonymous", "{lock:#}");
    let address = format!("{:#x}", lock["address"].as_u64().unwrap());
    assert_eq!(lock["name"], address, "{lock:#}");
}

#[test]
fn a_cycle_through_shared_memory_spans_three_processes() {
    let Some((program, _folder)) = c_program() else {
        return;
    };
    let mut command = std::process::Command::new(program);
    command.arg("cycle");
    let actor = Actor::start(command);
    let look = seen(&actor, |look| look.0["cycles"] != serde_json::json!([]));
    let tasks = look.0["tasks"].as_array().unwrap();
    let pids: std::collections::BTreeSet<_> =
        tasks.iter().map(|task| task["pid"].as_u64()).collect();
    assert_eq!(pids.len(), 3, "{:#}", look.0);
    assert_eq!(look.cycles()[0].len(), 3);
    let mut kinds: Vec<_> = look
        .locks()
        .map(|lock| lock["type"].as_str().unwrap())
        .collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "pthread mutex",
            "pthread robust PI mutex",
            "pthread robust mutex"
        ]
    );
}

#[test]
fn this_librarys_locks_name_their_owners() {
    let actor = Actor::role("own", "");
    let look = seen(&actor, |look| {
        [
            "for throughput",
            "for inherit",
            "for robust",
            "for robust-pi",
            "for plain",
        ]
        .iter()
        .all(|name| look.task(name)["waits_for"] != serde_json::json!([]))
    });
    for (task, kind) in [
        ("for throughput", "futex with owner"),
        ("for inherit", "PI futex"),
        ("for robust", "robust mutex"),
        ("for robust-pi", "robust mutex"),
    ] {
        let lock = look.wanted_by(task);
        assert_eq!(lock["type"], kind, "{task}: {lock:#}");
        assert_eq!(
            look.owner(lock).as_deref(),
            Some("holder"),
            "{task}: {lock:#}"
        );
    }
    let plain = look.wanted_by("for plain");
    assert_eq!(plain["type"], "mutex that records no owner", "{plain:#}");
    let name = plain["name"].as_str().unwrap();
    assert!(name.contains("PLAIN"), "the symbol of a static in {name}");
    let free = look
        .locks()
        .find(|lock| lock["type"] == "robust mutex" && lock["waiters"] == serde_json::json!([]));
    assert!(free.is_some(), "held, and nobody waits: {:#}", look.0);
}

/// The system call of a thread, as `/proc` says it.
fn call_of(pid: u32, task: &Value) -> Option<i64> {
    let path = format!("/proc/{pid}/task/{}/syscall", task["tid"]);
    let line = std::fs::read_to_string(path).ok()?;
    line.split_whitespace().next()?.parse().ok()
}

/// It goes on in a call that has no arguments of its own.
#[test]
fn a_wait_that_was_stopped_and_continued_is_listed() {
    use rustix::process::{Pid, Signal, kill_process};
    let actor = Actor::role("limited", "");
    let look = seen(&actor, |look| {
        look.task("limited")["waits_for"] != serde_json::json!([])
    });
    let limited = look.task("limited");
    let pid = Pid::from_raw(actor.pid() as i32).unwrap();
    let watchdog = Watchdog::start("it never goes on".into());
    // A thread that was not in its call yet, or had gone back to it, is stopped once more.
    while call_of(actor.pid(), &limited) != Some(libc::SYS_restart_syscall) {
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        kill_process(pid, Signal::CONT).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(watchdog);
    let wchan = format!("/proc/{}/task/{}/wchan", actor.pid(), limited["tid"]);
    if !std::fs::read_to_string(wchan).is_ok_and(|function| function.contains("futex")) {
        eprintln!("skipped: the kernel does not say what a thread sleeps for");
        return;
    }
    let look = Look(json(&["locks", "--all", "--pid", &actor.pid().to_string()]));
    let lock = look.wanted_by("limited");
    assert_eq!(lock["type"], "mutex that records no owner", "{lock:#}");
    let name = lock["name"].as_str().unwrap();
    assert!(name.contains("PLAIN"), "the symbol of a static in {name}");
    // One that sleeps in the same call, and waits for nothing.
    let sleeper = look.task("sleeper");
    assert_eq!(sleeper["waits_for"], serde_json::json!([]), "{sleeper:#}");
}

/// Of a waiter that sleeps again and again each look sees the last sleep only.
#[test]
fn the_time_of_naps_is_a_lower_bound_that_a_watch_extends() {
    let actor = Actor::role("own", "");
    let look = seen(&actor, |look| {
        ["for robust", "for plain"]
            .iter()
            .all(|name| look.task(name)["waits_for"] != serde_json::json!([]))
    });
    for (name, is_least) in [("for robust", true), ("for plain", false)] {
        let task = look.task(name);
        assert_eq!(task["waited_is_least"], is_least, "{task:#}");
        assert_eq!(task["waited_is_exact"], false, "{task:#}");
        assert_eq!(task["seen_ms"], Value::Null, "{task:#}");
    }
    let mut watch = common::command()
        .args(["locks", "--json", "--watch=0.2", "--pid"])
        .arg(actor.pid().to_string())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(watch.stdout.take().unwrap()).lines();
    let watchdog = Watchdog::start("no wait is seen for as long as a nap and more".into());
    let looks = lines.map(|line| Look(serde_json::from_str(&line.unwrap()).unwrap()));
    let seen_for = |look: Look| look.task("for robust")["seen_ms"].as_u64();
    // (A look that comes while it checks the word sees no wait.)
    assert!(looks.map(seen_for).any(|time| time > Some(1500)));
    drop(watchdog);
    let _ = watch.kill();
    let _ = watch.wait();
}

#[test]
fn a_cycle_through_one_of_several_readers_is_detected() {
    let actor = Actor::role("readers", "");
    let look = seen(&actor, |look| look.0["cycles"] != serde_json::json!([]));
    assert_eq!(look.cycles(), [["greedy", "writer"]]);
    assert_eq!(look.lock("table")["count"], 2);
}

/// To open the FIFO would wait for ever. The bytes in front of the file make no rwlock of the word in it.
#[test]
fn a_fifo_in_the_place_of_a_program_is_not_opened() {
    let folder = Leftover::folder("fifo");
    let file = folder.path().join("module");
    let actor = Actor::role("module", file.to_str().unwrap());
    let look = seen(&actor, |look| {
        look.task("sleeper")["waits_for"] != serde_json::json!([])
    });
    let place = &look.wanted_by("sleeper")["place"];
    assert_eq!(place["in"], "module", "{place:#}");
}

#[test]
fn a_regions_objects_are_listed_with_owners_and_waiters_in_order() {
    let named = Named::new("objects");
    let actor = Actor::role("region", &named.0);
    let of = |object: &str| format!("{}:{object}", named.0);
    let look = seen(&actor, |look| {
        look.waiters(&of("bus")).len() == 2
            && look.waiters(&of("slots")).len() == 1
            && look.waiters(&of("empty")).len() == 1
            && look.waiters(&of("full")).len() == 1
            && look.waiters(&of("table")).len() == 1
            && look.waiters(&of("events of listener")).len() == 1
    });
    let bus = look.lock(&of("bus"));
    assert_eq!(bus["type"], "binary semaphore", "{bus:#}");
    assert_eq!(look.owner(&bus).as_deref(), Some("first"), "{bus:#}");
    // By priority: the second task has the higher one.
    assert_eq!(look.waiters(&of("bus")), ["urgent", "patient"]);
    assert_eq!(bus["flags"], serde_json::json!(["inversion"]));
    let slots = look.lock(&of("slots"));
    assert_eq!(
        (&slots["state"], &slots["count"]),
        (&"count".into(), &0.into())
    );
    let empty = look.lock(&of("empty"));
    assert_eq!(empty["waiters"][0]["role"], "message");
    let full = look.lock(&of("full"));
    assert_eq!(full["waiters"][0]["role"], "room", "{full:#}");
    assert_eq!((&full["count"], &full["capacity"]), (&2.into(), &2.into()));
    let table = look.lock(&of("table"));
    assert_eq!(table["type"], "robust mutex", "{table:#}");
    assert_eq!(look.owner(&table).as_deref(), Some("first"));
    let listener = look.lock(&of("events of listener"));
    assert_eq!(
        listener["remark"], "all of the events 0x6; pending: 0x2",
        "{listener:#}"
    );
    // By the region, and in what `ps` says of its tasks.
    let region = Look(json(&["locks", "--all", "--region", &named.0]));
    assert_eq!(region.waiters(&of("bus")).len(), 2);
    let ps = stdout(&run(&["ps", &named.0]));
    for part in [
        "bus (binary semaphore)",
        "room in full",
        "all of the events 0x6",
    ] {
        assert!(ps.contains(part), "{part} in {ps}");
    }
}

#[test]
fn region_locks_have_the_owners_that_their_words_name() {
    let named = Named::new("mutexes");
    let actor = Actor::role("region-mutexes", &named.0);
    let of = |object: &str| format!("{}:{object}", named.0);
    let look = seen(&actor, |look| {
        let crowd = look.waiters(&of("crowded"));
        look.waiters(&of("own")) == ["waiter"]
            && look.waiters(&of("table")) == ["reader"]
            && !look.cycles().is_empty()
            && crowd.len() == 3
    });
    assert_eq!(look.cycles(), [["ada", "bob"]]);
    let owners = [("left", "ada"), ("right", "bob"), ("own", "first")];
    let others = [("crowded", "first"), ("table", "first")];
    for (object, owner) in owners.into_iter().chain(others) {
        let lock = look.lock(&of(object));
        assert_eq!(lock["type"], "region mutex", "{lock:#}");
        assert_eq!(look.owner(&lock).as_deref(), Some(owner), "{lock:#}");
    }
}

#[test]
fn a_lock_of_a_dead_task_is_marked_until_it_is_acquired() {
    let named = Named::new("dead");
    // A task that lives on, and does not sweep the region.
    let _actor = Actor::role("region-deaths", &named.0);
    let look = seen_by(&["--region", &named.0], |look| {
        look.locks()
            .any(|lock| lock["name"] == format!("{}:bus", named.0))
    });
    let bus = look.lock(&format!("{}:bus", named.0));
    assert_eq!(bus["flags"], serde_json::json!(["owner-dead"]), "{bus:#}");
}

#[test]
fn a_process_that_does_not_exist_is_an_error() {
    // Above the kernel's highest.
    let output = run(&["locks", "--pid", "4194305"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no process"));
}

#[test]
fn an_unprivileged_user_gets_the_regions_data_and_the_number_of_hidden_processes() {
    let named = Named::new("hidden");
    let actor = Actor::role("region", &named.0);
    let Some(output) = common::run_as_nobody(&["locks", "--all", "--json"]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0));
    let look: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(look["hidden_processes"].as_u64().unwrap() > 0);
    drop(actor);
}

#[test]
fn the_screen_shows_a_thousand_locks_in_80_by_24_and_in_200_by_50() {
    let named = Named::new("crowd");
    let _actor = Actor::role("crowd", &named.0);
    // All tasks wait, one way or another.
    seen_by(&["--region", &named.0, "--all"], |look| {
        let waits = [
            ("lock 400", 37),
            ("bus", 4),
            ("queue 0", 19),
            ("queue 7", 4),
        ];
        let do_wait = |(object, count): &(&str, usize)| {
            look.waiters(&format!("{}:{object}", named.0)).len() == *count
        };
        waits.iter().all(do_wait) && look.cycles().len() == 1
    });
    for (size, width, height) in [("80x24", 80, 24), ("200x50", 200, 50), ("20x5", 20, 5)] {
        for pane in ["tasks", "locks", "queues", "regions", "coprocs", "findings"] {
            let args = ["top", "--once", "--size", size, "--pane", pane];
            let frame = stdout(&run(&args));
            let lines: Vec<_> = frame.lines().collect();
            assert_eq!(lines.len(), height, "{frame}");
            assert!(
                lines.iter().all(|line| line.chars().count() <= width),
                "{frame}"
            );
        }
    }
    // A task that is awake between two naps is not seen to wait in that look.
    let shows_in = |pane: &str, filter: &str, line: Option<usize>, parts: &[&str]| {
        let _watchdog = Watchdog::start(format!("{pane} of {filter} never showed {parts:?}"));
        loop {
            let frame = stdout(&run(&[
                "top", "--once", "--size", "200x50", "--pane", pane, "--filter", filter,
            ]));
            let place = line.map_or(Some(&*frame), |line| frame.lines().nth(line));
            if place.is_some_and(|place| parts.iter().all(|part| place.contains(part))) {
                return;
            }
        }
    };
    let shows = |pane, filter, parts: &[&str]| shows_in(pane, filter, None, parts);
    shows("locks", &named.0, &["task 40", "cycle"]);
    shows_in("locks", &named.0, Some(3), &["lock 400", "37"]);
    shows("tasks", "task 61", &["bus (binary semaphore)"]);
    shows("queues", "queue 7", &["100%"]);
    shows("regions", &named.0, &["16.0 MiB"]);
    shows("coprocs", "coproc 1", &["message in queue 0"]);
    shows("findings", &named.0, &["DEADLOCK"]);
    // Each fits the smaller screen with what matters most.
    let _watchdog = Watchdog::start("the small screen never showed the deadlock".into());
    while !["deadlock", "LOCK"]
        .iter()
        .all(|part| stdout(&run(&["top", "--once"])).contains(part))
    {}
}

#[test]
fn without_a_terminal_top_suggests_an_option() {
    let output = run(&["top"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--once"));
}
