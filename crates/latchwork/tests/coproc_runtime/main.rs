//! The runtime among the other things that a program does: its own children, forks, threads, and
//! the deaths of its helpers.
#![allow(unsafe_code)]

#[path = "../coproc_support/mod.rs"]
mod coproc_support;
mod kills;

use coproc_support::{Copying as _, children, isolated, proc_file, region, runs, status_of, until};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::coproc::{Attributes, Coprocs, Options, Outcome, Signal, SpawnError};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::Child;
use std::time::Duration;

fn give(_: &Region, value: i32) -> i32 {
    value
}

fn pause(_: &Region, (): ()) -> i32 {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn works(coprocs: &Coprocs) {
    let exit = coprocs
        .spawn_value(give, 6, &Attributes::new())
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(exit.outcome, Outcome::Returned(6));
}

/// The zygote, once there is no other process of this name.
fn zygote() -> u32 {
    until(|| zygotes().len() == 1);
    zygotes()[0]
}

/// Children that ps shows under this name.
fn called(name: &str) -> Vec<u32> {
    let children = children().into_iter().map(|(pid, _)| pid);
    children
        .filter(|pid| proc_file(*pid, "comm").trim_end() == name)
        .collect()
}

/// The zygote, and for a moment each process that it makes.
fn zygotes() -> Vec<u32> {
    called("zygote")
}

#[test]
fn the_hosts_own_waits_do_not_return_coprocs() {
    static SIGNALS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_: i32) {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    }
    fn wait_for_any() -> (i32, Option<i32>) {
        let mut status = 0;
        // SAFETY: the kernel writes the variable.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        (pid, std::io::Error::last_os_error().raw_os_error())
    }
    isolated(|| {
        // SAFETY: the handler counts.
        unsafe { libc::signal(libc::SIGCHLD, count as *const () as usize) };
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        for attributes in [
            Attributes::new(),
            Attributes::new().core_size(0),
            Attributes::new().copying(),
        ] {
            let coproc = coprocs.spawn_value(pause, (), &attributes).unwrap();
            assert_eq!(wait_for_any(), (-1, Some(libc::ECHILD)));
            coproc.kill(Signal::KILL).unwrap();
            until(|| !runs(coproc.pid()));
            assert_eq!(wait_for_any(), (-1, Some(libc::ECHILD)));
            coproc.join_reaped().unwrap();
        }
        let status = std::process::Command::new("/bin/true").status().unwrap();
        assert!(status.success());
        drop(coprocs);
        assert!(SIGNALS.load(Ordering::Relaxed) <= 1);
        assert_eq!(wait_for_any(), (-1, Some(libc::ECHILD)));
    });
}

#[test]
fn an_ignored_sigchld_loses_no_result() {
    isolated(|| {
        // SAFETY: this process is the test's own.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let coproc = coprocs.spawn_value(pause, (), &Attributes::new()).unwrap();
        coproc.kill(Signal::USR1).unwrap();
        assert_eq!(
            coproc.join().unwrap().outcome,
            Outcome::Signalled {
                signal: libc::SIGUSR1,
                core: false
            }
        );
    });
}

#[test]
fn the_runtime_leaves_no_process_behind() {
    isolated(|| {
        let region = region();
        for pool in [0, 5] {
            let coprocs = coproc_support::start_with(&region, &Options::new().pool(pool)).unwrap();
            let clone = coprocs.clone();
            drop(coprocs);
            works(&clone);
            zygote();
            drop(clone);
            assert_eq!(children(), []);
        }
        region.check_heap().unwrap();
    });
}

#[test]
fn a_handle_outlives_its_runtime() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let coproc = coprocs.spawn_value(pause, (), &Attributes::new()).unwrap();
        drop(coprocs);
        assert!(coproc.is_alive());
        coproc.kill(Signal::KILL).unwrap();
        assert!(matches!(
            coproc.join().unwrap().outcome,
            Outcome::Signalled { .. }
        ));
        assert_eq!(children(), []);
    });
}

#[test]
fn signals_to_the_terminals_group_do_not_reach_the_helpers() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(3)).unwrap();
        until(|| called("ready").len() == 3);
        for (pid, _) in children() {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGTSTP] {
                // SAFETY: our child, which lives.
                unsafe { libc::kill(pid as i32, signal) };
            }
        }
        for _ in 0..6 {
            works(&coprocs);
        }
    });
}

#[test]
fn a_fork_does_not_disturb_its_parents_runtime() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        let coproc = coprocs.spawn_value(pause, (), &Attributes::new()).unwrap();
        let (theirs, their_coproc) = (&coprocs, &coproc);
        Child::fork(move || {
            assert!(matches!(
                theirs.spawn_value(give, 1, &Attributes::new()),
                Err(SpawnError::OtherProcess)
            ));
            assert!(their_coproc.kill(Signal::KILL).is_err());
            let own = theirs.region().clone();
            works(&coproc_support::start(&own).unwrap());
            // SAFETY: this process's copies, which nobody else drops.
            unsafe {
                drop(core::ptr::read(theirs));
                drop(core::ptr::read(their_coproc));
            }
        })
        .succeed();
        assert!(coproc.is_alive());
        coproc.kill(Signal::KILL).unwrap();
        coproc.join().unwrap();
        works(&coprocs);
        works(&coprocs);
    });
}

#[test]
fn coprocs_may_have_coprocs() {
    fn middle(region: &Region, depth: u32) -> i32 {
        if depth == 0 {
            return 1;
        }
        let coprocs = coproc_support::start_with(region, &Options::new().pool(1)).unwrap();
        let exit = coprocs
            .spawn_value(middle, depth - 1, &Attributes::new())
            .unwrap()
            .join()
            .unwrap();
        drop(coprocs);
        assert_eq!(children(), []);
        match exit.outcome {
            Outcome::Returned(value) => value + 1,
            other => panic!("{other:?}"),
        }
    }
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let exit = coprocs
            .spawn_value(middle, 3, &Attributes::new())
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(exit.outcome, Outcome::Returned(4));
    });
}

#[test]
fn a_late_start_among_busy_threads_works() {
    isolated(|| {
        let stop = AtomicU32::new(0);
        let region = region();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while stop.load(Ordering::Relaxed) == 0 {
                        let blocks: Vec<Vec<u8>> = (1..50).map(|size| vec![1; size * 40]).collect();
                        core::hint::black_box(&blocks);
                        std::thread::spawn(|| core::hint::black_box(vec![1u8; 100]))
                            .join()
                            .unwrap();
                    }
                });
            }
            for _ in 0..10 {
                let coprocs = coproc_support::start(&region).unwrap();
                // It allocates and starts threads, too.
                fn entry(_: &Region, (): ()) -> i32 {
                    std::thread::spawn(|| vec![1u8; 3000].len() as i32)
                        .join()
                        .unwrap()
                }
                let exit = coprocs
                    .spawn_value(entry, (), &Attributes::new())
                    .unwrap()
                    .join()
                    .unwrap();
                assert_eq!(exit.outcome, Outcome::Returned(3000));
            }
            stop.store(1, Ordering::Relaxed);
        });
    });
}

#[test]
fn the_creating_thread_may_end() {
    isolated(|| {
        let region = region();
        let coprocs = std::thread::scope(|scope| {
            scope
                .spawn(|| coproc_support::start_with(&region, &Options::new().pool(1)).unwrap())
                .join()
                .unwrap()
        });
        for _ in 0..4 {
            works(&coprocs);
        }
        let coproc = std::thread::scope(|scope| {
            scope
                .spawn(|| coprocs.spawn_value(pause, (), &Attributes::new()).unwrap())
                .join()
                .unwrap()
        });
        assert!(coproc.is_alive());
        coproc.kill(Signal::KILL).unwrap();
        coproc.join_reaped().unwrap();
    });
}

#[test]
fn what_was_printed_before_is_printed_once() {
    fn entry(_: &Region, (): ()) -> i32 {
        use std::io::Write;
        write!(std::io::stdout(), "in-").unwrap();
        0
    }
    isolated(|| {
        let (read, write) = std::io::pipe().unwrap();
        Child::fork(|| {
            // SAFETY: standard output becomes the pipe, in this process alone.
            unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&write), 1) };
            use std::io::Write;
            // Past the capture of the test harness, into std's own buffer.
            write!(std::io::stdout(), "before-").unwrap();
            let region = region();
            let coprocs = coproc_support::start(&region).unwrap();
            for attributes in [Attributes::new(), Attributes::new().copying()] {
                coprocs
                    .spawn_value(entry, (), &attributes)
                    .unwrap()
                    .join_reaped()
                    .unwrap();
            }
        })
        .succeed();
        drop(write);
        assert_eq!(std::io::read_to_string(read).unwrap(), "before-in-in-");
    });
}

#[test]
fn a_full_task_table_is_a_typed_error() {
    isolated(|| {
        let region = RegionOptions::new()
            .max_bytes(4 << 20)
            .max_tasks(3)
            .create_anonymous()
            .unwrap();
        region.join("host").unwrap();
        let coprocs = coproc_support::start(&region).unwrap();
        let coproc = coprocs.spawn_value(pause, (), &Attributes::new()).unwrap();
        match coprocs.spawn_value(give, 0, &Attributes::new()) {
            Err(SpawnError::Attribute {
                attribute: "region",
                error,
            }) => assert_eq!(error.raw_os_error(), libc::ENOSPC),
            other => panic!("{other:?}"),
        }
        coproc.kill(Signal::KILL).unwrap();
        coproc.join().unwrap();
        works(&coprocs);
    });
}

#[test]
fn a_coproc_is_the_hosts_child() {
    let region = region();
    let coprocs = coproc_support::start(&region).unwrap();
    for attributes in [Attributes::new(), Attributes::new().copying()] {
        let coproc = coprocs.spawn_value(pause, (), &attributes).unwrap();
        assert_eq!(status_of(coproc.pid()).unwrap().0, std::process::id());
        coproc.kill(Signal::KILL).unwrap();
        coproc.join().unwrap();
    }
}
