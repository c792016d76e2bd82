//! Checked tasks that are killed at any instruction, the checker's own included: the others go on, and nothing
//! is found, for nothing is wrong.

use core::cell::RefCell;
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::check::{self, Checked, Finding};
use latchwork::mutex::{LockError, Mutex, Protocol, Robust, RobustGuard, WaitWake};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::sharing::Shared;
use latchwork_testkit::{Child, Storm, Trial, Worker, step};

mod objects;

type Kind = Checked<WaitWake<Shared>>;
type Lock = Mutex<u64, Robust<Kind>>;

#[derive(Shareable)]
#[repr(C)]
struct Arena {
    locks: [Lock; 3],
    findings: AtomicU64,
    progress: [AtomicU64; 16],
}

fn take(lock: Pin<&Lock>) -> RobustGuard<'_, u64, Kind> {
    match lock.lock() {
        Ok(guard) => guard,
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Err(error) => panic!("{error}"),
    }
}

/// Where this process counts what it finds.
static COUNT: core::sync::atomic::AtomicPtr<AtomicU64> =
    core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());

fn count(finding: &Finding) {
    eprintln!("{finding}");
    let count = COUNT.load(SeqCst);
    // SAFETY: null, or a counter of a named object, which stays mapped.
    #[allow(unsafe_code)]
    if let Some(count) = unsafe { count.as_ref() } {
        count.fetch_add(1, SeqCst);
    }
}

type Pinned<'r> = [Pin<&'r Lock>; 3];

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .label("kill_check")
        .create_anonymous()
        .unwrap()
}

fn arena(region: &Region) -> (&Arena, Pinned<'_>) {
    let make = || Arena {
        locks: [(); 3].map(|()| Mutex::from_raw(Robust::new(), 0)),
        findings: AtomicU64::new(0),
        progress: [const { AtomicU64::new(0) }; 16],
    };
    let arena = region.object("arena", make).unwrap();
    #[allow(unsafe_code)]
    // SAFETY: parts of a named object, which never moves.
    let locks = [0, 1, 2].map(|index| unsafe { arena.map_unchecked(|arena| &arena.locks[index]) });
    (arena.get_ref(), locks)
}

/// This process counts what it finds, from now on.
fn count_findings(arena: &Arena) {
    COUNT.store((&raw const arena.findings).cast_mut(), SeqCst);
    check::set_text(false);
    // Stopped and stepped tasks make the others wait for as long as it takes.
    check::set_long_wait(Duration::ZERO);
    check::set_reporter(Some(count));
}

#[test]
fn killed_checked_tasks_harm_neither_the_others_nor_the_checker() {
    let name = "killed_checked_tasks_harm_neither_the_others_nor_the_checker";
    let trial = Trial::begin(name);
    let region = region();
    let (arena, locks) = arena(&region);
    let work = |worker: Worker| {
        count_findings(arena);
        let private: Checked<WaitWake> = Checked::named("private", WaitWake::new());
        let mut random = worker.rng();
        loop {
            // In one order, with some left out.
            let mut held = Vec::new();
            let _ = private.acquire();
            for lock in locks {
                if random.bool() {
                    held.push(take(lock));
                }
            }
            drop(held);
            #[allow(unsafe_code)]
            // SAFETY: taken above.
            unsafe {
                private.release();
            }
            arena.progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, 4, work);
    let kills = trial.times(40);
    while storm.kills() < kills {
        storm.kill();
        storm.wait_for_progress(|seat| arena.progress[seat].load(SeqCst));
    }
    storm.kill_all();
    storm.finish();
    assert_eq!(arena.findings.load(SeqCst), 0, "false alarms");
    region.sweep().unwrap();
    region.check_heap().unwrap();
}

/// Acquires the locks, one after the other, and releases them in the opposite order.
fn nested(locks: &[Pin<&Lock>]) {
    if let [first, others @ ..] = locks {
        let held = take(*first);
        nested(others);
        drop(held);
    }
}

/// Kills a checked task that takes three locks, which it has taken before if their order is `known`. If it is `held_up`,
/// this process holds the last one first, for which another checked task waits, too.
fn killed_at_every_instruction(name: &'static str, operation: &str, known: bool, held_up: bool) {
    let trial = Trial::begin(name);
    let region = region();
    let (arena, locks) = arena(&region);
    count_findings(arena);
    step::each_instruction_and_recovery(
        &trial,
        operation,
        || {
            RefCell::new(held_up.then(|| {
                let held = take(locks[2]);
                let waiter = Child::fork(|| drop(take(locks[2])));
                trial.wait_until(|| waiter.is_in_futex());
                (held, waiter)
            }))
        },
        |_, span| {
            region.join("victim").unwrap();
            // The checker's record of the thread is made before.
            nested(&locks[..if known { 3 } else { 2 }]);
            span.run(|| nested(&locks));
        },
        |world| {
            let Some((held, waiter)) = world.borrow_mut().take() else {
                return false;
            };
            drop(held);
            waiter.succeed();
            true
        },
        |_, span| span.run(|| nested(&locks)),
        |world, _| {
            if let Some((held, waiter)) = world.into_inner() {
                drop(held);
                waiter.succeed();
            }
            let mut died = 0;
            for lock in locks {
                if let Err(LockError::OwnerDied(owner)) = lock.lock() {
                    died += 1;
                    drop(owner.make_consistent());
                }
            }
            nested(&locks);
            assert_eq!(arena.findings.load(SeqCst), 0, "false alarms");
            step::reported(died)
        },
    );
    check::set_reporter(None);
}

#[test]
fn checked_locks_are_recoverable_at_every_instruction() {
    let name = "checked_locks_are_recoverable_at_every_instruction";
    killed_at_every_instruction(name, "checked locks", true, false);
}

#[test]
fn a_new_order_of_checked_locks_is_recoverable_at_every_instruction() {
    let name = "a_new_order_of_checked_locks_is_recoverable_at_every_instruction";
    killed_at_every_instruction(name, "checked locks, in a new order", false, false);
}

#[test]
fn a_wait_for_a_checked_lock_is_recoverable_at_every_instruction() {
    let name = "a_wait_for_a_checked_lock_is_recoverable_at_every_instruction";
    let operation = "checked locks, with another waiter asleep";
    killed_at_every_instruction(name, operation, false, true);
}
