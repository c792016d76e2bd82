//! Completion, barrier, once and spinlock: what they promise, between threads and processes.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use latchwork::barrier::Barrier;
use latchwork::completion::Completion;
use latchwork::mutex::Mutex;
use latchwork::mutex::in_region::NotATask;
use latchwork::once::{Once, OnceError, RegionOnce};
use latchwork::region::{self, RegionOptions};
use latchwork::sharing::Shared;
use latchwork::spin::Spin;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Page, Trial};
use std::thread;

use latchwork_testkit::{Mapped, ThreadId};

fn far() -> Deadline {
    Deadline::after(Duration::from_secs(3600))
}

// Completion

#[test]
fn a_completion_passes_one_waiter_for_each_token() {
    const TOKENS: u32 = 500;
    let _trial = Trial::begin("a_completion_passes_one_waiter_for_each_token");
    let done = Completion::new();
    let passed = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                for _ in 0..TOKENS {
                    done.wait();
                    passed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| (0..TOKENS * 5 / 2).for_each(|_| done.complete()));
        }
    });
    assert_eq!(passed.into_inner(), 5 * TOKENS);
    assert!(!done.is_done() && !done.try_wait());
}

#[test]
fn tokens_wait_for_their_waiters() {
    let done = Completion::new();
    done.complete();
    done.complete();
    assert!(done.is_done() && done.try_wait() && done.wait_until(far()) && !done.try_wait());
}

#[test]
fn complete_all_releases_all_waiters_until_reset() {
    let trial = Trial::begin("complete_all_releases_all_waiters_until_reset");
    let done = Completion::new();
    let asleep: [ThreadId; 5] = Default::default();
    thread::scope(|scope| {
        for id in &asleep {
            let done = &done;
            scope.spawn(move || {
                id.set();
                done.wait();
            });
        }
        trial.wait_until(|| asleep.iter().all(ThreadId::is_in_futex));
        done.complete_all();
    });
    done.complete();
    assert!((0..10).all(|_| done.try_wait()));
    done.reset();
    assert!(!done.is_done());
    let soon = Deadline::after(Duration::from_millis(2));
    assert!(!done.wait_until(soon) && soon.has_passed());
    assert!(!done.wait_for(Duration::ZERO));
}

#[test]
fn a_completion_works_between_processes() {
    let trial = Trial::begin("a_completion_works_between_processes");
    let done = Mapped::new([const { Completion::shared() }; 2]);
    let [there, back] = done.each();
    let child = Child::fork(|| {
        for _ in 0..500 {
            there.wait();
            back.complete();
        }
        there.wait();
    });
    for _ in 0..500 {
        there.complete();
        back.wait();
    }
    trial.wait_until(|| child.is_in_futex());
    there.complete();
    child.succeed();
}

#[test]
fn a_killed_waiter_takes_no_token() {
    let trial = Trial::begin("a_killed_waiter_takes_no_token");
    let done = Mapped::new(Completion::shared());
    let mut child = Child::fork(|| done.wait());
    trial.wait_until(|| child.is_in_futex());
    child.kill();
    done.complete();
    assert!(done.wait_until(far()));
}

/// The completer gets a fault otherwise.
#[test]
fn a_waiter_may_unmap_the_completion_as_soon_as_it_has_returned() {
    const ROUNDS: usize = 5_000;
    const PAGE: usize = 4096;
    const OVER: u32 = u32::MAX;
    let _trial = Trial::begin("a_waiter_may_unmap_the_completion_as_soon_as_it_has_returned");
    // SAFETY: new memory.
    let pages = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(core::ptr::null_mut(), ROUNDS * PAGE, access, kind, -1, 0)
    };
    assert_ne!(pages, libc::MAP_FAILED);
    let first = pages.addr();
    let page = |round| core::ptr::with_exposed_provenance_mut::<u8>(first + round * PAGE);
    // SAFETY: zero is a completion of which nothing is done; it is there until it is unmapped below.
    let done = |round| unsafe { &*page(round).cast::<Completion>() };
    pages.expose_provenance();
    let turn = AtomicU32::new(0);
    let spin_until = |is_so: &dyn Fn() -> bool| {
        for spins in 1_u32.. {
            if is_so() {
                return;
            }
            if spins % 100 == 0 {
                thread::yield_now();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                spin_until(&|| turn.load(Ordering::Acquire) as usize > round);
                if turn.load(Ordering::Acquire) == OVER {
                    return;
                }
                // Sometimes the waiter is still on its way to sleep.
                (0..round % 256).for_each(|_| core::hint::spin_loop());
                done(round).complete();
            }
        });
        // On a busy machine fewer rounds will do.
        let enough = Deadline::after(Duration::from_millis(500));
        for round in (0..ROUNDS).take_while(|_| !enough.has_passed()) {
            turn.store(round as u32 + 1, Ordering::Release);
            if round % 2 == 0 {
                done(round).wait();
            } else {
                spin_until(&|| done(round).try_wait());
            }
            // SAFETY: whoever completes it is through with it.
            assert_eq!(unsafe { libc::munmap(page(round).cast(), PAGE) }, 0);
        }
        turn.store(OVER, Ordering::Release);
    });
    // SAFETY: nobody uses the rest of it.
    assert_eq!(unsafe { libc::munmap(pages, ROUNDS * PAGE) }, 0);
}

// Barrier

#[test]
fn no_task_passes_a_barrier_before_all_have_arrived() {
    const TASKS: u32 = 5;
    let _trial = Trial::begin("no_task_passes_a_barrier_before_all_have_arrived");
    let barrier = Barrier::new(TASKS);
    let (arrived, last) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..TASKS {
            scope.spawn(|| {
                for round in 1..=500 {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    let is_last = barrier.wait();
                    last.fetch_add(u32::from(is_last), Ordering::Relaxed);
                    assert!(arrived.load(Ordering::Relaxed) >= round * TASKS);
                }
            });
        }
    });
    assert_eq!(last.into_inner(), 500);
}

#[test]
fn a_task_that_withdraws_from_a_barrier_is_not_counted() {
    let trial = Trial::begin("a_task_that_withdraws_from_a_barrier_is_not_counted");
    let barrier = Barrier::new(3);
    let id = ThreadId::default();
    let opened = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            id.set();
            assert_eq!(barrier.wait_until(far()), Some(false));
            opened.store(true, Ordering::Relaxed);
        });
        trial.wait_until(|| id.is_in_futex());
        // Each of these would be the third, were the others still counted.
        for _ in 0..3 {
            let soon = Deadline::after(Duration::from_millis(1));
            assert_eq!(barrier.wait_until(soon), None);
            assert!(soon.has_passed());
        }
        assert_eq!(barrier.wait_until(Deadline::from_nanoseconds(1)), None);
        assert!(!opened.load(Ordering::Relaxed));
        let other = scope.spawn(|| barrier.wait());
        let mine = barrier.wait();
        assert!(mine ^ other.join().unwrap(), "exactly one is the last");
    });
}

/// Withdrawals race with openings: each round opens for all of its arrivals or for none.
#[test]
fn withdrawing_never_breaks_a_round() {
    const TASKS: u32 = 3;
    let trial = Trial::begin("withdrawing_never_breaks_a_round");
    let barrier = Barrier::new(TASKS);
    let (passed, last) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for task in 0..TASKS {
            let (barrier, passed, last) = (&barrier, &passed, &last);
            let mut random = trial.seed().rng(u64::from(task));
            scope.spawn(move || {
                for _ in 0..2000 {
                    if let Some(is_last) = barrier
                        .wait_until(Deadline::after(Duration::from_micros(random.u64(0..100))))
                    {
                        passed.fetch_add(1, Ordering::Relaxed);
                        last.fetch_add(u32::from(is_last), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), TASKS * last.into_inner());
    // Nobody is left behind as arrived.
    thread::scope(|scope| {
        for _ in 0..TASKS {
            scope.spawn(|| barrier.wait());
        }
    });
}

#[test]
fn a_barrier_works_between_processes_and_counts_the_dead_that_arrived() {
    let trial = Trial::begin("a_barrier_works_between_processes_and_counts_the_dead_that_arrived");
    let barrier = Mapped::new(Barrier::shared(3));
    let rounds = || {
        for _ in 0..200 {
            barrier.wait();
        }
    };
    let children = [Child::fork(rounds), Child::fork(rounds)];
    rounds();
    children.into_iter().for_each(Child::succeed);
    let mut arrived = Child::fork(|| {
        barrier.wait();
    });
    trial.wait_until(|| arrived.is_in_futex());
    arrived.kill();
    let other = Child::fork(|| {
        barrier.wait();
    });
    barrier.wait();
    other.succeed();
}

#[test]
#[should_panic(expected = "1 to 65,535")]
fn a_barrier_for_no_task_is_refused() {
    let _ = Barrier::new(0);
}

#[test]
fn a_barrier_for_one_never_waits() {
    let barrier = Barrier::new(1);
    assert!(
        (0..70_000).all(|_| barrier.wait()),
        "also when the round wraps"
    );
}

// Once

#[test]
fn once_runs_once_for_all_threads() {
    let _trial = Trial::begin("once_runs_once_for_all_threads");
    for _ in 0..200 {
        let once = pin!(Once::new());
        let once = once.as_ref();
        let runs = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    once.call(|| {
                        runs.fetch_add(1, Ordering::Relaxed);
                    })
                    .unwrap();
                    assert!(once.is_done());
                    assert_eq!(runs.load(Ordering::Relaxed), 1);
                });
            }
        });
    }
}

#[test]
fn once_runs_again_when_its_runner_panics() {
    let _trial = Trial::begin("once_runs_again_when_its_runner_panics");
    let once = pin!(Once::new());
    let once = once.as_ref();
    for _ in 0..2 {
        let run = || once.call(|| std::panic::resume_unwind(Box::new("run")));
        assert!(thread::scope(|scope| scope.spawn(run).join().is_err()));
        assert!(!once.is_done());
    }
    let mut runs = 0;
    once.call(|| runs += 1).unwrap();
    once.call(|| runs += 1).unwrap();
    assert_eq!(runs, 1);
}

#[test]
fn once_is_run_by_a_waiter_when_its_runner_dies() {
    let trial = Trial::begin("once_is_run_by_a_waiter_when_its_runner_dies");
    let once = Mapped::new(Once::new());
    let started = Page::<AtomicBool>::new();
    let runs = Page::<AtomicU32>::new();
    let mut runner = Child::fork(|| {
        let forever = || loop {
            started.store(true, Ordering::Release);
            thread::park();
        };
        once.pin().call(forever).unwrap();
    });
    trial.wait_until(|| started.load(Ordering::Acquire));
    let waiters = [0, 1, 2].map(|_| {
        Child::fork(|| {
            let run = || {
                runs.fetch_add(1, Ordering::Relaxed);
            };
            once.pin().call(run).unwrap();
            assert_eq!(runs.load(Ordering::Relaxed), 1);
        })
    });
    trial.wait_until(|| waiters.iter().all(Child::is_in_futex));
    assert_eq!(runner.kill(), Exit::Signal(libc::SIGKILL));
    waiters.into_iter().for_each(Child::succeed);
    assert!(once.is_done());
}

#[test]
fn once_reports_a_recursive_call() {
    let once = pin!(Once::new());
    let once = once.as_ref();
    let mut inner = Ok(());
    once.call(|| inner = once.call(|| ())).unwrap();
    assert_eq!(inner, Err(OnceError::Recursive));
    assert!(once.is_done());
}

/// In a region of its own, which lasts as long as the process.
fn once_in_region() -> &'static RegionOnce {
    let region = Box::leak(Box::new(RegionOptions::new().create_anonymous().unwrap()));
    region
        .object("once", RegionOnce::in_region)
        .unwrap()
        .get_ref()
}

#[test]
fn a_once_in_a_region_runs_once_for_all_threads_and_processes() {
    let _trial = Trial::begin("a_once_in_a_region_runs_once_for_all_threads_and_processes");
    for _ in 0..20 {
        let once = once_in_region();
        let runs = Page::<AtomicU32>::new();
        let run = || {
            let run = || {
                runs.fetch_add(1, Ordering::Relaxed);
            };
            once.call(run).unwrap();
            assert!(once.is_done());
            assert_eq!(runs.load(Ordering::Relaxed), 1);
        };
        let child = Child::fork(run);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(run);
            }
        });
        child.succeed();
    }
}

#[test]
fn a_once_in_a_region_runs_again_when_its_runner_panics_and_reports_a_recursive_call() {
    let once = once_in_region();
    for _ in 0..2 {
        let run = || once.call(|| std::panic::resume_unwind(Box::new("run")));
        assert!(thread::scope(|scope| scope.spawn(run).join().is_err()));
        assert!(!once.is_done());
    }
    let mut inner = Ok(());
    once.call(|| inner = once.call(|| ())).unwrap();
    assert_eq!(inner, Err(OnceError::Recursive));
    let mut runs = 0;
    once.call(|| runs += 1).unwrap();
    assert_eq!((runs, once.is_done()), (0, true));
}

#[test]
fn a_once_of_region_locks_is_refused_outside_regions_and_may_move() {
    let once = RegionOnce::in_region();
    let refused = Err(OnceError::NotATask(NotATask::NoRegion));
    assert_eq!(once.call(|| unreachable!("it cannot be locked")), refused);
    let region = RegionOptions::new().create_anonymous().unwrap();
    let once = region::Box::new_in(once, &region).unwrap();
    once.call(|| ()).unwrap();
    let moved = once.into_inner();
    assert_eq!(moved.call(|| unreachable!("it is done")), Ok(()));
    assert_eq!((size_of::<RegionOnce>(), align_of::<RegionOnce>()), (16, 8));
}

static ONCE: Once = Once::new();
static DONE: Completion<Shared> = Completion::shared();
static MEET: Barrier<Shared> = Barrier::shared(1);

#[test]
fn all_can_be_statics_and_have_the_promised_sizes() {
    Pin::static_ref(&ONCE).call(|| DONE.complete()).unwrap();
    assert!(DONE.try_wait() && MEET.wait());
    assert_eq!((size_of::<Completion>(), align_of::<Completion>()), (8, 8));
    assert_eq!((size_of::<Barrier>(), align_of::<Barrier>()), (8, 4));
    assert_eq!((size_of::<Once>(), align_of::<Once>()), (48, 8));
    // SAFETY: an integer.
    let zeroed: Completion = unsafe { core::mem::zeroed() };
    assert!(!zeroed.is_done());
}

// Spinlock (its exclusion is in `mutex.rs`)

#[test]
fn a_spinning_waiter_yields_to_a_preempted_holder() {
    let _trial = Trial::begin("a_spinning_waiter_yields_to_a_preempted_holder");
    let number = Mutex::from_raw(Spin::new(), 0_u32);
    thread::scope(|scope| {
        // More tasks than CPUs, and a holder that gives its CPU away inside.
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut guard = number.lock();
                    thread::yield_now();
                    *guard += 1;
                }
            });
        }
    });
    assert_eq!(*number.lock(), 400);
}
