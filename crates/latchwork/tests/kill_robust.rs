//! Robust mutexes whose holders and waiters are killed.

use core::pin::Pin;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{Region, RegionOptions, Shareable, TornSafe};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Exit, Page, Storm, Trial, Worker, fastrand};

/// Equal, unless a holder died between the two stores.
#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Halves {
    left: u64,
    right: u64,
}

#[derive(Shareable)]
#[repr(C)]
struct Arena {
    lock: Mutex<Halves, Robust>,
    /// Who believes to hold the lock: process ID, or 0.
    owner: AtomicU32,
    torn: AtomicU64,
    died: AtomicU64,
    progress: [AtomicU64; 16],
}

impl Arena {
    fn new() -> Self {
        Self {
            lock: Mutex::robust(Halves { left: 0, right: 0 }),
            owner: AtomicU32::new(0),
            torn: AtomicU64::new(0),
            died: AtomicU64::new(0),
            progress: [const { AtomicU64::new(0) }; 16],
        }
    }

    fn lock(&self) -> Pin<&Mutex<Halves, Robust>> {
        // SAFETY: part of a named object, which does not move.
        #[allow(unsafe_code)]
        unsafe {
            Pin::new_unchecked(&self.lock)
        }
    }
}

fn arena(region: &Region) -> &Arena {
    region.object("arena", Arena::new).unwrap().get_ref()
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label("kill_robust")
        .create_anonymous()
        .unwrap()
}

/// Takes the lock, and repairs what a dead holder left.
fn take(arena: &Arena) -> RobustGuard<'_, Halves> {
    match arena.lock().lock() {
        Ok(halves) => {
            assert_eq!(halves.left, halves.right, "torn data without OwnerDied");
            assert_eq!(
                arena.owner.load(SeqCst),
                0,
                "taken without OwnerDied from one who did not release it"
            );
            halves
        }
        Err(LockError::OwnerDied(mut halves)) => {
            arena.died.fetch_add(1, SeqCst);
            if halves.left != halves.right {
                arena.torn.fetch_add(1, SeqCst);
                halves.left = halves.left.max(halves.right);
                halves.right = halves.left;
            }
            halves.make_consistent()
        }
        Err(error) => panic!("{error}"),
    }
}

fn critical_section(arena: &Arena, rng: &mut fastrand::Rng) {
    let me = std::process::id();
    let mut halves = take(arena);
    arena.owner.store(me, SeqCst);
    halves.left += 1;
    match rng.u32(..16) {
        // Off the CPU with the lock held: the others go to sleep.
        0 => std::thread::sleep(core::time::Duration::from_micros(rng.u64(..150))),
        1 => std::thread::yield_now(),
        turns => (0..turns * 10).for_each(|_| core::hint::spin_loop()),
    }
    halves.right += 1;
    assert_eq!(arena.owner.load(SeqCst), me, "two tasks hold the lock");
    assert_eq!(halves.left, halves.right);
    arena.owner.store(0, SeqCst);
}

fn storm_over_the_lock(name: &'static str, seats: usize, kills: u64) {
    let trial = Trial::begin(name);
    let region = region();
    let arena = arena(&region);
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        loop {
            critical_section(arena, &mut rng);
            arena.progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, seats, work);
    let kills = trial.times(kills);
    while storm.kills() < kills {
        storm.kill();
        storm.wait_for_progress(|seat| arena.progress[seat].load(SeqCst));
    }
    storm.kill_all();
    drop(take(arena));
    let sections = arena.lock().try_lock().unwrap().left;
    let counted: u64 = arena.progress.iter().map(|count| count.load(SeqCst)).sum();
    assert!(
        sections >= counted,
        "{counted} sections were completed, but the data knows of {sections}"
    );
    storm.finish();
    println!(
        "{name}: {} owners died, {} left torn data",
        arena.died.load(SeqCst),
        arena.torn.load(SeqCst)
    );
    region.sweep().unwrap();
    region.check_heap().unwrap();
}

#[test]
fn every_survivor_makes_progress_after_each_kill() {
    storm_over_the_lock("every_survivor_makes_progress_after_each_kill", 4, 300);
}

#[test]
fn two_tasks_in_turn_survive_each_others_deaths() {
    storm_over_the_lock("two_tasks_in_turn_survive_each_others_deaths", 2, 150);
}

#[test]
fn many_waiters_are_all_freed_in_turn() {
    storm_over_the_lock("many_waiters_are_all_freed_in_turn", 12, 150);
}

/// Each waiter dies in its turn, while it holds the lock, and the next one gets the report.
#[test]
fn a_chain_of_deaths_reaches_the_last_waiter() {
    let trial = Trial::begin("a_chain_of_deaths_reaches_the_last_waiter");
    const LINKS: u64 = 8;
    let region = region();
    let arena = arena(&region);
    for _ in 0..trial.times(10) {
        arena.died.store(0, SeqCst);
        let held = take(arena);
        let mut links: Vec<Child> = (0..LINKS)
            .map(|_| {
                Child::fork(|| {
                    let mut halves = take(arena);
                    halves.left += 1;
                    die();
                })
            })
            .collect();
        for link in &links {
            trial.wait_until(|| link.is_in_futex());
        }
        drop(held);
        for link in &mut links {
            assert_eq!(link.wait(), Exit::Signal(libc::SIGKILL));
        }
        drop(take(arena));
        // All but the first took it from a dead one, and so did we.
        assert_eq!(arena.died.load(SeqCst), LINKS);
    }
}

#[allow(unsafe_code)]
fn die() {
    // SAFETY: ends the calling process, which is a child of the test.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
fn a_waiter_killed_asleep_is_not_waited_for() {
    let trial = Trial::begin("a_waiter_killed_asleep_is_not_waited_for");
    let region = region();
    let arena = arena(&region);
    for round in 0..trial.times(20) {
        let held = take(arena);
        let mut waiters: Vec<Child> = (0..3).map(|_| Child::fork(|| drop(take(arena)))).collect();
        for waiter in &waiters {
            trial.wait_until(|| waiter.is_in_futex());
        }
        assert_eq!(
            waiters[round as usize % 3].kill(),
            Exit::Signal(libc::SIGKILL)
        );
        drop(held);
        waiters.remove(round as usize % 3);
        waiters.into_iter().for_each(Child::succeed);
        drop(take(arena));
    }
    assert_eq!(arena.died.load(SeqCst), 0, "no holder died");
}

/// The wake-up of the release goes to a waiter that is killed before it can act upon it, and
/// meanwhile a newcomer, who knows of no waiters, took the lock. Its release must wake the other
/// waiter.
#[test]
fn a_waiter_killed_as_it_is_woken_leaves_no_sleeper_behind() {
    let trial = Trial::begin("a_waiter_killed_as_it_is_woken_leaves_no_sleeper_behind");
    let region = region();
    let arena = arena(&region);
    for newcomer in [false, true] {
        let held = take(arena);
        let Some(mut first) = step::Frozen::in_futex(&trial, || drop(take(arena))) else {
            return;
        };
        let second = Child::fork(|| drop(take(arena)));
        trial.wait_until(|| second.is_in_futex());
        drop(held);
        first.wait_until_woken(&trial);
        let barger = newcomer.then(|| take(arena));
        first.kill();
        drop(barger);
        second.succeed();
    }
    assert_eq!(arena.died.load(SeqCst), 0, "no holder died");
}

#[test]
fn a_lock_left_unrepaired_is_not_recoverable_for_all_waiters() {
    let trial = Trial::begin("a_lock_left_unrepaired_is_not_recoverable_for_all_waiters");
    let region = region();
    for round in 0..trial.times(10) {
        let lock = region
            .object(&format!("lock {round}"), || Mutex::robust(0_u64))
            .unwrap();
        let ready = Page::<AtomicU32>::new();
        let mut holder = Child::fork(|| {
            let _held = lock.lock().unwrap();
            ready.store(1, SeqCst);
            loop {
                std::thread::park();
            }
        });
        trial.wait_until(|| ready.load(SeqCst) == 1);
        let waiters: Vec<Child> = (0..4)
            .map(|_| {
                Child::fork(|| match lock.lock() {
                    // The first one gives it up.
                    Err(LockError::OwnerDied(died)) => {
                        ready.fetch_add(1, SeqCst);
                        drop(died);
                    }
                    Err(LockError::NotRecoverable) => {}
                    other => panic!("{other:?}"),
                })
            })
            .collect();
        for waiter in &waiters {
            trial.wait_until(|| waiter.is_in_futex());
        }
        holder.kill();
        waiters.into_iter().for_each(Child::succeed);
        assert_eq!(
            ready.load(SeqCst),
            2,
            "one waiter got the report of the death"
        );
        assert!(matches!(lock.lock(), Err(LockError::NotRecoverable)));
        assert!(matches!(lock.try_lock(), Err(LockError::NotRecoverable)));
    }
}

/// Whoever takes over a dead holder's lock gives it up, and may be killed while doing so.
#[test]
fn becoming_not_recoverable_is_atomic() {
    let trial = Trial::begin("becoming_not_recoverable_is_atomic");
    let region = region();
    let mut round = 0;
    step::each_instruction(
        &trial,
        "give up",
        || {
            round += 1;
            let lock = region
                .object(&format!("lock {}", round % 1000), || Mutex::robust(0_u64))
                .unwrap();
            if round <= 1000 {
                Child::fork(|| core::mem::forget(lock.lock().unwrap())).succeed();
            }
            lock
        },
        |lock, span| {
            span.run(|| match lock.lock() {
                Err(LockError::OwnerDied(died)) => drop(died),
                other => drop(other),
            });
        },
        |_| false,
        |lock, _| match lock.lock() {
            Ok(_) => panic!("unrepaired data was passed on as consistent"),
            Err(LockError::OwnerDied(died)) => drop(died),
            Err(LockError::NotRecoverable) => {}
            Err(error) => panic!("{error}"),
        },
    );
}

#[test]
fn lock_and_unlock_are_recoverable_at_every_instruction() {
    let trial = Trial::begin("lock_and_unlock_are_recoverable_at_every_instruction");
    let region = region();
    let arena = arena(&region);
    let mut died = 0;
    let section = || {
        let mut halves = take(arena);
        halves.left += 1;
        core::sync::atomic::compiler_fence(SeqCst);
        halves.right += 1;
    };
    step::each_instruction(
        &trial,
        "robust lock and unlock",
        || (),
        |(), span| {
            // Thread record and robust list are set up: that is for the next operation.
            section();
            span.run(section);
        },
        |()| false,
        |(), point| {
            let before = arena.died.load(SeqCst);
            section();
            let dead = arena.died.load(SeqCst) - before;
            assert!(dead <= 1 && (point != Point::Finished || dead == 0));
            died += dead;
        },
    );
    assert!(died > 0 || trial.name().is_empty(), "no kill hit a holder");
    let lock = || drop(arena.lock().lock().unwrap());
    step::each_instruction(
        &trial,
        "first robust lock of a process",
        || (),
        |(), span| span.run(section),
        |()| false,
        |(), _| section(),
    );
    lock();
}

#[test]
fn a_contended_lock_is_recoverable_at_every_instruction() {
    let trial = Trial::begin("a_contended_lock_is_recoverable_at_every_instruction");
    let region = region();
    let arena = arena(&region);
    let section = || drop(take(arena));
    // We hold the lock until the child is asleep; a second waiter must get it in any case.
    step::each_instruction(
        &trial,
        "contended robust lock and unlock",
        || core::cell::RefCell::new(Some(take(arena))),
        |_, span| span.run(section),
        |held| held.borrow_mut().take().is_some(),
        |held, _| {
            let other = Child::fork(section);
            drop(held);
            other.succeed();
            section();
        },
    );
    let contended = || {
        let held = take(arena);
        let waiter = Child::fork(section);
        trial.wait_until(|| waiter.is_in_futex());
        core::cell::RefCell::new((Some(held), Some(waiter)))
    };
    step::each_instruction(
        &trial,
        "contended robust lock and unlock, with another waiter asleep",
        contended,
        |_, span| span.run(section),
        |world| world.borrow_mut().0.take().is_some(),
        |world, _| {
            let (held, waiter) = world.into_inner();
            drop(held);
            waiter.unwrap().succeed();
            section();
        },
    );
}

/// A child of a bare clone, of which libc knows nothing, is a task like any other.
#[test]
fn a_raw_clone_that_dies_with_the_lock_is_detected() {
    let trial = Trial::begin("a_raw_clone_that_dies_with_the_lock_is_detected");
    let region = region();
    let arena = arena(&region);
    for _ in 0..trial.times(20) {
        let before = arena.died.load(SeqCst);
        drop(take(arena));
        let mut child = Child::clone_raw(|| {
            let _held = take(arena);
            die();
        });
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        drop(take(arena));
        assert_eq!(arena.died.load(SeqCst), before + 1);
    }
}
