//! Region locks whose owners, waiters and recoverers are killed.
#![cfg(not(loom))]

use core::cell::RefCell;
use core::mem::forget;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, RegionGuard, RegionProtocol};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork_testkit::bodies::kill::{self, Arena, Found, Mortal};
use latchwork_testkit::bodies::rwlock::Halves;
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Trial};

mod kill_support;
mod region_form_support;
use kill_support::fresh;
use region_form_support::with_every_form;

type Lock<P> = Mutex<Halves, InRegion<P>>;

trait Form: RegionProtocol + Shareable {}
impl<P: RegionProtocol + Shareable> Form for P {}

with_every_form!(
    every_survivor_makes_progress_after_each_kill
    many_waiters_survive_each_others_deaths
    recoverers_may_be_killed
    lock_and_unlock_are_recoverable_at_every_instruction
    a_first_lock_call_is_recoverable_at_every_instruction
    a_wait_is_recoverable_at_every_instruction
    a_timed_wait_is_recoverable_at_every_instruction
    an_unlock_with_a_sleeper_is_recoverable_at_every_instruction
    a_takeover_is_recoverable_at_every_instruction
    giving_up_is_never_half_done
    a_forgotten_guard_is_recoverable_at_every_instruction
);

/// A lock of a region.
struct Of<'r, P: RegionProtocol>(&'r Lock<P>);

impl<P: Form> Mortal for Of<'_, P> {
    type Held<'a>
        = RegionGuard<'a, Halves, P>
    where
        Self: 'a;

    fn acquire(
        &self,
        limit: Option<Duration>,
        repair: impl FnOnce(&mut Halves),
    ) -> Option<RegionGuard<'_, Halves, P>> {
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

fn new_lock<P: RegionProtocol>() -> Lock<P> {
    Mutex::from_raw(InRegion::new(), [0; 2])
}

fn arena<P: Form>(region: &Region) -> Arena<Of<'_, P>> {
    Arena::new(Of(region.object("lock", new_lock).unwrap().get_ref()))
}

/// With room for claims that are never freed ([`Trial::across_namespaces`]).
fn region(trial: &Trial) -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(1024)
        .label("kill_in_region")
        .any_pid_namespace(trial.is_across_namespaces())
        .create_anonymous()
        .unwrap()
}

fn storm<P: Form>(name: &'static str, seats: usize, kills: u64, of_recoverers: bool) {
    let trial = Trial::begin(name);
    let region = region(&trial);
    arena::<P>(&region).storm(&trial, seats, kills, of_recoverers);
    region.sweep().unwrap();
    region.check_heap().unwrap();
}

fn every_survivor_makes_progress_after_each_kill<P: Form>() {
    storm::<P>(
        "every_survivor_makes_progress_after_each_kill",
        4,
        150,
        false,
    );
}

fn many_waiters_survive_each_others_deaths<P: Form>() {
    storm::<P>("many_waiters_survive_each_others_deaths", 12, 240, false);
}

/// The tasks that take over from a dead owner are killed as they repair.
fn recoverers_may_be_killed<P: Form>() {
    storm::<P>("recoverers_may_be_killed", 5, 100, true);
}

fn lock_and_unlock_are_recoverable_at_every_instruction<P: Form>() {
    let trial =
        Trial::begin("lock_and_unlock_are_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let arena = &arena::<P>(&region);
    let covered = step::each_instruction_and_recovery(
        &trial,
        "free lock",
        || (),
        |(), span| {
            drop(arena.enter());
            span.run(|| arena.change());
        },
        |()| false,
        |(), span| span.run(|| arena.change()),
        |(), point| {
            let before = arena.deaths();
            arena.change();
            let dead = arena.deaths() - before;
            assert!(dead <= 1 && (point != Point::Finished || dead == 0));
            drop(arena.lock.0.try_lock().unwrap());
            step::reported(dead)
        },
    );
    println!("{covered:?}");
}

/// The lock call by which a thread becomes a task of the region.
fn a_first_lock_call_is_recoverable_at_every_instruction<P: Form>() {
    let trial =
        Trial::begin("a_first_lock_call_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let arena = &arena::<P>(&region);
    step::each_instruction_and_recovery(
        &trial,
        "first lock",
        || (),
        |(), span| span.run(|| arena.change()),
        |()| false,
        |(), span| span.run(|| arena.change()),
        |(), _| {
            arena.change();
            drop(arena.lock.0.try_lock().unwrap());
            arena.outcome()
        },
    );
}

/// A task that waits, and is killed; with another one asleep, which must get in.
fn a_wait_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("a_wait_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let arena = &arena::<P>(&region);
    let before = || {
        let held = arena.enter();
        let waiter = Child::fork(|| arena.change());
        trial.wait_until(|| waiter.is_in_futex());
        RefCell::new((Some(held), Some(waiter)))
    };
    let covered = step::each_instruction_and_recovery(
        &trial,
        "with another waiter asleep",
        before,
        |_, span| {
            region.join("victim").unwrap();
            span.run(|| arena.change());
        },
        |world| world.borrow_mut().0.take().is_some(),
        |_, span| span.run(|| arena.change()),
        |world, _| {
            let (held, waiter) = world.into_inner();
            drop(held);
            waiter.unwrap().succeed();
            arena.change();
            arena.outcome()
        },
    );
    println!("{covered:?}");
}

/// A task that waits for a limited time, in vain, and is killed; with another one asleep, which must get in.
fn a_timed_wait_is_recoverable_at_every_instruction<P: Form>() {
    let trial =
        Trial::begin("a_timed_wait_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let arena = &arena::<P>(&region);
    step::each_instruction_and_recovery(
        &trial,
        "timed lock, in vain",
        || {
            let held = arena.enter();
            let waiter = Child::fork(|| arena.change());
            trial.wait_until(|| waiter.is_in_futex());
            (held, waiter)
        },
        |_, span| {
            region.join("victim").unwrap();
            let taken = span.run(|| arena.lock.acquire(Some(Duration::from_millis(3)), |_| ()));
            assert!(taken.is_none());
        },
        // The limit ends each of its sleeps.
        |_| true,
        |_, span| {
            span.run(|| arena.lock.acquire(Some(Duration::from_millis(3)), |_| ()));
        },
        |(held, waiter), _| {
            let before = arena.deaths();
            drop(held);
            waiter.succeed();
            arena.change();
            assert_eq!(arena.deaths(), before, "no owner died");
            arena.outcome()
        },
    );
}

/// An unlock that has a sleeper to wake.
fn an_unlock_with_a_sleeper_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("an_unlock_with_a_sleeper_is_recoverable_at_every_instruction")
        .across_namespaces();
    let region = region(&trial);
    let arena = &arena::<P>(&region);
    let go = region.object("go", || AtomicU32::new(0)).unwrap();
    step::each_instruction_and_recovery(
        &trial,
        "unlock",
        || {
            go.store(0, SeqCst);
            // It waits for the victim to hold the lock.
            Some(Child::fork(|| {
                while go.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
                arena.change();
            }))
        },
        |waiter, span| {
            let held = arena.enter();
            go.store(1, SeqCst);
            while !waiter.as_ref().unwrap().is_in_futex() {
                std::thread::yield_now();
            }
            span.run(|| drop(held));
        },
        |_| false,
        |_, span| span.run(|| arena.change()),
        |waiter, _| {
            go.store(1, SeqCst);
            waiter.unwrap().succeed();
            arena.change();
            arena.outcome()
        },
    );
}

/// The first and the second task that takes over from a dead owner.
fn a_takeover_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("a_takeover_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let arena = &arena::<P>(&region);
    step::each_instruction_and_recovery(
        &trial,
        "takeover",
        || Child::fork(|| forget(arena.enter())).succeed(),
        |(), span| {
            // As another task would, so that only the lock passes on.
            region.sweep().unwrap();
            span.run(|| arena.change());
        },
        |()| false,
        |(), span| span.run(|| arena.change()),
        |(), point| {
            let before = arena.deaths();
            arena.change();
            let dead = arena.deaths() - before;
            assert!(dead <= 1 && (point != Point::Finished || dead == 0));
            step::reported(dead)
        },
    );
}

/// Whoever takes over from a dead owner gives the lock up, and may be killed while doing so.
fn giving_up_is_never_half_done<P: Form>() {
    let trial = Trial::begin("giving_up_is_never_half_done").across_namespaces();
    let region = region(&trial);
    kill::giving_up_is_never_half_done(
        &trial,
        || fresh(&region, new_lock::<P>),
        |lock| forget(lock.lock().unwrap()),
        |lock| give_up(lock),
        |lock| give_up(lock),
    );
}

fn give_up<P: Form>(lock: &Mutex<Halves, InRegion<P>>) -> Found {
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

/// A task that has forgotten a guard, and may not leave.
fn a_forgotten_guard_is_recoverable_at_every_instruction<P: Form>() {
    let trial =
        Trial::begin("a_forgotten_guard_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let arena = &arena::<P>(&region);
    step::each_instruction_and_recovery(
        &trial,
        "leave with a forgotten guard",
        || (),
        |(), span| {
            region.join("victim").unwrap();
            span.run(|| {
                forget(arena.enter());
                assert!(region.clone().detach().is_err());
            });
        },
        |()| false,
        |(), span| span.run(|| arena.change()),
        |(), _| {
            let before = arena.deaths();
            arena.change();
            let dead = arena.deaths() - before;
            assert!(dead <= 1);
            step::reported(dead)
        },
    );
}
