//! Robust mutexes whose holders and waiters are killed.

use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::bodies::kill::{self, Arena, Found, Mortal};
use latchwork_testkit::bodies::rwlock::Halves;
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Exit, Page, Trial, die};

mod kill_support;
use kill_support::fresh;

type Lock = Mutex<Halves, Robust>;

/// A lock in a region.
struct Of<'r>(Pin<&'r Lock>);

impl Mortal for Of<'_> {
    type Held<'a>
        = RobustGuard<'a, Halves>
    where
        Self: 'a;

    fn acquire(
        &self,
        limit: Option<Duration>,
        repair: impl FnOnce(&mut Halves),
    ) -> Option<RobustGuard<'_, Halves>> {
        let taken = match limit {
            Some(limit) => self.0.lock_for(limit),
            None => self.0.lock(),
        };
        match taken {
            Ok(halves) => Some(halves),
            Err(LockError::OwnerDied(mut halves)) => {
                repair(&mut halves);
                Some(halves.make_consistent())
            }
            Err(LockError::TimedOut) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

fn arena(region: &Region) -> Arena<Of<'_>> {
    let lock = region.object("lock", || Lock::robust([0; 2]));
    Arena::new(Of(lock.unwrap()))
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label("kill_robust")
        .create_anonymous()
        .unwrap()
}

fn storm_over_the_lock(name: &'static str, seats: usize, kills: u64) {
    let trial = Trial::begin(name);
    let region = region();
    arena(&region).storm(&trial, seats, kills, false);
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
    storm_over_the_lock("many_waiters_are_all_freed_in_turn", 12, 600);
}

/// Each waiter dies in its turn, while it holds the lock, and the next one gets the report.
#[test]
fn a_chain_of_deaths_reaches_the_last_waiter() {
    let trial = Trial::begin("a_chain_of_deaths_reaches_the_last_waiter");
    const LINKS: u64 = 8;
    let region = region();
    let arena = &arena(&region);
    for _ in 0..trial.times(10) {
        let before = arena.deaths();
        let held = arena.enter();
        let mut links: Vec<Child> = (0..LINKS)
            .map(|_| {
                Child::fork(|| {
                    let mut halves = arena.enter();
                    halves[0] += 1;
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
        drop(arena.enter());
        // All but the first took it from a dead one, and so did we.
        assert_eq!(arena.deaths() - before, LINKS);
    }
}

#[test]
fn a_waiter_killed_asleep_is_not_waited_for() {
    let trial = Trial::begin("a_waiter_killed_asleep_is_not_waited_for");
    let region = region();
    let arena = &arena(&region);
    for round in 0..trial.times(20) {
        let held = arena.enter();
        let mut waiters: Vec<Child> = (0..3)
            .map(|_| Child::fork(|| drop(arena.enter())))
            .collect();
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
        drop(arena.enter());
    }
    assert_eq!(arena.deaths(), 0, "no holder died");
}

/// The wake-up of the release goes to a waiter that is killed before it can act upon it, and
/// meanwhile a newcomer, who knows of no waiters, took the lock. Its release must wake the other
/// waiter.
#[test]
fn a_waiter_killed_as_it_is_woken_leaves_no_sleeper_behind() {
    let trial = Trial::begin("a_waiter_killed_as_it_is_woken_leaves_no_sleeper_behind");
    let region = region();
    let arena = &arena(&region);
    for newcomer in [false, true] {
        let held = arena.enter();
        let Some(mut first) = step::Frozen::in_futex(&trial, || drop(arena.enter())) else {
            return;
        };
        let second = Child::fork(|| drop(arena.enter()));
        trial.wait_until(|| second.is_in_futex());
        drop(held);
        first.wait_until_woken(&trial);
        let barger = newcomer.then(|| arena.enter());
        first.kill();
        drop(barger);
        second.succeed();
    }
    assert_eq!(arena.deaths(), 0, "no holder died");
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
    kill::giving_up_is_never_half_done(
        &trial,
        || fresh(&region, || Lock::robust([0; 2])),
        |lock| core::mem::forget(lock.lock().unwrap()),
        |lock| give_up(*lock),
        |lock| give_up(*lock),
    );
}

fn give_up(lock: Pin<&Lock>) -> Found {
    match lock.lock() {
        Ok(_) => Found::NoDeath,
        Err(LockError::OwnerDied(died)) => {
            drop(died);
            Found::OwnerDied
        }
        Err(LockError::NotRecoverable) => Found::NotRecoverable,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn lock_and_unlock_are_recoverable_at_every_instruction() {
    let trial = Trial::begin("lock_and_unlock_are_recoverable_at_every_instruction");
    let region = region();
    let arena = &arena(&region);
    let mut died = 0;
    let section = || arena.change();
    step::each_instruction_and_recovery(
        &trial,
        "robust lock and unlock",
        || (),
        |(), span| {
            // Thread record and robust list are set up: that is for the next operation.
            section();
            span.run(section);
        },
        |()| false,
        |(), span| span.run(section),
        |(), point| {
            let before = arena.deaths();
            section();
            let dead = arena.deaths() - before;
            assert!(dead <= 1 && (point != Point::Finished || dead == 0));
            died += dead;
            step::reported(dead)
        },
    );
    // Of a few points none may lie between lock and unlock.
    let are_few = trial.points(100) < 100;
    assert!(died > 0 || are_few, "no kill hit a holder");
    let lock = || drop(arena.lock.0.lock().unwrap());
    step::each_instruction_and_recovery(
        &trial,
        "first robust lock of a process",
        || (),
        |(), span| span.run(section),
        |()| false,
        |(), span| span.run(section),
        |(), _| {
            section();
            arena.outcome()
        },
    );
    lock();
}

#[test]
fn a_contended_lock_is_recoverable_at_every_instruction() {
    let trial = Trial::begin("a_contended_lock_is_recoverable_at_every_instruction");
    let region = region();
    let arena = &arena(&region);
    let section = || drop(arena.enter());
    // We hold the lock until the child is asleep; a second waiter must get it in any case.
    step::each_instruction_and_recovery(
        &trial,
        "contended robust lock and unlock",
        || core::cell::RefCell::new(Some(arena.enter())),
        |_, span| span.run(section),
        |held| held.borrow_mut().take().is_some(),
        |_, span| span.run(section),
        |held, _| {
            let other = Child::fork(section);
            drop(held);
            other.succeed();
            section();
            arena.outcome()
        },
    );
    let contended = || {
        let held = arena.enter();
        let waiter = Child::fork(section);
        trial.wait_until(|| waiter.is_in_futex());
        core::cell::RefCell::new((Some(held), Some(waiter)))
    };
    step::each_instruction_and_recovery(
        &trial,
        "contended robust lock and unlock, with another waiter asleep",
        contended,
        |_, span| span.run(section),
        |world| world.borrow_mut().0.take().is_some(),
        |_, span| span.run(section),
        |world, _| {
            let (held, waiter) = world.into_inner();
            drop(held);
            waiter.unwrap().succeed();
            section();
            arena.outcome()
        },
    );
}

/// A child of a bare clone, of which libc knows nothing, is a task like any other.
#[test]
fn a_raw_clone_that_dies_with_the_lock_is_detected() {
    let trial = Trial::begin("a_raw_clone_that_dies_with_the_lock_is_detected");
    let region = region();
    let arena = &arena(&region);
    for _ in 0..trial.times(20) {
        let before = arena.deaths();
        drop(arena.enter());
        let mut child = Child::clone_raw(|| {
            let _held = arena.enter();
            die();
        });
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        drop(arena.enter());
        assert_eq!(arena.deaths(), before + 1);
    }
}
