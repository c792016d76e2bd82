//! Other checked objects, whose users are killed at each instruction: what the dead have left in the checker's records leads
//! no survivor's checker astray.

use super::{Arena, Kind, Lock, arena, count_findings, nested, region, take};
use core::cell::{Cell, RefCell};
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::check::{self, Checked};
use latchwork::condvar::Condvar;
use latchwork::mutex::{LockError, RobustGuard};
use latchwork::region::Region;
use latchwork::rwlock::RawRwLock;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline};
use latchwork::sharing::Shared;
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Trial};
use lock_api::{RawRwLock as _, RawRwLockTimed as _};

/// The checked locks of a region, and what the checker has found.
#[derive(Clone, Copy)]
struct Field<'r> {
    region: &'r Region,
    arena: &'r Arena,
    locks: [Pin<&'r Lock>; 3],
}

impl<'r> Field<'r> {
    /// From now on this process counts what it finds. The checker has begun.
    fn new(region: &'r Region) -> Self {
        let (arena, locks) = arena(region);
        count_findings(arena);
        nested(&locks);
        Self {
            region,
            arena,
            locks,
        }
    }

    /// The calling process becomes a task, which the checker knows.
    fn prepare(self) {
        self.region.join("victim").unwrap();
        nested(&self.locks[..1]);
    }

    /// A survivor has a lock for which another one waits: so the checker of that one reads the records of all tasks. Then
    /// both use all locks.
    fn look_around(self, trial: &Trial) {
        let held = take(self.locks[0]);
        let waiter = Child::fork(|| nested(&self.locks));
        trial.wait_until(|| waiter.is_in_futex());
        drop(held);
        waiter.succeed();
        nested(&self.locks);
    }

    fn check(self, point: Point) {
        let findings = self.arena.findings.load(SeqCst);
        assert_eq!(findings, 0, "false alarms, killed at {point:?}");
    }
}

/// A checked lock that is not robust: what a dead task held stays locked.
type Table = Checked<RawRwLock<Shared>>;

#[allow(unsafe_code)]
fn leave(table: &Table, exclusive: bool) {
    // SAFETY: the caller has entered it in this mode.
    unsafe {
        match exclusive {
            true => table.unlock_exclusive(),
            false => table.unlock_shared(),
        }
    }
}

fn enter(table: &Table, exclusive: bool) {
    match exclusive {
        true => table.lock_exclusive(),
        false => table.lock_shared(),
    }
}

/// Whether it was entered within the time.
fn enter_for(table: &Table, exclusive: bool, limit: Duration) -> bool {
    match exclusive {
        true => table.try_lock_exclusive_for(limit),
        false => table.try_lock_shared_for(limit),
    }
}

/// Kills a checked reader or writer; if it is `held_up`, it waits first, for a writer.
fn rwlock_killed_at_every_instruction(name: &'static str, exclusive: bool, held_up: bool) {
    const PATIENCE: Duration = Duration::from_millis(2);
    let trial = Trial::begin(name);
    let region = region();
    let field = Field::new(&region);
    let what = if exclusive { "write" } else { "read" };
    let waits = if held_up { ", after a wait" } else { "" };
    step::each_instruction_and_recovery(
        &trial,
        &format!("checked reader/writer lock, {what}{waits}"),
        || {
            let make = || Table::named("table", RawRwLock::new());
            let table = field.region.object("table", make).unwrap().get_ref();
            // This process knows the order, and with it each victim: so all of them execute the same.
            enter(table, exclusive);
            nested(&field.locks[..1]);
            leave(table, exclusive);
            if held_up {
                enter(table, true);
            }
            (table, Cell::new(held_up))
        },
        |(table, _), span| {
            field.prepare();
            span.run(|| {
                enter(table, exclusive);
                // What it holds and wants has two entries.
                nested(&field.locks[..1]);
                leave(table, exclusive);
            });
        },
        |(table, is_held)| {
            let was_held = is_held.replace(false);
            if was_held {
                leave(table, true);
            }
            was_held
        },
        |(table, _), span| {
            span.run(|| {
                nested(&field.locks);
                if enter_for(table, false, PATIENCE) {
                    leave(table, false);
                }
            });
        },
        |(table, is_held), point| {
            field.look_around(&trial);
            if is_held.get() {
                leave(table, true);
            }
            let is_free = enter_for(table, true, PATIENCE);
            if is_free {
                leave(table, true);
            }
            let admits = enter_for(table, false, PATIENCE);
            if admits {
                leave(table, false);
            }
            field.region.sweep().unwrap();
            #[allow(unsafe_code)]
            // SAFETY: no living task uses it.
            unsafe {
                field.region.remove::<Table>("table").unwrap();
            }
            field.look_around(&trial);
            field.check(point);
            assert!(is_free || point != Point::Finished);
            assert!(admits || exclusive, "a dead reader keeps readers out");
            match (is_free, admits) {
                (true, _) => "free",
                (_, true) => "a dead reader keeps writers out",
                _ => "a dead writer keeps all out",
            }
        },
    );
    check::set_reporter(None);
}

#[test]
fn a_checked_reader_misleads_no_checker_at_any_instruction() {
    let name = "a_checked_reader_misleads_no_checker_at_any_instruction";
    rwlock_killed_at_every_instruction(name, false, false);
}

#[test]
fn a_checked_reader_that_waits_misleads_no_checker_at_any_instruction() {
    let name = "a_checked_reader_that_waits_misleads_no_checker_at_any_instruction";
    rwlock_killed_at_every_instruction(name, false, true);
}

#[test]
fn a_checked_writer_misleads_no_checker_at_any_instruction() {
    let name = "a_checked_writer_misleads_no_checker_at_any_instruction";
    rwlock_killed_at_every_instruction(name, true, false);
}

#[test]
fn a_checked_writer_that_waits_misleads_no_checker_at_any_instruction() {
    let name = "a_checked_writer_that_waits_misleads_no_checker_at_any_instruction";
    rwlock_killed_at_every_instruction(name, true, true);
}

/// Tokens under the last lock, and a condition for them.
#[derive(Clone, Copy)]
struct Shop<'r> {
    field: Field<'r>,
    some: &'r Condvar<Shared>,
    taken: &'r AtomicU64,
}

impl<'r> Shop<'r> {
    fn new(field: Field<'r>) -> Self {
        let some = field.region.object("some", Condvar::shared).unwrap();
        let taken = field.region.object("taken", || AtomicU64::new(0)).unwrap();
        Self {
            field,
            some: some.get_ref(),
            taken: taken.get_ref(),
        }
    }

    fn tokens(self) -> RobustGuard<'r, u64, Kind> {
        take(self.field.locks[2])
    }

    /// Waits for a token and takes it.
    fn take(self) {
        let mut tokens = self.tokens();
        while *tokens == 0 {
            tokens = match self.some.wait_robust(tokens) {
                Ok(tokens) => tokens,
                Err(LockError::OwnerDied(died)) => died.make_consistent(),
                Err(error) => panic!("{error}"),
            };
        }
        *tokens -= 1;
        self.taken.fetch_add(1, SeqCst);
    }

    fn put(self) {
        *self.tokens() += 1;
        self.some.notify_one();
    }

    fn begin_round(self) {
        self.field.region.sweep().unwrap();
        *self.tokens() = 0;
        self.taken.store(0, SeqCst);
    }

    fn recover(self, span: step::Span) {
        span.run(|| {
            self.field.region.join("recoverer").unwrap();
            drop(self.tokens());
        });
    }
}

#[test]
fn a_checked_wait_for_a_condition_misleads_no_checker_at_any_instruction() {
    let name = "a_checked_wait_for_a_condition_misleads_no_checker_at_any_instruction";
    let trial = Trial::begin(name);
    let region = region();
    let shop = Shop::new(Field::new(&region));
    step::each_instruction_and_recovery(
        &trial,
        "checked condition variable, wait",
        || {
            shop.begin_round();
            Cell::new(false)
        },
        |_, span| {
            shop.field.prepare();
            span.run(|| shop.take());
        },
        |is_put| {
            // It may sleep for the lock that a recoverer of the last round had, too.
            if !is_put.replace(true) {
                shop.put();
            }
            true
        },
        |_, span| shop.recover(span),
        |is_put, point| {
            shop.field.look_around(&trial);
            let is_left = *shop.tokens() > 0;
            assert!(is_put.get() || !is_left);
            assert!(!(is_left && point == Point::Finished));
            // Another waiter takes what is left, or gets a token of its own.
            let other = Child::fork(|| shop.take());
            if !is_left {
                trial.wait_until(|| other.is_in_futex());
                shop.put();
            }
            other.succeed();
            assert_eq!(*shop.tokens(), 0, "killed at {point:?}");
            shop.field.check(point);
            match is_left {
                true => "the token was left, and another task took it",
                false => "there was no token, or it had been taken",
            }
        },
    );
    check::set_reporter(None);
}

#[test]
fn a_checked_notifier_misleads_no_checker_at_any_instruction() {
    let name = "a_checked_notifier_misleads_no_checker_at_any_instruction";
    let trial = Trial::begin(name);
    let region = region();
    let shop = Shop::new(Field::new(&region));
    step::each_instruction_and_recovery(
        &trial,
        "checked condition variable, change and notify",
        || {
            shop.begin_round();
            let waiter = Child::fork(|| shop.take());
            trial.wait_until(|| waiter.is_in_futex());
            waiter
        },
        |_, span| {
            shop.field.prepare();
            span.run(|| shop.put());
        },
        |_| false,
        |_, span| shop.recover(span),
        |waiter, point| {
            shop.field.look_around(&trial);
            let made = {
                let tokens = shop.tokens();
                *tokens + shop.taken.load(SeqCst)
            };
            assert!(made <= 1, "killed at {point:?}");
            assert!(made == 1 || point != Point::Finished);
            if made == 0 {
                shop.put();
            }
            waiter.succeed();
            shop.field.check(point);
            step::done(made == 1)
        },
    );
    check::set_reporter(None);
}

/// A semaphore whose users report to the checker, beside a checked lock: the semaphore comes after the first lock and before
/// the second.
fn semaphore_killed_at_every_instruction(name: &'static str, operation: &str, held_up: bool) {
    let trial = Trial::begin(name);
    let region = region();
    let field = Field::new(&region);
    let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
    let units = CountingSemaphore::create(&region, "u", 0, Discipline::Fifo).unwrap();
    let [first, second, _] = field.locks;
    let section = || {
        let before = take(first);
        let held = semaphore.obtain().unwrap();
        let died = held.owner_died();
        drop(take(second));
        drop(held);
        drop(before);
        died
    };
    // This process knows the order, and with it each victim.
    assert!(!section());
    step::each_instruction_and_recovery(
        &trial,
        operation,
        || {
            region.sweep().unwrap();
            if held_up {
                let held = semaphore.obtain().unwrap();
                assert!(!held.owner_died());
                held.keep();
            } else {
                units.release().unwrap();
            }
            (Cell::new(held_up), RefCell::new(None::<Child>))
        },
        |_, span| {
            field.prepare();
            span.run(|| {
                units.obtain().unwrap();
                section();
                units.release().unwrap();
            });
        },
        |(is_owned, other)| {
            if held_up && units.waiting() > 0 {
                // Then it sleeps for the semaphore, with the first lock held, for which another task waits, too.
                units.release().unwrap();
                return true;
            }
            let was_owned = is_owned.replace(false);
            if was_owned {
                let waiter = Child::fork(|| {
                    section();
                });
                trial.wait_until(|| waiter.is_in_futex());
                *other.borrow_mut() = Some(waiter);
                semaphore.release().unwrap();
            }
            was_owned
        },
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                if let Ok(held) = semaphore.try_obtain() {
                    drop(held);
                }
            });
        },
        |(is_owned, other), point| {
            if is_owned.get() {
                semaphore.release().unwrap();
            }
            if let Some(other) = other.into_inner() {
                other.succeed();
            }
            let died = section();
            assert!(!(died && point == Point::Finished), "no owner died");
            field.look_around(&trial);
            assert!(!section(), "killed at {point:?}");
            let now = (semaphore.owner(), semaphore.waiting());
            assert_eq!(now, (None, 0), "killed at {point:?}");
            units.flush().unwrap();
            let left = units.count();
            assert!(left <= 1, "killed at {point:?}: {left} units");
            assert!(left == 1 || point != Point::Finished);
            (0..left).for_each(|_| units.try_obtain().unwrap());
            field.check(point);
            match died {
                true => format!("an owner's death was reported, {left} units left"),
                false => format!("no owner died, or another task was told, {left} units left"),
            }
        },
    );
    check::set_reporter(None);
}

#[test]
fn a_checked_semaphore_misleads_no_checker_at_any_instruction() {
    let name = "a_checked_semaphore_misleads_no_checker_at_any_instruction";
    semaphore_killed_at_every_instruction(name, "checked semaphores, obtain and release", false);
}

#[test]
fn a_wait_for_a_checked_semaphore_misleads_no_checker_at_any_instruction() {
    let name = "a_wait_for_a_checked_semaphore_misleads_no_checker_at_any_instruction";
    let operation = "checked semaphores, obtain what others have and release it";
    semaphore_killed_at_every_instruction(name, operation, true);
}
