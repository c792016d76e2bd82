//! How coprocs end, and what their creators make of it: in unusual ways, without a handle, without
//! a descriptor, without a creator.
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::{Copying as _, children, isolated, region, runs, status_of, until};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::coproc::{
    Attributes, Coproc, Coprocs, JoinError, KillError, Options, Outcome, Signal, descriptors,
    reap_ended, wait_any,
};
use latchwork::region::{Region, RegionOptions};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Watchdog};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

fn give(_: &Region, value: i32) -> i32 {
    value
}

fn pause(_: &Region, (): ()) -> i32 {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn sleep_as_program(_: &Region, seconds: u32) -> i32 {
    let error = Command::new("sleep").arg(seconds.to_string()).exec();
    panic!("{error}")
}

/// Leaves the region, and goes on until it may read.
fn leave_the_region(region: &Region, value: i32) -> i32 {
    let mut go = std::fs::File::from(descriptors().remove(0));
    region.clone().detach().unwrap();
    go.read_exact(&mut [0]).unwrap();
    value
}

#[test]
fn a_coproc_that_left_the_region_is_joined_with_its_result() {
    let region = region();
    let coprocs = coproc_support::start(&region).unwrap();
    let (read, mut write) = std::io::pipe().unwrap();
    let attributes = Attributes::new().descriptor(read);
    let coproc = coprocs
        .spawn_value(leave_the_region, 77, &attributes)
        .unwrap();
    until(|| !coproc.is_alive());
    let soon = Deadline::after(Duration::from_millis(20));
    assert!(coproc.join_until(soon).is_err());
    write.write_all(&[0]).unwrap();
    assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(77));
}

#[test]
fn a_coproc_that_left_the_region_writes_into_no_other_record() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let (read, mut write) = std::io::pipe().unwrap();
        let attributes = Attributes::new().descriptor(read);
        let left = coprocs
            .spawn_value(leave_the_region, 77, &attributes)
            .unwrap();
        let pid = left.pid();
        until(|| !left.is_alive());
        drop(left);
        let others: Vec<_> = (0..8)
            .map(|_| coprocs.spawn_value(pause, (), &Attributes::new()).unwrap())
            .collect();
        write.write_all(&[0]).unwrap();
        until(|| !runs(pid));
        for other in others {
            other.kill(Signal::KILL).unwrap();
            let outcome = other.join().unwrap().outcome;
            assert!(matches!(outcome, Outcome::Signalled { .. }), "{outcome:?}");
        }
        region.check_heap().unwrap();
    });
}

#[test]
fn a_fork_that_returns_from_the_function_ends_there() {
    fn fork_and_return(_: &Region, panics: bool) -> i32 {
        // SAFETY: a process of one thread.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            assert!(!panics, "in the child of the fork");
            return 5;
        }
        let mut status = 0;
        // SAFETY: the kernel writes the variable.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        libc::WEXITSTATUS(status)
    }
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(1)).unwrap();
        let before = region.heap_stats();
        for (attributes, panics, status) in [
            (Attributes::new(), false, 5),
            (Attributes::new().core_size(0), true, 101),
            (Attributes::new().copying(), false, 5),
        ] {
            let coproc = coprocs
                .spawn_value(fork_and_return, panics, &attributes)
                .unwrap();
            assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(status));
        }
        region.check_heap().unwrap();
        drop(coprocs);
        assert!(region.heap_stats().shared_blocks <= before.shared_blocks);
    });
}

#[test]
fn a_program_is_joined_without_a_free_descriptor() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let coproc = coprocs
            .spawn_value(sleep_as_program, 1000, &Attributes::new())
            .unwrap();
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the kernel reads the limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
        let soon = Deadline::after(Duration::from_millis(20));
        let early = coproc.join_until(soon);
        assert!(matches!(early, Err(JoinError::TimedOut)), "{early:?}");
        // SAFETY: our coproc's, which lives.
        unsafe { libc::kill(coproc.pid().cast_signed(), libc::SIGKILL) };
        let killed = Outcome::Signalled {
            signal: libc::SIGKILL,
            core: false,
        };
        assert_eq!(coproc.join().unwrap().outcome, killed);
    });
}

#[test]
fn unjoined_coprocs_are_reaped_on_request() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let detached = Attributes::new().detached();
        let ended = coprocs.spawn_value(give, 0, &detached).unwrap();
        let dropped = coprocs.spawn_value(pause, (), &Attributes::new()).unwrap();
        let pids = [ended.pid(), dropped.pid()];
        drop((ended, dropped));
        until(|| status_of(pids[0]).is_some_and(|(_, state)| state == 'Z'));
        reap_ended();
        assert_eq!(status_of(pids[0]), None);
        assert!(runs(pids[1]));
        // SAFETY: our child, which lives.
        unsafe { libc::kill(pids[1].cast_signed(), libc::SIGKILL) };
        until(|| !runs(pids[1]));
        reap_ended();
        assert_eq!(status_of(pids[1]), None);
    });
}

#[test]
fn a_runtime_whose_process_became_another_user_ends() {
    isolated(|| {
        let region = region();
        region.join("creator").unwrap();
        let before = region.heap_stats();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        // SAFETY: changes this process alone.
        if unsafe { libc::setresuid(54321, 54321, 54321) } != 0 {
            eprintln!("skipped: this user cannot become another");
            return;
        }
        drop(coprocs);
        assert_eq!(children(), []);
        let after = region.heap_stats();
        assert_eq!(before.shared_blocks, after.shared_blocks);
    });
}

#[test]
fn what_a_killed_creator_had_in_the_region_is_freed_when_its_coprocs_are_gone() {
    fn crash(_: &Region, (): ()) -> i32 {
        std::process::abort()
    }
    let _watchdog = Watchdog::start("killed creator".into());
    let region = region();
    let pids = region
        .object("pids", || [const { AtomicU32::new(0) }; 5])
        .unwrap();
    let pid = |index: usize| pids[index].load(Ordering::Acquire);
    let blocks = || {
        region.sweep().unwrap();
        let stats = region.heap_stats();
        stats.private_blocks + stats.shared_blocks
    };
    let before = blocks();
    let mut host = Child::fork(|| {
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        pids[3].store(children()[0].0, Ordering::Release);
        let clean = Attributes::new().core_size(0);
        let ended = coprocs.spawn_value(give, 1, &clean).unwrap();
        let died = coprocs.spawn_value(crash, (), &clean).unwrap();
        let goes_on = [
            coprocs.spawn_value(pause, (), &clean).unwrap(),
            coprocs.spawn_value(sleep_as_program, 1000, &clean).unwrap(),
            coprocs
                .spawn_value(pause, (), &Attributes::new().copying())
                .unwrap(),
        ];
        for (place, coproc) in pids.iter().zip(&goes_on) {
            place.store(coproc.pid(), Ordering::Release);
        }
        let joined = coprocs.spawn_value(give, 1, &Attributes::new()).unwrap();
        let forever = Deadline::after(Duration::from_secs(1000));
        assert!(joined.join_until(forever).unwrap().outcome == Outcome::Returned(1));
        until(|| !ended.is_alive() && !died.is_alive());
        pids[4].store(1, Ordering::Release);
        std::thread::sleep(Duration::from_secs(1000));
    });
    until(|| pid(4) == 1);
    host.kill();
    for coproc in (0..3).map(pid) {
        assert!(runs(coproc) && runs(pid(3)));
        // SAFETY: a coproc of the host's, which lives, and which nobody else ends.
        unsafe { libc::kill(coproc.cast_signed(), libc::SIGKILL) };
        until(|| !runs(coproc));
    }
    until(|| !runs(pid(3)));
    assert_eq!(blocks(), before);
    region.check_heap().unwrap();
}

#[test]
fn a_coproc_that_ends_as_its_joiner_falls_asleep_is_noticed() {
    fn nap(_: &Region, microseconds: u64) -> i32 {
        std::thread::sleep(Duration::from_micros(microseconds));
        0
    }
    isolated(|| {
        let seed = latchwork_testkit::Seed::from_env();
        let mut rng = seed.rng(0);
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(60)).unwrap();
        // The longer the table is, the longer it takes to fall asleep.
        let far = Deadline::after(Duration::from_secs(100));
        assert_eq!(coprocs.fill(far).unwrap(), 60);
        for round in 0..1000 {
            // A joiner sleeps on one word alone for 2 ms, and on all words after that.
            let nap_time = rng.u64(1700..2100);
            let coproc = coprocs
                .spawn_value(nap, nap_time, &Attributes::new())
                .unwrap();
            if round % 2 == 0 {
                coproc.join().unwrap();
            } else {
                wait_any(&[&coproc], None).unwrap();
            }
        }
    });
}

/// The thread that has locked it is not in the copy.
#[test]
fn a_snapshot_ends_whose_copy_of_the_output_is_locked() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        fn flockfile(stream: *mut libc::FILE);
        fn funlockfile(stream: *mut libc::FILE);
    }
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let (is_locked, is_over) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the C library's own stream.
                unsafe { flockfile(stdout) };
                is_locked.store(1, Ordering::SeqCst);
                until(|| is_over.load(Ordering::SeqCst) != 0);
                // SAFETY: as above.
                unsafe { funlockfile(stdout) };
            });
            until(|| is_locked.load(Ordering::SeqCst) != 0);
            let attributes = Attributes::new().copying();
            let coproc = coprocs.spawn_value(give, 7, &attributes).unwrap();
            assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
            is_over.store(1, Ordering::SeqCst);
        });
    });
}

/// A thread needs no slot of the region to wait for a coproc.
#[test]
fn a_thread_joins_where_all_slots_are_taken() {
    fn wait(region: &Region, (): ()) -> i32 {
        let go = region.find::<AtomicU32>("go").unwrap();
        until(|| go.load(Ordering::SeqCst) != 0);
        7
    }
    isolated(|| {
        let options = RegionOptions::new().max_bytes(4 << 20).max_tasks(6);
        let region = options.create_anonymous().unwrap();
        let go = region.object("go", || AtomicU32::new(0)).unwrap();
        let coprocs = coproc_support::start(&region).unwrap();
        let attributes = Attributes::new();
        let started = [(); 2].map(|()| coprocs.spawn_value(wait, (), &attributes).unwrap());
        let (is_full, waited) = (AtomicU32::new(0), AtomicU32::new(0));
        let (is_full, waited, region, go) = (&is_full, &waited, &region, &go);
        std::thread::scope(|scope| {
            let takes_one = || match region.join("other") {
                Ok(()) => {
                    until(|| go.load(Ordering::SeqCst) != 0);
                    true
                }
                Err(_) => false,
            };
            // As many as there is room for, and some for which there is none.
            for _ in 0..6 {
                scope.spawn(move || {
                    if !takes_one() {
                        is_full.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            until(|| is_full.load(Ordering::SeqCst) > 0);
            let joiners = started.map(|coproc| {
                scope.spawn(move || {
                    let joined = coproc.join_until(Deadline::after(Duration::from_millis(20)));
                    let soon = Deadline::after(Duration::from_millis(20));
                    let ended = wait_any(&[&coproc], Some(soon));
                    waited.fetch_add(1, Ordering::SeqCst);
                    assert!(matches!(ended, Err(JoinError::TimedOut)), "{ended:?}");
                    assert!(matches!(joined, Err(JoinError::TimedOut)), "{joined:?}");
                    assert_eq!(wait_any(&[&coproc], None).unwrap(), 0);
                    coproc.join().unwrap().outcome
                })
            });
            until(|| waited.load(Ordering::SeqCst) == 2);
            go.store(1, Ordering::SeqCst);
            for joiner in joiners {
                assert_eq!(joiner.join().unwrap(), Outcome::Returned(7));
            }
        });
    });
}

/// Makes a process with the ID of one that was reaped; `None`, and a line, if that cannot be done here.
fn with_id<T>(pid: u32, make: impl Fn() -> (u32, T), end: impl Fn(T)) -> Option<T> {
    loop {
        let last = (pid - 1).to_string();
        let chosen = std::fs::write("/proc/sys/kernel/ns_last_pid", last);
        if chosen.is_err() || status_of(pid).is_some() {
            eprintln!("skipped: the ID of the next process cannot be chosen");
            return None;
        }
        match make() {
            (made, process) if made == pid => return Some(process),
            (_, process) => end(process),
        }
    }
}

/// A coproc that became another program, which code of the program's own has reaped.
fn taken(coprocs: &Coprocs) -> Coproc {
    let coproc = coprocs.spawn_value(sleep_as_program, 0, &Attributes::new());
    let coproc = coproc.unwrap();
    // Before Linux 6.9 only the time of its start tells a process from the next one, in ticks of 10 ms.
    let tick = Deadline::after(Duration::from_millis(30));
    // SAFETY: no status is asked for.
    let reap_any = || unsafe { libc::waitpid(-1, core::ptr::null_mut(), 0) };
    until(|| reap_any() == coproc.pid().cast_signed());
    until(|| tick.has_passed());
    coproc
}

#[test]
fn a_coproc_that_was_reaped_is_not_taken_for_the_next_child_with_its_id() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let is_ended = |sent| matches!(sent, Err(KillError::Ended));
        let is_taken = |joined| matches!(joined, Err(JoinError::Taken));
        let soon = || Deadline::after(Duration::from_millis(20));
        let gone = taken(&coprocs);
        let make = || {
            let child = Command::new("sleep").arg("1000").spawn().unwrap();
            (child.id(), child)
        };
        let end = |mut child: std::process::Child| {
            child.kill().unwrap();
            child.wait().unwrap().signal()
        };
        let Some(child) = with_id(gone.pid(), make, |child| {
            end(child);
        }) else {
            return;
        };
        assert!(is_ended(gone.kill(Signal::KILL)));
        assert!(is_taken(gone.join_until(soon())));
        assert!(runs(child.id()));
        // SAFETY: a child of this process.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        until(|| !runs(child.id()));
        drop(gone);
        reap_ended();
        assert_eq!(end(child), Some(libc::SIGTERM));
        // A coproc has no exit signal, unlike that child.
        let gone = taken(&coprocs);
        let make = || {
            let coproc = coprocs.spawn_value(pause, (), &Attributes::new()).unwrap();
            (coproc.pid(), coproc)
        };
        let end = |coproc: Coproc| {
            coproc.kill(Signal::KILL).unwrap();
            coproc.join_reaped().unwrap().outcome
        };
        let Some(other) = with_id(gone.pid(), make, |other| {
            end(other);
        }) else {
            return;
        };
        assert!(is_ended(gone.kill(Signal::KILL)));
        assert!(is_taken(gone.join()));
        reap_ended();
        let outcome = end(other);
        assert!(matches!(outcome, Outcome::Signalled { .. }), "{outcome:?}");
    });
}
