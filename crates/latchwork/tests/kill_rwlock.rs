//! Robust reader/writer locks whose readers, writers and waiters are killed: those that the kernel's list finds, and those
//! of region locks.
#![cfg(not(loom))]

use core::cell::RefCell;
use core::mem::forget;
use core::pin::Pin;
use core::time::Duration;
use latchwork::mutex::{InRegion, Robust};
use latchwork::region::{Region, Shareable};
use latchwork::rwlock::{
    LockError, RegionRwLock, RobustReadGuard, RobustRwLock, RobustWriteGuard, SeatLock, Uncounted,
};
use latchwork_testkit::bodies::kill::{self, Found, Mortal, MortalReaders};
use latchwork_testkit::bodies::rwlock::Halves;
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Trial};

mod kill_support;
use kill_support::{begin_with, fresh, region};

const READERS: usize = 3;

type Lock<K> = RobustRwLock<Halves, READERS, Uncounted, K>;
type Reading<'a, K> = RobustReadGuard<'a, Halves, READERS, Uncounted, K>;
type Writing<'a, K> = RobustWriteGuard<'a, Halves, READERS, Uncounted, K>;
type Failure<'a, K> = LockError<'a, Halves, READERS, Uncounted, K>;
type Arena<'r, K> = kill::Arena<Of<'r, K>>;

/// The kinds of robust mutexes that the locks are made of.
trait Kind: SeatLock + Shareable {
    fn lock() -> Lock<Self>;
    /// What a task does first, which other tests kill.
    fn prepare(region: &Region);
}

impl Kind for Robust {
    fn lock() -> Lock<Self> {
        Lock::new([0; 2])
    }
    fn prepare(_: &Region) {}
}

impl Kind for InRegion {
    fn lock() -> Lock<Self> {
        RegionRwLock::in_region([0; 2])
    }
    fn prepare(region: &Region) {
        region.join("victim").unwrap();
    }
}

/// A lock of a region.
struct Of<'r, K: Kind>(Pin<&'r Lock<K>>);

/// Declares the data whole after a repair.
fn repaired<'a, K: Kind>(
    error: Failure<'a, K>,
    repair: impl FnOnce(&mut Halves),
) -> Option<Writing<'a, K>> {
    match error {
        LockError::OwnerDied(mut halves) => {
            repair(&mut halves);
            Some(halves.make_consistent())
        }
        LockError::TimedOut => None,
        error => panic!("{error}"),
    }
}

impl<'r, K: Kind> Mortal for Of<'r, K> {
    type Held<'a>
        = Writing<'a, K>
    where
        Self: 'a;

    fn acquire(
        &self,
        limit: Option<Duration>,
        repair: impl FnOnce(&mut Halves),
    ) -> Option<Writing<'_, K>> {
        let taken = match limit {
            Some(limit) => self.0.write_for(limit),
            None => self.0.write(),
        };
        match taken {
            Ok(halves) => Some(halves),
            Err(error) => repaired(error, repair),
        }
    }
}

impl<'r, K: Kind> MortalReaders for Of<'r, K> {
    type Reading<'a>
        = Reading<'a, K>
    where
        Self: 'a;

    fn read(&self, repair: impl FnOnce(&mut Halves)) -> Result<Reading<'_, K>, Writing<'_, K>> {
        let taken = self.0.read();
        taken.map_err(|error| repaired(error, repair).expect("a wait without a limit"))
    }

    fn downgrade<'a>(held: Writing<'a, K>) -> Reading<'a, K>
    where
        Self: 'a,
    {
        Writing::downgrade(held)
    }
}

fn arena<K: Kind>(region: &Region) -> Arena<'_, K> {
    kill::Arena::new(Of(region.object("lock", K::lock).unwrap()))
}

/// A storm over tasks of which `write_pct` of the sections write.
fn storm<K: Kind>(name: &'static str, seats: usize, kills: u64, write_pct: u32) {
    let trial = Trial::begin(name);
    let region = region("kill_rwlock");
    arena::<K>(&region).storm_with_readers(&trial, seats, kills, write_pct);
    region.sweep().unwrap();
    region.check_heap().unwrap();
}

fn every_survivor_makes_progress_after_each_kill<K: Kind>(name: &'static str) {
    storm::<K>(name, 4, 200, 50);
}

fn many_readers_and_few_writers_survive_each_others_deaths<K: Kind>(name: &'static str) {
    // More than there are seats for.
    storm::<K>(name, 8, 120, 30);
}

fn readers_alone_survive_each_others_deaths<K: Kind>(name: &'static str) {
    storm::<K>(name, 6, 100, 0);
}

fn recoverers_may_be_killed<K: Kind>(name: &'static str) {
    let trial = Trial::begin(name);
    let region = region("kill_rwlock");
    arena::<K>(&region).storm(&trial, 5, 60, true);
}

/// Kills `section`, and lets `then` be done by another process afterwards. Nobody is told of the death,
/// but where `may_tear`.
fn free_lock_killed_at_every_instruction<K: Kind>(
    name: &'static str,
    section: fn(&Arena<'_, K>),
    may_tear: bool,
) {
    let (trial, region) = begin_with::<Lock<K>>(name, "kill_rwlock");
    let arena = &arena::<K>(&region);
    let mut died = 0;
    step::each_instruction_and_recovery(
        &trial,
        "free lock",
        || (),
        |(), span| {
            // Thread record and robust list are set up: `kill_robust.rs` kills that.
            drop(arena.enter());
            span.run(|| section(arena));
        },
        |()| false,
        // It does the same: a task that only reads is not reported either.
        |(), span| span.run(|| section(arena)),
        |(), point| {
            let before = arena.deaths();
            match died % 3 {
                0 => drop(arena.read()),
                _ => arena.change(),
            }
            let dead = arena.deaths() - before;
            assert!(dead <= 1 && (point != Point::Finished && may_tear || dead == 0));
            died += 1;
            // All seats are free.
            let readers: Vec<_> = (0..READERS).map(|_| arena.read()).collect();
            drop(readers);
            drop(arena.lock.0.try_write().unwrap());
            step::reported(dead)
        },
    );
}

fn reading_is_recoverable_at_every_instruction<K: Kind>(name: &'static str) {
    free_lock_killed_at_every_instruction::<K>(name, |arena| drop(arena.read()), false);
}

fn writing_is_recoverable_at_every_instruction<K: Kind>(name: &'static str) {
    free_lock_killed_at_every_instruction::<K>(name, |arena| arena.change(), true);
}

fn a_downgrade_is_recoverable_at_every_instruction<K: Kind>(name: &'static str) {
    free_lock_killed_at_every_instruction::<K>(
        name,
        |arena| drop(Writing::downgrade(arena.enter())),
        true,
    );
}

/// What keeps the others out until it is dropped.
enum Held<'a, K: Kind> {
    Reading(#[allow(dead_code, reason = "held")] Reading<'a, K>),
    Writing(#[allow(dead_code, reason = "held")] Writing<'a, K>),
}

/// A task that waits, and is killed; with another one asleep, which must get in.
fn waiting_killed_at_every_instruction<K: Kind>(
    name: &'static str,
    hold: for<'a> fn(&'a Arena<'_, K>) -> Vec<Held<'a, K>>,
    section: fn(&Arena<'_, K>),
    other: fn(&Arena<'_, K>),
) {
    let (trial, region) = begin_with::<Lock<K>>(name, "kill_rwlock");
    let arena = &arena::<K>(&region);
    let before = || {
        let held = hold(arena);
        let waiter = Child::fork(|| other(arena));
        trial.wait_until(|| waiter.is_in_futex());
        RefCell::new((held, Some(waiter)))
    };
    step::each_instruction_and_recovery(
        &trial,
        "with another waiter asleep",
        before,
        |_, span| {
            K::prepare(&region);
            span.run(|| section(arena));
        },
        |world| !core::mem::take(&mut world.borrow_mut().0).is_empty(),
        |_, span| span.run(|| section(arena)),
        |world, _| {
            let (held, waiter) = world.into_inner();
            drop(held);
            waiter.unwrap().succeed();
            drop(arena.read());
            arena.change();
            arena.outcome()
        },
    );
}

fn a_reader_that_waits_for_a_writer_is_recoverable_at_every_instruction<K: Kind>(
    name: &'static str,
) {
    waiting_killed_at_every_instruction::<K>(
        name,
        |arena| vec![Held::Writing(arena.enter())],
        |arena| drop(arena.read()),
        |arena| drop(arena.read()),
    );
}

fn a_writer_that_waits_for_a_reader_is_recoverable_at_every_instruction<K: Kind>(
    name: &'static str,
) {
    waiting_killed_at_every_instruction::<K>(
        name,
        |arena| vec![Held::Reading(arena.read())],
        |arena| arena.change(),
        |arena| arena.change(),
    );
}

fn a_reader_that_waits_for_a_seat_is_recoverable_at_every_instruction<K: Kind>(name: &'static str) {
    waiting_killed_at_every_instruction::<K>(
        name,
        |arena| (0..READERS).map(|_| Held::Reading(arena.read())).collect(),
        |arena| drop(arena.read()),
        |arena| arena.change(),
    );
}

/// A task that waits for a limited time, in vain, and is killed; with another one asleep, which must get in.
fn timed_wait_killed_at_every_instruction<K: Kind>(
    name: &'static str,
    operation: &str,
    hold: for<'a> fn(&'a Arena<'_, K>) -> Vec<Held<'a, K>>,
    in_vain: for<'a> fn(Pin<&'a Lock<K>>) -> Option<Failure<'a, K>>,
) {
    let (trial, region) = begin_with::<Lock<K>>(name, "kill_rwlock");
    let arena = &arena::<K>(&region);
    let lock = arena.lock.0;
    step::each_instruction_and_recovery(
        &trial,
        operation,
        || {
            let held = hold(arena);
            let waiter = Child::fork(|| arena.change());
            trial.wait_until(|| waiter.is_in_futex());
            (held, waiter)
        },
        |_, span| {
            K::prepare(&region);
            assert!(matches!(
                span.run(|| in_vain(lock)),
                Some(LockError::TimedOut)
            ));
        },
        // The limit ends each of its sleeps.
        |_| true,
        |_, span| {
            span.run(|| in_vain(lock));
        },
        |(held, waiter), _| {
            let before = arena.deaths();
            drop(held);
            waiter.succeed();
            drop(arena.read());
            arena.change();
            assert_eq!(arena.deaths(), before, "no owner died");
            arena.outcome()
        },
    );
}

const LIMIT: Duration = Duration::from_millis(3);

fn a_timed_read_is_recoverable_at_every_instruction<K: Kind>(name: &'static str) {
    timed_wait_killed_at_every_instruction::<K>(
        name,
        "timed read, in vain",
        |arena| vec![Held::Writing(arena.enter())],
        |lock| lock.read_for(LIMIT).err(),
    );
}

fn a_timed_read_without_a_seat_is_recoverable_at_every_instruction<K: Kind>(name: &'static str) {
    timed_wait_killed_at_every_instruction::<K>(
        name,
        "timed read without a seat, in vain",
        |arena| (0..READERS).map(|_| Held::Reading(arena.read())).collect(),
        |lock| lock.read_for(LIMIT).err(),
    );
}

fn a_timed_write_is_recoverable_at_every_instruction<K: Kind>(name: &'static str) {
    timed_wait_killed_at_every_instruction::<K>(
        name,
        "timed write, in vain",
        |arena| vec![Held::Reading(arena.read())],
        |lock| lock.write_for(LIMIT).err(),
    );
}

/// Whoever takes over from a dead writer gives the lock up, and may be killed while doing so.
fn giving_up_is_never_half_done<K: Kind>(name: &'static str) {
    let (trial, region) = begin_with::<Lock<K>>(name, "kill_rwlock");
    kill::giving_up_is_never_half_done(
        &trial,
        || fresh(&region, K::lock),
        |lock| forget(lock.write().unwrap()),
        |lock| found(lock.read()),
        |lock| found(lock.write()),
    );
}

/// What a call has found that gives the lock up.
fn found<G, K: Kind>(got: Result<G, LockError<'_, Halves, READERS, Uncounted, K>>) -> Found {
    match got {
        Ok(_) => Found::NoDeath,
        Err(LockError::OwnerDied(died)) => {
            drop(died);
            Found::OwnerDied
        }
        Err(LockError::NotRecoverable) => Found::NotRecoverable,
        Err(error) => panic!("{error}"),
    }
}

/// A test of each, for both kinds.
macro_rules! tests {
    ($($test:ident)*) => {
        mod listed {
            $(#[test]
            fn $test() {
                super::$test::<super::Robust>(concat!("listed::", stringify!($test)));
            })*
        }
        mod in_region {
            $(#[test]
            fn $test() {
                super::$test::<super::InRegion>(concat!("in_region::", stringify!($test)));
            })*
        }
    };
}
tests! {
    every_survivor_makes_progress_after_each_kill
    many_readers_and_few_writers_survive_each_others_deaths
    readers_alone_survive_each_others_deaths
    recoverers_may_be_killed
    reading_is_recoverable_at_every_instruction
    writing_is_recoverable_at_every_instruction
    a_downgrade_is_recoverable_at_every_instruction
    a_reader_that_waits_for_a_writer_is_recoverable_at_every_instruction
    a_writer_that_waits_for_a_reader_is_recoverable_at_every_instruction
    a_reader_that_waits_for_a_seat_is_recoverable_at_every_instruction
    a_timed_read_is_recoverable_at_every_instruction
    a_timed_read_without_a_seat_is_recoverable_at_every_instruction
    a_timed_write_is_recoverable_at_every_instruction
    giving_up_is_never_half_done
}
