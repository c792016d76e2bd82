//! Coprocs that are held ready.
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::{children, isolated, proc_file, region, runs, status_of, until};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::coproc::{Attributes, Coprocs, Options, Outcome, Signal, StartError, reap_ended};
use latchwork::region::inspect::inspect_path;
use latchwork::region::{Region, RegionOptions};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Leftover, Page};
use std::os::unix::process::CommandExt as _;
use std::thread;

fn works(coprocs: &Coprocs) {
    let exit = coprocs
        .spawn_value(|_, value: i32| value, 6, &Attributes::new())
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(exit.outcome, Outcome::Returned(6));
}

fn far() -> Deadline {
    Deadline::after(Duration::from_secs(100))
}

/// The processes of a name, which no coproc of a test has.
fn named(name: &str) -> Vec<u32> {
    children()
        .into_iter()
        .map(|(pid, _)| pid)
        .filter(|pid| proc_file(*pid, "comm") == format!("{name}\n"))
        .collect()
}

fn kill(pid: u32) {
    send(pid, libc::SIGKILL);
}

fn send(pid: u32, signal: i32) {
    // SAFETY: a child of this process.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// Stops a process; returns whether it had not ended before.
fn stop(pid: u32) -> bool {
    send(pid, libc::SIGSTOP);
    let state = || status_of(pid).map_or('X', |(_, state)| state);
    until(|| matches!(state(), 'T' | 'Z' | 'X'));
    state() == 'T'
}

/// It may not be scheduled for long, and the runtime's own record may be freed meanwhile.
#[test]
fn a_ready_coproc_sleeps_on_its_own_record_alone() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(1)).unwrap();
        assert_eq!(coprocs.fill(far()).unwrap(), 1);
        let ready = named("ready");
        let sleep = format!("{} ", libc::SYS_futex);
        // The system call of a sleep on several words is another one.
        until(|| proc_file(ready[0], "syscall").starts_with(&sleep));
        works(&coprocs);
    });
}

/// Whether the ready coproc of a creator ends that becomes another program, after `before`.
fn ready_coproc_ends_at_exec(before: fn()) {
    isolated(|| {
        let ready = Page::<AtomicU32>::new();
        let mut creator = Child::fork(|| {
            let coprocs = coproc_support::start_with(&region(), &Options::new().pool(1)).unwrap();
            assert_eq!(coprocs.fill(far()).unwrap(), 1);
            ready.store(named("ready")[0], Ordering::SeqCst);
            before();
            let error = std::process::Command::new("sleep").arg("1000").exec();
            panic!("{error}");
        });
        until(|| ready.load(Ordering::SeqCst) != 0);
        let ready = ready.load(Ordering::SeqCst);
        until(|| proc_file(creator.pid().cast_unsigned(), "comm") == "sleep\n");
        // Nobody reaps it: its parent is the other program.
        let ends = || {
            proc_file(ready, "stat")
                .split(") ")
                .nth(1)
                .is_none_or(|it| it.starts_with('Z'))
        };
        until(ends);
        creator.kill();
    });
}

#[test]
fn ready_coprocs_of_a_creator_that_became_another_program_end() {
    ready_coproc_ends_at_exec(|| ());
}

/// They check it themselves, every 10 seconds.
#[test]
fn ready_coprocs_of_a_creator_that_became_another_program_end_without_a_server_process() {
    ready_coproc_ends_at_exec(|| {
        let zygote = named("zygote")[0];
        kill(zygote);
        until(|| !runs(zygote));
    });
}

const REGION: &str = "LATCHWORK_TEST_SAME_REGION";

/// No test: the other program of the one below.
#[test]
fn other_program() {
    let Ok(name) = std::env::var(REGION) else {
        return;
    };
    let region = RegionOptions::new().attach(&name).unwrap();
    region.join("other program").unwrap();
    loop {
        thread::park();
    }
}

/// The other program uses the same region, in the same process.
#[test]
fn ready_coprocs_of_a_creator_that_became_another_program_of_its_region_end() {
    isolated(|| {
        let (name, file) = Leftover::region("same-region");
        let ready = Page::<AtomicU32>::new();
        let mut creator = Child::fork(|| {
            let region = RegionOptions::new().max_bytes(4 << 20);
            let region = region.create_named(&name).unwrap();
            let coprocs = coproc_support::start_with(&region, &Options::new().pool(1)).unwrap();
            assert_eq!(coprocs.fill(far()).unwrap(), 1);
            ready.store(named("ready")[0], Ordering::SeqCst);
            let error = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "other_program"])
                .env(REGION, &name)
                .exec();
            panic!("{error}");
        });
        until(|| ready.load(Ordering::SeqCst) != 0);
        let ready = ready.load(Ordering::SeqCst);
        let has_joined = || {
            let contents = inspect_path(file.path()).unwrap().contents.unwrap();
            let mut tasks = contents.tasks.iter();
            tasks.any(|task| task.name == "other program")
        };
        until(has_joined);
        until(|| !runs(ready));
        creator.kill();
    });
}

#[test]
fn filling_waits_for_all_and_starts_again_for_what_died() {
    isolated(|| {
        let region = region();
        assert_eq!(
            coproc_support::start(&region).unwrap().fill(far()).unwrap(),
            0
        );
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(5)).unwrap();
        // The members belong to this process, and may not be made yet.
        let fill = || coprocs.fill(far());
        let is_refused = || matches!(fill(), Err(StartError::OtherProcess));
        Child::fork(|| assert!(is_refused())).succeed();
        assert_eq!(coprocs.fill(far()).unwrap(), 5);
        assert_eq!(named("ready").len(), 5);
        works(&coprocs);
        assert_eq!(coprocs.fill(far()).unwrap(), 5);
        for pid in named("ready").into_iter().chain(named("zygote")) {
            kill(pid);
            until(|| !runs(pid));
        }
        assert_eq!(coprocs.fill(far()).unwrap(), 5);
        works(&coprocs);
    });
}

#[test]
fn filling_ends_where_the_task_table_or_the_time_does() {
    isolated(|| {
        let region = RegionOptions::new()
            .max_bytes(4 << 20)
            .max_tasks(6)
            .create_anonymous()
            .unwrap();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(20)).unwrap();
        // This thread and the server process have a slot each.
        assert_eq!(coprocs.fill(far()).unwrap(), 4);
        assert!(coprocs.fill(Deadline::after(Duration::ZERO)).unwrap() <= 4);
        works(&coprocs);
    });
}

#[test]
fn ready_coprocs_that_were_killed_are_passed_over() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(4)).unwrap();
        until(|| children().len() == 5);
        // The later ones may not be named yet, which is as good.
        for pid in named("ready") {
            kill(pid);
            until(|| !runs(pid));
        }
        for _ in 0..8 {
            works(&coprocs);
        }
    });
}

#[test]
fn a_coproc_that_was_stopped_while_it_was_ready_can_be_continued() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(1)).unwrap();
        assert_eq!(coprocs.fill(far()).unwrap(), 1);
        let ready = named("ready")[0];
        assert!(stop(ready));
        let coproc = coprocs
            .spawn_value(|_, value: i32| value, 6, &Attributes::new())
            .unwrap();
        assert_eq!(coproc.pid(), ready);
        coproc.kill(Signal::CONT).unwrap();
        assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(6));
    });
}

#[test]
fn a_runtime_ends_though_its_coprocs_are_stopped() {
    isolated(|| {
        let region = region();
        let start = || coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        // A ready one. It is not left behind: nobody knows it.
        let coprocs = start();
        assert_eq!(coprocs.fill(far()).unwrap(), 2);
        assert!(stop(named("ready")[0]));
        drop(coprocs);
        assert_eq!(children(), []);
        region.check_heap().unwrap();
        // One that has ended its function, and delays its exit. It may be too late to stop it.
        let (coprocs, stopped) = loop {
            let coprocs = start();
            assert_eq!(coprocs.fill(far()).unwrap(), 2);
            let coproc = coprocs
                .spawn_value(|_, value: i32| value, 6, &Attributes::new())
                .unwrap();
            let pid = coproc.pid();
            assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(6));
            if stop(pid) {
                break (coprocs, pid);
            }
        };
        drop(coprocs);
        assert_eq!(children(), [(stopped, 'T')]);
        send(stopped, libc::SIGCONT);
        until(|| {
            reap_ended();
            children().is_empty()
        });
    });
}

#[test]
fn in_a_burst_from_several_threads_each_spawn_runs_once() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(24)).unwrap();
        assert_eq!(coprocs.fill(far()).unwrap(), 24);
        let runs = region.object("runs", || AtomicU32::new(0)).unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        let started = coprocs.spawn(count, runs.get_ref(), &Attributes::new());
                        assert!(started.unwrap().join().unwrap().is_success());
                    }
                });
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), 120);
    });

    fn count(_: &Region, runs: &AtomicU32) -> i32 {
        runs.fetch_add(1, Ordering::Relaxed);
        0
    }
}

#[test]
fn a_coproc_woken_for_the_next_spawn_of_a_burst_ends_with_the_runtime() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(8)).unwrap();
        assert_eq!(coprocs.fill(far()).unwrap(), 8);
        for _ in 0..3 {
            works(&coprocs);
        }
        drop(coprocs);
        until(|| children().is_empty());
    });
}

#[test]
fn a_member_killed_while_awake_is_passed_over() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(8)).unwrap();
        for _ in 0..20 {
            assert_eq!(coprocs.fill(far()).unwrap(), 8);
            for _ in 0..2 {
                works(&coprocs);
            }
            // One of them may be awake.
            for pid in named("ready") {
                kill(pid);
                until(|| !runs(pid));
            }
            works(&coprocs);
        }
    });
}
