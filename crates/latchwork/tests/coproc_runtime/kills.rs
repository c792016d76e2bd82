//! The deaths of the zygote, of coprocs and of their creator.

use super::coproc_support::{self, blocks, children, isolated, proc_file, region, runs, until};
use super::{called, give, works, zygote, zygotes};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::coproc::{Attributes, Options, Outcome, SpawnError};
use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::Region;
use latchwork_testkit::{Child, Seed, Watchdog};
use std::time::Duration;

#[test]
fn a_dead_zygote_is_replaced() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        for _ in 0..3 {
            let zygote = zygote();
            // SAFETY: our child, which lives.
            unsafe { libc::kill(zygote as i32, libc::SIGKILL) };
            for _ in 0..4 {
                works(&coprocs);
                let clean = Attributes::new().core_size(0);
                assert!(
                    coprocs
                        .spawn_value(give, 0, &clean)
                        .unwrap()
                        .join()
                        .unwrap()
                        .is_success()
                );
            }
        }
        drop(coprocs);
        assert_eq!(children(), []);
    });
}

/// A child of the calling process, with this ID, that sleeps; `None` if that is not permitted, or the ID is taken.
fn child_with(id: u32) -> Option<u32> {
    const WORDS: usize = 10;
    let ids = [id];
    // `struct clone_args`: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size.
    let mut arguments = [0_u64; WORDS];
    arguments[4] = libc::SIGCHLD as u64;
    arguments[8] = ids.as_ptr().expose_provenance() as u64;
    arguments[9] = 1;
    let bytes = size_of_val(&arguments);
    // SAFETY: without flags it is a fork. The child makes system calls alone.
    unsafe {
        let made = libc::syscall(libc::SYS_clone3, arguments.as_ptr(), bytes);
        if made == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
        (made > 0).then_some(id)
    }
}

/// A program may reap all its children. Then it makes others, and one of them gets the zygote's ID.
#[test]
fn the_end_of_a_runtime_kills_no_process_that_has_the_id_of_its_zygote() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        works(&coprocs);
        let id = zygote();
        let reap = |id: u32| {
            let mut status = 0;
            // SAFETY: a child of this process.
            let reaped = unsafe {
                libc::kill(id.cast_signed(), libc::SIGKILL);
                libc::waitpid(id.cast_signed(), &raw mut status, libc::__WALL)
            };
            assert_eq!(reaped, id.cast_signed());
        };
        reap(id);
        let Some(other) = child_with(id) else {
            return eprintln!("skipped: a process cannot choose its child's ID");
        };
        drop(coprocs);
        assert_eq!(
            children().iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            [other]
        );
        assert!(runs(other));
        reap(other);
    });
}

#[test]
fn a_zygote_killed_in_mid_spawn_costs_no_coproc() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let (done, joined) = (AtomicU32::new(0), AtomicU32::new(0));
        let shot = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < 2 {
                    let before = joined.load(Ordering::Relaxed);
                    for zygote in zygotes() {
                        shot.lock().unwrap().push(zygote);
                        // SAFETY: our child; nobody else reaps it before it is dead.
                        unsafe { libc::kill(zygote as i32, libc::SIGKILL) };
                    }
                    std::thread::sleep(Duration::from_millis(15));
                    // A slow machine may need longer for one.
                    until(|| {
                        joined.load(Ordering::Relaxed) != before
                            || done.load(Ordering::Relaxed) == 2
                    });
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for value in 0..60 {
                        // As many new zygotes as one spawn makes may all be killed under it; and a
                        // coproc that has no name of its own yet is taken for one, and may have its own
                        // by the time that it is killed.
                        let exit = loop {
                            match coprocs.spawn_value(give, value, &Attributes::new()) {
                                Ok(coproc) => {
                                    let pid = coproc.pid();
                                    let exit = coproc.join().unwrap();
                                    let was_killed =
                                        matches!(exit.outcome, Outcome::Signalled { .. });
                                    if !was_killed || !shot.lock().unwrap().contains(&pid) {
                                        break exit;
                                    }
                                }
                                Err(SpawnError::Server(_) | SpawnError::Died) => {}
                                Err(error) => panic!("{error}"),
                            }
                        };
                        assert_eq!(exit.outcome, Outcome::Returned(value));
                        joined.fetch_add(1, Ordering::Relaxed);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        drop(coprocs);
        assert_eq!(children(), []);
    });
}

#[test]
fn a_kill_at_any_moment_of_a_life_is_reported_and_leaves_nothing() {
    fn work(region: &Region, (): ()) -> i32 {
        let lock = region.find::<Mutex<u64, Robust>>("lock").unwrap();
        let mut guard = match lock.lock() {
            Ok(guard) => guard,
            Err(LockError::OwnerDied(died)) => died.make_consistent(),
            Err(error) => panic!("{error}"),
        };
        *guard += 1;
        let block = region
            .allocate(core::alloc::Layout::new::<[u8; 100]>())
            .unwrap();
        // SAFETY: allocated just now.
        unsafe { region.deallocate(block).unwrap() };
        0
    }
    isolated(|| {
        let seed = Seed::from_env();
        let region = region();
        region.object("lock", || Mutex::robust(0u64)).unwrap();
        let before = blocks(&region);
        {
            let coprocs = coproc_support::start_with(&region, &Options::new().pool(3)).unwrap();
            let done = AtomicU32::new(0);
            let killed = AtomicU32::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut rng = seed.rng(1);
                    while done.load(Ordering::Relaxed) == 0 {
                        let zygotes = zygotes();
                        for (pid, _) in children() {
                            if !zygotes.contains(&pid)
                                && proc_file(pid, "comm") != "zygote\n"
                                && rng.bool()
                            {
                                // SAFETY: a signal to a child, or to one that is gone.
                                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
                                killed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
                let mut rng = seed.rng(2);
                let mut rounds = 0;
                while rounds < 400 || killed.load(Ordering::Relaxed) == 0 {
                    rounds += 1;
                    let attributes = if rng.bool() {
                        Attributes::new()
                    } else {
                        Attributes::new().core_size(0)
                    };
                    match coprocs.spawn_value(work, (), &attributes) {
                        Ok(coproc) => match coproc.join().unwrap().outcome {
                            Outcome::Returned(0)
                            | Outcome::Signalled {
                                signal: libc::SIGKILL,
                                ..
                            } => {}
                            other => panic!("{other:?}"),
                        },
                        Err(SpawnError::Died | SpawnError::Server(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                done.store(1, Ordering::Relaxed);
            });
        }
        assert_eq!(children(), []);
        region.sweep().unwrap();
        region.check_heap().unwrap();
        assert_eq!(blocks(&region), before);
    });
}

#[test]
fn helpers_end_with_a_host_that_is_killed() {
    let _watchdog = Watchdog::start("host killed".into());
    let region = region();
    let pids = region
        .object("pids", || [const { AtomicU32::new(0) }; 8])
        .unwrap();
    let before = blocks(&region);
    let mut host = Child::fork(|| {
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(3)).unwrap();
        until(|| called("ready").len() == 3);
        for (place, (pid, _)) in pids.iter().zip(children()) {
            place.store(pid, Ordering::Relaxed);
        }
        pids[7].store(1, Ordering::Release);
        std::thread::sleep(Duration::from_secs(1000));
        drop(coprocs);
    });
    until(|| pids[7].load(Ordering::Acquire) == 1);
    host.kill();
    for pid in pids.iter().take(4).map(|pid| pid.load(Ordering::Relaxed)) {
        assert_ne!(pid, 0);
        until(|| !runs(pid));
    }
    region.sweep().unwrap();
    assert_eq!(blocks(&region), before);
}
