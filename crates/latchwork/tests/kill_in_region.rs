//! Region locks whose owners, waiters and recoverers are killed.
#![cfg(not(loom))]

use core::mem::forget;
use core::time::Duration;
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, RegionGuard, RegionProtocol, Throughput, WaitWake};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::bodies::kill::{self, Arena, Found, Mortal};
use latchwork_testkit::bodies::rwlock::Halves;
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Trial};

mod kill_support;
mod region_form_support;
use kill_support::fresh;
use region_form_support::with_every_form;

type Lock<P> = Mutex<Halves, InRegion<P>>;

trait Form: RegionProtocol + Shareable {
    /// Whether a lone waiter makes so few polls that a test can step through them wherever it runs.
    const POLLS_ARE_FEW: bool;
}

impl Form for WaitWake<Shared> {
    const POLLS_ARE_FEW: bool = true;
}

impl Form for Throughput<Shared> {
    const POLLS_ARE_FEW: bool = false;
}

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
        held(taken, repair)
    }
}

/// The same, acquired by waits that a signal handler may end.
struct Interruptibly<'r, P: RegionProtocol>(&'r Lock<P>);

impl<P: Form> Mortal for Interruptibly<'_, P> {
    type Held<'a>
        = RegionGuard<'a, Halves, P>
    where
        Self: 'a;

    fn acquire(
        &self,
        limit: Option<Duration>,
        repair: impl FnOnce(&mut Halves),
    ) -> Option<RegionGuard<'_, Halves, P>> {
        held(
            self.0.lock_interruptible(limit.map(Deadline::after)),
            repair,
        )
    }
}

/// What a call that acquires the lock returned.
fn held<'a, P: Form>(
    taken: Result<RegionGuard<'a, Halves, P>, LockError<'a, Halves, P>>,
    repair: impl FnOnce(&mut Halves),
) -> Option<RegionGuard<'a, Halves, P>> {
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

fn new_lock<P: RegionProtocol>() -> Lock<P> {
    Mutex::from_raw(InRegion::new(), [0; 2])
}

fn lock_in<P: Form>(region: &Region) -> &Lock<P> {
    region.object("lock", new_lock).unwrap().get_ref()
}

fn arena<P: Form>(region: &Region) -> Arena<Of<'_, P>> {
    Arena::new(Of(lock_in(region)))
}

fn interruptible_arena<P: Form>(region: &Region) -> Arena<Interruptibly<'_, P>> {
    Arena::new(Interruptibly(lock_in(region)))
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
    arena.kill_in_free_pair(&trial, || drop(arena.lock.0.try_lock().unwrap()));
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

/// In a wait that no signal handler ends, and in one that a handler may end.
fn a_wait_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("a_wait_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let join = || {
        region.join("victim").unwrap();
    };
    if P::POLLS_ARE_FEW {
        arena::<P>(&region).kill_in_lone_wait(&trial, "lone wait", join);
    }
    arena::<P>(&region).kill_in_wait(&trial, "wait", join);
    interruptible_arena::<P>(&region).kill_in_wait(&trial, "interruptible wait", join);
}

fn a_timed_wait_is_recoverable_at_every_instruction<P: Form>() {
    let trial =
        Trial::begin("a_timed_wait_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let join = || {
        region.join("victim").unwrap();
    };
    arena::<P>(&region).kill_in_timed_wait(&trial, "timed wait", join);
    interruptible_arena::<P>(&region).kill_in_timed_wait(&trial, "timed interruptible wait", join);
}

fn an_unlock_with_a_sleeper_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("an_unlock_with_a_sleeper_is_recoverable_at_every_instruction")
        .across_namespaces();
    let region = region(&trial);
    arena::<P>(&region).kill_in_unlock_with_sleeper(&trial);
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
