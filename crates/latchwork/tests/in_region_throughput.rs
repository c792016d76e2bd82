//! What only the throughput form of the region lock does: it hands off, and survives top waiters that give up, are
//! stopped or killed. (`in_region.rs` and `mutex.rs` test both forms.)
#![cfg(not(loom))]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, Throughput};
use latchwork::region::{self, Region, RegionOptions};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Trial, Watchdog};
use std::thread;

type Lock = Mutex<u64, InRegion<Throughput<Shared>>>;

/// Bit 35 of the word: the lock is to be handed off; or, without an owner, it is reserved.
const REQUEST: u64 = 1 << 35;

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(16)
        .create_anonymous()
        .unwrap()
}

fn lock_in(region: &Region) -> &Lock {
    let made = region.object("lock", || Mutex::in_region_throughput(0));
    made.unwrap().get_ref()
}

/// The word of a lock.
fn word(lock: &Lock) -> u64 {
    // SAFETY: the word is the first thing in the mutex, and it is an atomic of this size.
    #[allow(unsafe_code)]
    unsafe { &*core::ptr::from_ref(lock).cast::<AtomicU64>() }.load(SeqCst)
}

fn is_requested(lock: &Lock) -> bool {
    word(lock) & REQUEST != 0
}

fn is_held(lock: &Lock) -> bool {
    word(lock) as u32 != 0
}

/// The holder takes the lock again and again, and sleeps inside, so that no other task is awake when it is free.
#[test]
fn no_task_starves_if_the_owner_sleeps_in_its_sections() {
    let _watchdog = Watchdog::start("starves".into());
    let region = region();
    let lock = lock_in(&region);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                let _held = lock.lock().unwrap();
                thread::sleep(Duration::from_micros(100));
            }
        });
        let others: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| (0..5).for_each(|_| *lock.lock().unwrap() += 1)))
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        done.store(true, SeqCst);
    });
    assert_eq!(*lock.lock().unwrap(), 15);
}

#[test]
fn a_waiter_that_requested_the_lock_and_gave_up_leaves_it_free() {
    let _watchdog = Watchdog::start("gave up".into());
    let region = region();
    let lock = lock_in(&region);
    for _ in 0..5 {
        let held = lock.lock().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_requested(lock) {
                    let ended = lock.lock_for(Duration::from_millis(10));
                    assert!(matches!(ended, Err(LockError::TimedOut)));
                }
            });
        });
        drop(held);
        assert!(is_requested(lock) && !is_held(lock));
        drop(lock.try_lock().unwrap());
        *lock.lock().unwrap() += 1;
    }
    assert_eq!(*lock.lock().unwrap(), 5);
    assert!(!is_requested(lock));
}

#[test]
fn simultaneous_deadlines_and_unlocks_lose_no_lock() {
    let _watchdog = Watchdog::start("meet".into());
    let region = region();
    let lock = lock_in(&region);
    let entered = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..2_000_u64 {
                    let end = Deadline::after(Duration::from_micros(round % 60));
                    match lock.lock_until(end) {
                        Ok(mut held) => {
                            *held += 1;
                            entered.fetch_add(1, SeqCst);
                        }
                        Err(LockError::TimedOut) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(*lock.lock().unwrap(), entered.into_inner());
}

/// A waiter that has requested the lock, and sleeps.
fn requesting(trial: &Trial, lock: &Lock) -> Child {
    let waiter = Child::fork(|| drop(lock.lock()));
    trial.wait_until(|| is_requested(lock) && waiter.is_in_futex());
    waiter
}

/// It has had nothing: its death is no owner's.
#[test]
fn the_death_of_a_task_to_which_the_lock_was_handed_off_is_no_owners_death() {
    let trial = Trial::begin("handed off to a dead task");
    let region = region();
    let lock = lock_in(&region);
    for tries in [false, true] {
        let held = lock.lock().unwrap();
        let mut waiter = requesting(&trial, lock);
        waiter.signal(libc::SIGSTOP);
        trial.wait_until(|| waiter.is_stopped());
        drop(held);
        assert!(is_requested(lock) && !is_held(lock), "not handed off");
        assert_eq!(waiter.kill(), Exit::Signal(libc::SIGKILL));
        let taken = if tries { lock.try_lock() } else { lock.lock() };
        *taken.unwrap() += 1;
    }
    assert_eq!(*lock.lock().unwrap(), 2);
}

#[test]
fn a_stopped_top_waiter_does_not_block_the_lock() {
    let trial = Trial::begin("a_stopped_top_waiter");
    let region = region();
    let lock = lock_in(&region);
    let held = lock.lock().unwrap();
    let waiter = requesting(&trial, lock);
    waiter.signal(libc::SIGSTOP);
    let other = Child::fork(|| drop(lock.lock()));
    trial.wait_until(|| waiter.is_stopped() && other.is_in_futex());
    drop(held);
    other.succeed();
    drop(lock.lock());
    waiter.signal(libc::SIGCONT);
    waiter.succeed();
}

#[test]
fn the_waiters_behind_a_killed_top_waiter_get_in() {
    let trial = Trial::begin("behind a killed top waiter");
    let region = region();
    let lock = lock_in(&region);
    let held = lock.lock().unwrap();
    let mut top_waiter = requesting(&trial, lock);
    let others = [(); 3].map(|()| Child::fork(|| *lock.lock().unwrap() += 1));
    trial.wait_until(|| others.iter().all(Child::is_in_futex));
    top_waiter.kill();
    drop(held);
    others.into_iter().for_each(Child::succeed);
    assert_eq!(*lock.lock().unwrap(), 3);
}

/// The identity in the gate is that of a living task there, which does not wait.
#[test]
fn a_lock_that_is_moved_with_a_dead_top_waiter_is_free() {
    let trial = Trial::begin("moved with a dead top waiter");
    let [region, other] = [region(), region()];
    let boxed = region::Box::new_in(Mutex::in_region_throughput(7_u64), &region).unwrap();
    let held = boxed.lock().unwrap();
    // The second task of its region.
    requesting(&trial, &boxed).kill();
    drop(held);
    let mut moved = region::Box::new_in(boxed.into_inner(), &other).unwrap();
    other.join("first").unwrap();
    assert_eq!(moved.get_mut(), Some(&mut 7));
    let has_joined = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            other.join("second").unwrap();
            has_joined.store(1, SeqCst);
            trial.wait_until(|| has_joined.load(SeqCst) == 2);
        });
        trial.wait_until(|| has_joined.load(SeqCst) == 1);
        assert!(is_requested(&moved));
        *moved.lock().unwrap() += 1;
        has_joined.store(2, SeqCst);
    });
    assert_eq!(*moved.try_lock().unwrap(), 8);
}
