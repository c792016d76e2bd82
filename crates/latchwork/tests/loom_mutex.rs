//! Models of the wait-wake mutex: `src/mutex/wait_wake.rs` under the model checker.
//!
//! Properties: two tasks are never in the critical section at once; each task sees what the one before it wrote there;
//! and every task gets in (a lost wake-up ends as loom's deadlock). Every model has a negative twin.
//!
//! Left out: the spin before the sleep (no polls here), more than three tasks, timing.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{SOON, Scene, WakeOrder};
use latchwork::mutex::{RawLock, WaitWake};
use latchwork::negative_twin;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Shared {
    lock: WaitWake,
    data: UnsafeCell<u32>,
}

// SAFETY: the data is used only under the lock; the model checks just that.
unsafe impl Sync for Shared {}
// SAFETY: the data is used only under the lock, by one task at a time.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: WaitWake::new(),
            data: UnsafeCell::new(0),
        })
    }

    fn add_and_unlock(&self) {
        // SAFETY: the caller holds the lock; loom reports it if two tasks do.
        self.data.with_mut(|data| unsafe { *data += 1 });
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock() };
    }

    fn add(&self) {
        self.lock.lock();
        self.add_and_unlock();
    }

    fn sum(&self) -> u32 {
        self.lock.lock();
        // SAFETY: the lock is held.
        let sum = self.data.with(|data| unsafe { *data });
        // SAFETY: this task has taken the lock above.
        unsafe { self.lock.unlock() };
        sum
    }
}

/// `tasks` tasks enter the critical section `rounds` times each.
fn every_task_enters(tasks: u32, rounds: u32) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let enter = move |shared: &Shared| (0..rounds).for_each(|_| shared.add());
        let threads: Vec<_> = (1..tasks)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || enter(&shared))
            })
            .collect();
        enter(&shared);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.sum(), tasks * rounds);
    }
}

/// One task gives up at its deadline; the two others must still get in.
fn a_deadline_passes() {
    let shared = Shared::new();
    let hasty = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let taken = shared.lock.lock_until(SOON);
            if taken {
                shared.add_and_unlock();
            }
            u32::from(taken)
        })
    };
    let patient = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.add())
    };
    shared.add();
    patient.join().unwrap();
    assert_eq!(2 + hasty.join().unwrap(), shared.sum());
}

#[test]
fn two_tasks_exclude_each_other_and_both_enter() {
    Scene::default().explore(None, every_task_enters(2, 1));
    Scene::default().explore(Some(4), every_task_enters(2, 2));
}

#[test]
fn two_tasks_survive_spurious_wakeups() {
    for spurious in [1, 2] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(Some(4), every_task_enters(2, 2));
    }
}

#[test]
fn three_tasks_exclude_each_other_and_all_enter() {
    for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
        Scene {
            wake_order,
            ..Scene::default()
        }
        .explore(Some(4), every_task_enters(3, 1));
    }
}

#[test]
fn three_tasks_survive_spurious_wakeups() {
    Scene {
        spurious: 1,
        ..Scene::default()
    }
    .explore(Some(4), every_task_enters(3, 1));
    Scene {
        spurious: 1,
        ..Scene::default()
    }
    .explore(Some(2), every_task_enters(3, 2));
}

#[test]
fn a_task_that_gives_up_takes_no_wakeup_with_it() {
    Scene::default().explore(Some(3), a_deadline_passes);
}

negative_twin!(
    twin_unlock_without_release_is_found,
    UnlockRelaxed,
    "Causality violation",
    None,
    every_task_enters(2, 1)
);

negative_twin!(
    twin_lock_without_acquire_is_found,
    LockRelaxed,
    "Causality violation",
    None,
    every_task_enters(2, 1)
);

negative_twin!(
    twin_unlock_that_wakes_nobody_is_found,
    UnlockWakesNobody,
    "deadlock",
    None,
    every_task_enters(2, 1)
);

negative_twin!(
    twin_waiter_that_relocks_as_uncontended_is_found,
    RelockUncontended,
    "deadlock",
    Some(3),
    every_task_enters(3, 1)
);
