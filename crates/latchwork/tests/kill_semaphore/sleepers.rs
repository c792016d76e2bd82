//! Tasks that sleep when the owner of what they wait for dies: the kernel wakes one of them.

use super::{priority, region};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use latchwork::region::Region;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, TaskPriority as _};
use latchwork_testkit::step::Frozen;
use latchwork_testkit::{Child, Page, Trial};

fn sleep_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

fn semaphore<'r>(region: &'r Region, name: &str) -> BinarySemaphore<'r> {
    BinarySemaphore::create(region, name, &BinaryOptions::new()).unwrap()
}

/// Polls little before it sleeps.
fn join(region: &Region) {
    let me = region.task_id().unwrap();
    me.set_priority(region, priority(1)).unwrap();
}

/// A process that owns these until it is killed.
fn owner_of(trial: &Trial, semaphores: &[BinarySemaphore<'_>]) -> Child {
    let owner = Child::fork(|| {
        semaphores
            .iter()
            .for_each(|semaphore| semaphore.obtain().unwrap().keep());
        sleep_for_ever()
    });
    trial.wait_until(|| {
        semaphores
            .iter()
            .all(|semaphore| semaphore.owner().is_some())
    });
    owner
}

/// Each waits for another object, and the first one that learns of the death does nothing more in the region.
#[test]
fn every_sleeper_learns_of_a_death() {
    let trial = Trial::begin("every_sleeper_learns_of_a_death");
    let region = region(&trial);
    let semaphores = ["a", "b", "c"].map(|name| semaphore(&region, name));
    let joined = Page::<AtomicU32>::new();
    let served = Page::<AtomicU32>::new();
    let mut owner = owner_of(&trial, &semaphores);
    let waiters = semaphores.map(|semaphore| {
        Child::fork(|| {
            join(&region);
            joined.fetch_add(1, SeqCst);
            // A task that joins wakes those that sleep.
            trial.wait_until(|| joined.load(SeqCst) == 3);
            let held = semaphore.obtain().unwrap();
            assert!(held.owner_died());
            held.keep();
            served.fetch_add(1, SeqCst);
            sleep_for_ever()
        })
    });
    trial.wait_until(|| waiters.iter().all(Child::is_in_region_sleep) && joined.load(SeqCst) == 3);
    owner.kill();
    trial.wait_until(|| served.load(SeqCst) == 3);
}

/// The kernel's only wake-up for a death goes to a task whose own wait ends at the same time: it passes the news on.
#[test]
fn a_sleeper_that_need_not_wait_any_more_passes_a_death_on() {
    let trial = Trial::begin("a_sleeper_that_need_not_wait_any_more_passes_a_death_on");
    let region = region(&trial);
    let [of_dead, of_test] = ["of the dead", "of the test"].map(|name| semaphore(&region, name));
    let mut owner = owner_of(&trial, &[of_dead]);
    of_test.obtain().unwrap().keep();
    let goes = Page::<AtomicBool>::new();
    let joined = Page::<AtomicBool>::new();
    let mut waiter = Child::fork(|| {
        join(&region);
        joined.store(true, SeqCst);
        trial.wait_until(|| goes.load(SeqCst));
        assert!(of_dead.obtain().unwrap().owner_died());
    });
    trial.wait_until(|| joined.load(SeqCst));
    // It sleeps first, so it is the first in the kernel's queue for the owner's life-word.
    let first = Frozen::in_region_sleep(&trial, || {
        join(&region);
        of_test.obtain().unwrap().keep();
        sleep_for_ever()
    });
    let Some(mut first) = first else {
        return;
    };
    goes.store(true, SeqCst);
    trial.wait_until(|| waiter.is_in_region_sleep());
    owner.kill();
    trial.wait_until(|| first.is_woken() || waiter.try_wait().is_some());
    // Its wait is over, and so it does not sleep in the region again.
    of_test.release().unwrap();
    let _first = first.is_woken().then(|| first.thaw());
    waiter.succeed();
}

/// Else a task whose waits are all short would never learn of a death.
#[test]
fn a_wait_in_a_quiet_region_watches_all_tasks_from_its_beginning() {
    let trial = Trial::begin("a_wait_in_a_quiet_region_watches_all_tasks_from_its_beginning");
    // A sleep that watches no task is short, and may be over before it is seen.
    for _ in 0..3 {
        let region = region(&trial);
        let semaphore = semaphore(&region, "semaphore");
        let _owner = owner_of(&trial, &[semaphore]);
        let waiter = Frozen::in_futex(&trial, || {
            join(&region);
            semaphore.obtain().unwrap().keep();
        });
        assert!(waiter.is_none_or(|waiter| waiter.is_in_region_sleep()));
    }
}
