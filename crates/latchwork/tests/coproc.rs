//! Coprocs: starting, ending, dying, and what they leave.
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::{Copying as _, blocks, children, isolated, region, until};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::coproc::{
    Attributes, JoinError, KillError, Options, Outcome, Signal, SpawnError, wait_any,
};
use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::Region;
use latchwork::time::Deadline;

fn add(region: &Region, hits: &Mutex<u64, Robust>) -> i32 {
    *region.pin(hits).lock().unwrap() += 1;
    7
}

fn give(_: &Region, value: i32) -> i32 {
    value
}

fn sleep(_: &Region, (): ()) -> i32 {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

#[test]
fn a_clean_coproc_runs_and_returns() {
    let region = region();
    let coprocs = coproc_support::start(&region).unwrap();
    let hits = region.object("hits", || Mutex::robust(0u64)).unwrap();
    let coproc = coprocs
        .spawn(add, &hits, &Attributes::new().name("adder"))
        .unwrap();
    assert_eq!(coproc.name(), "adder");
    assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
    assert_eq!(*hits.lock().unwrap(), 1);
}

#[test]
fn a_snapshot_sees_the_memory_of_now_and_changes_a_copy() {
    let region = region();
    let coprocs = coproc_support::start(&region).unwrap();
    let mut local = 20;
    local += 1;
    // SAFETY: the closure uses a copy of a number.
    let coproc = unsafe {
        coprocs.snapshot(
            || {
                local += 21;
                local
            },
            &Attributes::new(),
        )
    };
    assert_eq!(
        coproc.unwrap().join().unwrap().outcome,
        Outcome::Returned(42)
    );
    assert_eq!(local, 21);
    let attributes = Attributes::new().copying().name("entry");
    let coproc = coprocs.spawn_value(give, -3, &attributes).unwrap();
    assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(-3));
}

#[test]
fn an_argument_that_may_end_before_the_coproc_is_refused() {
    let region = region();
    let coprocs = coproc_support::start(&region).unwrap();
    let local = 3u32;
    fn entry(_: &Region, _: &u32) -> i32 {
        0
    }
    assert!(matches!(
        coprocs.spawn(entry, &local, &Attributes::new()),
        Err(SpawnError::Argument)
    ));
    let number = region.object("number", || 5u32).unwrap();
    assert!(coprocs.spawn(entry, &number, &Attributes::new()).is_ok());
    fn part(_: &Region, _: &u16) -> i32 {
        0
    }
    let pair = region.object("pair", || [1u16, 2]).unwrap();
    assert!(matches!(
        coprocs.spawn(part, &pair[0], &Attributes::new()),
        Err(SpawnError::Argument)
    ));
}

#[test]
fn a_panic_is_reported_with_its_message() {
    fn entry(_: &Region, number: u32) -> i32 {
        panic!("number {number} is alive")
    }
    let region = region();
    let coprocs = coproc_support::start_with(&region, &Options::new().pool(1)).unwrap();
    for _ in 0..3 {
        let exit = coprocs
            .spawn_value(entry, 5, &Attributes::new())
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(exit.outcome, Outcome::Panicked("number 5 is alive".into()));
        assert!(!exit.is_success());
    }
}

#[test]
fn exit_skips_the_creators_handlers() {
    if cfg!(target_env = "musl") {
        println!(
            "skipped: exit_skips_the_creators_handlers: musl passes no exit status to a handler"
        );
        return;
    }
    static RUN: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler() {
        // In a coproc this would be a second time.
        std::process::abort();
    }
    fn entry(_: &Region, status: i32) -> i32 {
        std::process::exit(status)
    }
    isolated(|| {
        // SAFETY: a handler that may run at any time. This process ends by `_exit`.
        unsafe { libc::atexit(handler) };
        RUN.store(1, Ordering::Relaxed);
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let exit = coprocs
            .spawn_value(entry, 42, &Attributes::new())
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(exit.outcome, Outcome::Exited(42));
        let exit = coprocs
            .spawn_value(entry, 43, &Attributes::new().copying())
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(exit.outcome, Outcome::Exited(43));
        assert_eq!(
            coprocs
                .spawn_value(give, 1, &Attributes::new())
                .unwrap()
                .join()
                .unwrap()
                .outcome,
            Outcome::Returned(1)
        );
    });
}

#[test]
fn a_killed_coproc_is_noticed_and_its_lock_passes_on() {
    fn hold(region: &Region, lock: &Mutex<u64, Robust>) -> i32 {
        let _guard = region.pin(lock).lock().unwrap();
        region
            .find::<AtomicU32>("held")
            .unwrap()
            .store(1, Ordering::Release);
        sleep(region, ())
    }
    isolated(|| {
        let region = region();
        let held = region.object("held", || AtomicU32::new(0)).unwrap();
        let lock = region.object("lock", || Mutex::robust(0u64)).unwrap();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        for attributes in [
            Attributes::new(),
            Attributes::new().stack_size(1 << 20),
            Attributes::new().copying(),
        ] {
            held.store(0, Ordering::Relaxed);
            let coproc = coprocs.spawn(hold, &lock, &attributes).unwrap();
            until(|| held.load(Ordering::Acquire) == 1);
            assert!(coproc.is_alive());
            coproc.kill(Signal::KILL).unwrap();
            let exit = coproc.join().unwrap();
            assert_eq!(
                exit.outcome,
                Outcome::Signalled {
                    signal: libc::SIGKILL,
                    core: false
                }
            );
            match lock.lock() {
                Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
                other => panic!("{other:?}"),
            }
            drop(lock.lock().unwrap());
        }
    });
}

#[test]
fn a_guard_that_outlives_the_function_is_reported_to_the_next_owner() {
    fn forget(region: &Region, lock: &Mutex<u64, Robust>) -> i32 {
        core::mem::forget(region.pin(lock).lock().unwrap());
        5
    }
    let region = region();
    let lock = region.object("lock", || Mutex::robust(0u64)).unwrap();
    let coprocs = coproc_support::start_with(&region, &Options::new().pool(1)).unwrap();
    for _ in 0..3 {
        let coproc = coprocs.spawn(forget, &lock, &Attributes::new()).unwrap();
        assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(5));
        match lock.lock() {
            Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_thread_that_outlives_the_function_is_gone_after_the_join() {
    fn leave_thread(region: &Region, lock: &Mutex<u64, Robust>) -> i32 {
        let region = region.clone();
        let address = core::ptr::from_ref(lock).addr();
        std::thread::spawn(move || {
            // SAFETY: the named object, which stays.
            let lock: &Mutex<u64, Robust> =
                unsafe { &*core::ptr::with_exposed_provenance(address) };
            let _guard = region.pin(lock).lock().unwrap();
            region
                .find::<AtomicU32>("held")
                .unwrap()
                .store(1, Ordering::Release);
            sleep(&region, ());
        });
        0
    }
    fn wait_and_leave(region: &Region, lock: &Mutex<u64, Robust>) -> i32 {
        leave_thread(region, lock);
        until(|| {
            region
                .find::<AtomicU32>("held")
                .unwrap()
                .load(Ordering::Acquire)
                == 1
        });
        0
    }
    isolated(|| {
        let region = region();
        region.object("held", || AtomicU32::new(0)).unwrap();
        let lock = region.object("lock", || Mutex::robust(0u64)).unwrap();
        let coprocs = coproc_support::start(&region).unwrap();
        let coproc = coprocs
            .spawn(wait_and_leave, &lock, &Attributes::new())
            .unwrap();
        let exit = coproc.join_reaped().unwrap();
        assert_eq!(exit.outcome, Outcome::Returned(0));
        assert!(matches!(lock.lock(), Err(LockError::OwnerDied(_))));
    });
}

#[test]
fn exec_counts_as_leaving_and_the_status_is_the_programs() {
    fn exec(_: &Region, (): ()) -> i32 {
        use std::os::unix::process::CommandExt;
        let error = std::process::Command::new("/bin/sh")
            .args(["-c", "exit 9"])
            .exec();
        panic!("{error}")
    }
    let region = region();
    let coprocs = coproc_support::start(&region).unwrap();
    let exit = coprocs
        .spawn_value(exec, (), &Attributes::new())
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(exit.outcome, Outcome::Exited(9));
}

#[test]
fn a_stack_overflow_kills_the_coproc_alone() {
    #[allow(unconditional_recursion)]
    fn overflow(given: &Region, depth: u64) -> i32 {
        let frame = core::hint::black_box([depth; 64]);
        overflow(core::hint::black_box(given), depth + 1) + frame[3] as i32
    }
    let region = region();
    let coprocs = coproc_support::start(&region).unwrap();
    let attributes = Attributes::new().stack_size(256 << 10).core_size(0);
    let exit = coprocs
        .spawn_value(overflow, 0, &attributes)
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(
        exit.outcome,
        Outcome::Signalled {
            signal: libc::SIGSEGV,
            core: false
        }
    );
}

#[test]
fn a_deadline_ends_a_join_that_can_be_repeated() {
    let region = region();
    let coprocs = coproc_support::start_with(&region, &Options::new().pool(1)).unwrap();
    let coproc = coprocs.spawn_value(sleep, (), &Attributes::new()).unwrap();
    let deadline = Deadline::after(Duration::from_millis(10));
    assert!(matches!(
        coproc.join_until(deadline),
        Err(JoinError::TimedOut)
    ));
    assert!(deadline.has_passed());
    coproc.kill(Signal::TERM).unwrap();
    let exit = coproc
        .join_until(Deadline::after(Duration::from_secs(100)))
        .unwrap();
    assert_eq!(
        exit.outcome,
        Outcome::Signalled {
            signal: libc::SIGTERM,
            core: false
        }
    );
    assert_eq!(coproc.kill(Signal::TERM), Err(KillError::Ended));
    assert_eq!(coproc.join().unwrap().outcome, exit.outcome);
}

#[test]
fn a_detached_coproc_is_cleaned_up_after() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let coproc = coprocs
            .spawn_value(give, 0, &Attributes::new().detached())
            .unwrap();
        let pid = coproc.pid();
        assert!(matches!(coproc.join(), Err(JoinError::Detached)));
        coprocs
            .spawn_value(give, 0, &Attributes::new())
            .unwrap()
            .detach();
        until(|| !coproc_support::runs(pid));
        until(|| {
            coprocs
                .spawn_value(give, 0, &Attributes::new())
                .unwrap()
                .join_reaped()
                .unwrap();
            coproc_support::status_of(pid).is_none()
        });
    });
}

#[test]
fn the_first_to_end_is_found_among_several() {
    let region = region();
    let coprocs = coproc_support::start_with(&region, &Options::new().pool(3)).unwrap();
    let plain = Attributes::new();
    let sleepers: Vec<_> = (0..4)
        .map(|_| coprocs.spawn_value(sleep, (), &plain).unwrap())
        .collect();
    let all: Vec<_> = sleepers.iter().collect();
    let soon = Deadline::after(Duration::from_millis(5));
    assert!(matches!(
        wait_any(&all, Some(soon)),
        Err(JoinError::TimedOut)
    ));
    sleepers[2].kill(Signal::KILL).unwrap();
    assert_eq!(wait_any(&all, None).unwrap(), 2);
    for sleeper in &sleepers {
        sleeper.kill(Signal::KILL).unwrap_or_default();
    }
}

#[test]
fn usage_is_complete_after_reaping() {
    fn work(_: &Region, pages: usize) -> i32 {
        // Of large pages there would be fewer.
        // SAFETY: concerns this process alone.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        // SAFETY: no preconditions.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mut memory = vec![0u8; pages * bytes];
        for page in memory.chunks_mut(bytes) {
            page[0] = 1;
        }
        core::hint::black_box(&memory);
        0
    }
    let region = region();
    let coprocs = coproc_support::start(&region).unwrap();
    let published = coprocs
        .spawn_value(work, 500, &Attributes::new())
        .unwrap()
        .join()
        .unwrap()
        .usage;
    let reaped = coprocs
        .spawn_value(work, 500, &Attributes::new())
        .unwrap()
        .join_reaped()
        .unwrap()
        .usage;
    for usage in [published, reaped] {
        assert!(usage.minor_faults >= 500, "{usage:?}");
        assert!(usage.max_rss_kib >= 2000, "{usage:?}");
    }
}

#[test]
fn a_thousand_spawns_leave_no_zombie_and_no_memory() {
    isolated(|| {
        let region = region();
        region.join("creator").unwrap();
        let before = blocks(&region);
        {
            let coprocs = coproc_support::start_with(&region, &Options::new().pool(8)).unwrap();
            for round in 0..1000 {
                let attributes = if round % 3 == 0 {
                    Attributes::new().core_size(0)
                } else {
                    Attributes::new()
                };
                let coproc = coprocs.spawn_value(give, round, &attributes).unwrap();
                match round % 7 {
                    0 => coproc.detach(),
                    1 => assert_eq!(
                        coproc.join_reaped().unwrap().outcome,
                        Outcome::Returned(round)
                    ),
                    _ => assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(round)),
                }
                // A slow machine may be late with their ends; the next spawn reaps them.
                until(|| {
                    let is_reaped = round % 50 != 0 || children().len() < 200;
                    if !is_reaped {
                        let plain = Attributes::new();
                        coprocs
                            .spawn_value(give, 0, &plain)
                            .unwrap()
                            .join()
                            .unwrap();
                    }
                    is_reaped
                });
            }
        }
        // Those that were detached may still be on their way.
        until(|| {
            drop(coproc_support::start(&region).unwrap());
            children().is_empty()
        });
        assert_eq!(blocks(&region), before);
        region.check_heap().unwrap();
    });
}

#[test]
fn several_threads_may_spawn_at_once() {
    let region = region();
    let coprocs = coproc_support::start_with(&region, &Options::new().pool(4)).unwrap();
    let hits = region.object("hits", || Mutex::robust(0u64)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let coproc = coprocs.spawn(add, &hits, &Attributes::new()).unwrap();
                    assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
                }
            });
        }
    });
    assert_eq!(*hits.lock().unwrap(), 100);
}

#[test]
fn an_exhausted_pool_is_no_obstacle() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        let sleepers: Vec<_> = (0..12)
            .map(|_| coprocs.spawn_value(sleep, (), &Attributes::new()).unwrap())
            .collect();
        for sleeper in sleepers {
            sleeper.kill(Signal::KILL).unwrap();
            assert!(matches!(
                sleeper.join().unwrap().outcome,
                Outcome::Signalled { .. }
            ));
        }
    });
}
