//! Models of the region lock: `mutex/in_region.rs` under the model checker, with lives as a region's task table has them.
//!
//! In each model a victim dies before its n-th step, for every n, in every interleaving within the bound. Properties:
//! every survivor gets in (a lost wake-up, or a lock that stays with its dead owner, ends as loom's deadlock); two
//! tasks are never in the critical section at once; a death was reported to a task that finds the data torn; a task of the
//! next generation in the dead task's slot is not taken for it. Every model has a negative twin.
//!
//! A sleep that watches the other tasks ends with each death that its waiter has not seen yet, as `region/park.rs`
//! does. (A sleep in the region may instead end by its time-out, which this includes.)
//!
//! Left out: how the kernel marks a life-word and wakes a sleeper on it, and how a sweep ends a generation (the kill
//! tests run both with the real kernel); the spin before the sleep; more than two survivors.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{Scene, Taken, WakeOrder, as_task, step};
use latchwork::mutex::WaitWake;
use latchwork::sharing;
use loom::sync::Arc;

#[macro_use]
mod loom_in_region_support;
use loom_in_region_support::{at_every_step, has_a_successor, spawn, unrepaired_is_lost};

type Form = WaitWake<sharing::Shared>;
type Shared = loom_in_region_support::Shared<Form>;

const ONE: &[fn(&Shared)] = &[Shared::enter];
const TWO: &[fn(&Shared)] = &[Shared::enter, Shared::enter];

#[test]
fn one_survivor_gets_in_whenever_the_owner_dies() {
    for spurious in [0, 1] {
        let scene = Scene {
            spurious,
            ..Scene::default()
        };
        at_every_step(scene, 3, ONE, Shared::enter);
    }
}

#[test]
fn two_survivors_get_in_whenever_the_owner_dies() {
    for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
        let scene = Scene {
            wake_order,
            ..Scene::default()
        };
        at_every_step(scene, 2, TWO, Shared::enter);
    }
}

#[test]
fn two_survivors_get_in_whenever_a_task_dies_that_waits_with_a_deadline() {
    at_every_step(Scene::default(), 2, TWO, Shared::try_enter);
}

#[test]
fn a_death_that_is_passed_on_is_reported_again() {
    at_every_step(
        Scene::default(),
        2,
        &[Shared::pass_on, Shared::enter],
        Shared::enter,
    );
}

#[test]
fn two_deaths_at_once_leave_the_lock_to_the_survivor() {
    Scene::default().explore(Some(2), || {
        let shared = Arc::<Shared>::default();
        let threads = [
            spawn(&shared, 1, Some(3), Shared::enter),
            spawn(&shared, 2, Some(5), Shared::enter),
            spawn(&shared, 3, None, Shared::enter),
        ];
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_successor_in_its_slot_is_not_taken_for_the_dead_owner() {
    has_a_successor::<Form>(Scene::default());
}

#[test]
fn unrepaired_means_not_recoverable_for_all_tasks() {
    unrepaired_is_lost::<Form>(Scene::default());
}

/// The owner wakes one of two sleepers, takes the lock again, and gives it up before that one has run.
fn two_sleepers_end_when_the_lock_is_given_up(scene: Scene) {
    let end = |shared: &Shared| match shared.lock.lock(None) {
        Taken::OwnerDied => shared.lock.give_up(),
        taken => assert_eq!(taken, Taken::NotRecoverable),
    };
    scene.explore(Some(2), move || {
        let shared = Arc::<Shared>::default();
        let dies = |shared: &Shared| {
            shared.lock.lock(None);
            step();
        };
        spawn(&shared, 1, Some(1), dies).join().unwrap();
        let mut sleepers = Vec::new();
        as_task(0, None, || {
            assert_eq!(shared.lock.lock(None), Taken::OwnerDied);
            sleepers.extend([2, 3].map(|number| spawn(&shared, number, None, end)));
            shared.lock.pass_on();
            end(&shared);
        });
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
    });
}

#[test]
fn all_sleepers_end_when_the_lock_is_given_up() {
    two_sleepers_end_when_the_lock_is_given_up(Scene::default());
}

#[test]
fn the_owner_is_told_that_it_holds_the_lock() {
    Scene::default().explore(None, || {
        let shared = Arc::<Shared>::default();
        as_task(1, None, || {
            assert_eq!(shared.lock.lock(None), Taken::Clean);
            assert_eq!(shared.lock.lock(None), Taken::Deadlock);
            // SAFETY: the lock is held.
            unsafe { shared.lock.unlock() };
        });
    });
}

region_twin!(
    twin_taker_that_forgets_the_sleepers_is_found,
    RegionTakerForgetsSleepers,
    "deadlock",
    |scene| at_every_step(scene, 2, TWO, Shared::enter)
);
region_twin!(
    twin_last_unlock_that_forgets_the_sleepers_is_found,
    RegionLastUnlockForgetsSleepers,
    "deadlock",
    two_sleepers_end_when_the_lock_is_given_up
);
region_twin!(
    twin_unlock_that_forgets_the_sleepers_is_found,
    RegionUnlockForgetsSleepers,
    "deadlock",
    |scene| at_every_step(scene, 2, TWO, Shared::enter)
);
region_twin!(
    twin_sleeper_that_misses_deaths_is_found,
    RegionSleeperMissesDeaths,
    "deadlock",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
region_twin!(
    twin_watch_that_begins_after_the_check_is_found,
    RegionWatchBeginsLate,
    "deadlock",
    |scene| at_every_step(scene, 3, ONE, Shared::enter)
);
region_twin!(
    twin_death_that_is_hidden_is_found,
    RegionHidesDeath,
    "nobody said so",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
region_twin!(
    twin_life_that_is_read_as_it_was_is_found,
    RegionReadsOldLife,
    "Causality violation",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
region_twin!(
    twin_successor_taken_for_the_dead_owner_is_found,
    RegionIgnoresGenerations,
    "deadlock",
    has_a_successor::<Form>
);
region_twin!(
    twin_unlock_without_release_is_found,
    RegionUnlockRelaxed,
    "Causality violation",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
