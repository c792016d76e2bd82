//! Throughput locks of a region whose top waiters, and tasks that hand off, are killed at each instruction.
//! (`kill_in_region.rs` kills owners, waiters and recoverers of both forms.)
#![cfg(not(loom))]

use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, RegionGuard, Throughput};
use latchwork::region::{Region, RegionOptions};
use latchwork::sharing::Shared;
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Trial};

type Lock = Mutex<u64, InRegion<Throughput<Shared>>>;

/// Bit 35 of the word: a top waiter wants the lock handed off.
const REQUEST: u64 = 1 << 35;

fn region(trial: &Trial) -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(16)
        .any_pid_namespace(trial.is_across_namespaces())
        .create_anonymous()
        .unwrap()
}

fn lock_in(region: &Region) -> &Lock {
    let made = region.object("lock", || Mutex::in_region_throughput(0));
    made.unwrap().get_ref()
}

fn is_requested(lock: &Lock) -> bool {
    // SAFETY: the word is the first thing in the mutex, and it is an atomic of this size.
    #[allow(unsafe_code)]
    let word = unsafe { &*core::ptr::from_ref(lock).cast::<AtomicU64>() };
    word.load(SeqCst) & REQUEST != 0
}

/// Whether the last owner has died.
fn enter(lock: &Lock) -> bool {
    match lock.lock() {
        Ok(mut data) => {
            *data += 1;
            false
        }
        Err(LockError::OwnerDied(died)) => {
            drop(died.make_consistent());
            true
        }
        Err(error) => panic!("{error}"),
    }
}

fn waiter(lock: &Lock) -> Child {
    Child::fork(|| {
        enter(lock);
    })
}

type World<'a> = RefCell<(
    Option<RegionGuard<'a, u64, Throughput<Shared>>>,
    Option<Child>,
)>;

/// The top waiter is killed, with another waiter asleep at the gate, which must get in.
#[test]
fn a_top_waiter_is_recoverable_at_every_instruction() {
    let trial =
        Trial::begin("a_top_waiter_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let lock = lock_in(&region);
    let world = || -> World<'_> {
        // What recoverers have claimed, a victim in another namespace cannot free.
        region.sweep().unwrap();
        RefCell::new((Some(lock.lock().unwrap()), None))
    };
    let covered = step::each_instruction_and_recovery(
        &trial,
        "top waiter",
        world,
        |_, span| {
            region.join("victim").unwrap();
            span.run(|| enter(lock));
        },
        |world| {
            let mut world = world.borrow_mut();
            // The victim sleeps on the word. The first time, another waiter comes; it wakes the victim in the end.
            let Some(held) = world.0.take() else {
                return false;
            };
            let other = waiter(lock);
            trial.wait_until(|| other.is_in_futex());
            world.1 = Some(other);
            drop(held);
            true
        },
        |_, span| {
            span.run(|| enter(lock));
        },
        |world, point| {
            let (held, other) = world.into_inner();
            drop(held);
            if let Some(other) = other {
                other.succeed();
            }
            // The other waiter may have got the report.
            let died = enter(lock);
            assert!(!(died && point == Point::Finished));
            drop(lock.try_lock().unwrap());
            match died {
                true => step::reported(1),
                false => "no owner died, or the other waiter repaired the data",
            }
        },
    );
    println!("{covered:?}");
}

/// An unlock that hands off to a top waiter.
#[test]
fn a_hand_off_is_recoverable_at_every_instruction() {
    let trial = Trial::begin("a_hand_off_is_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let lock = lock_in(&region);
    let go = region.object("go", || AtomicU32::new(0)).unwrap();
    step::each_instruction_and_recovery(
        &trial,
        "hand-off",
        || {
            region.sweep().unwrap();
            go.store(0, SeqCst);
            Some(Child::fork(|| {
                // It waits for the victim to hold the lock.
                while go.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
                enter(lock);
            }))
        },
        |waiter, span| {
            let held = lock.lock().unwrap();
            go.store(1, SeqCst);
            while !(is_requested(lock) && waiter.as_ref().unwrap().is_in_futex()) {
                std::thread::yield_now();
            }
            span.run(|| drop(held));
        },
        |_| false,
        |_, span| {
            span.run(|| enter(lock));
        },
        |waiter, _| {
            go.store(1, SeqCst);
            waiter.unwrap().succeed();
            let died = enter(lock);
            drop(lock.try_lock().unwrap());
            match died {
                true => step::reported(1),
                false => "no owner died, or the waiter repaired the data",
            }
        },
    );
}
