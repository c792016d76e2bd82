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

use latchwork::model::{RegionLock, SOON, Scene, Taken, WakeOrder, as_task, somebody_died, step};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

#[derive(Default)]
struct Shared {
    lock: RegionLock,
    torn: UnsafeCell<bool>,
}

// SAFETY: the data is touched under the lock only; that is what the model checks.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn set_torn(&self, torn: bool) {
        // SAFETY: called with the lock held; loom reports two at once.
        self.torn.with_mut(|data| unsafe { *data = torn });
    }

    fn work_and_unlock(&self) {
        self.set_torn(true);
        step();
        self.set_torn(false);
        // SAFETY: called with the lock held.
        unsafe { self.lock.unlock() };
    }

    fn enter(&self) {
        self.enter_by(|taken| assert_eq!(taken, Taken::OwnerDied));
    }

    fn enter_by(&self, otherwise: impl FnOnce(Taken)) {
        match self.lock.lock(None) {
            Taken::Clean => {
                // SAFETY: the lock is held.
                let torn = self.torn.with(|data| unsafe { *data });
                assert!(!torn, "torn data, and nobody said so");
            }
            taken => {
                otherwise(taken);
                self.set_torn(false);
                self.lock.mark_consistent();
            }
        }
        self.work_and_unlock();
    }

    /// A victim that gives up at its deadline.
    fn try_enter(&self) {
        if self.lock.lock(Some(SOON)) == Taken::Clean {
            self.work_and_unlock();
        }
    }

    /// A task that passes a death on to the next one.
    fn pass_on(&self) {
        match self.lock.lock(None) {
            Taken::Clean => self.work_and_unlock(),
            taken => {
                assert_eq!(taken, Taken::OwnerDied);
                self.lock.pass_on();
            }
        }
    }
}

fn spawn(
    shared: &Arc<Shared>,
    number: usize,
    life: Option<usize>,
    body: fn(&Shared),
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        as_task(number, life, || body(&shared));
    })
}

/// A victim and other tasks.
fn somebody_dies(survivors: &[fn(&Shared)], life: usize, victim: fn(&Shared)) {
    let shared = Arc::<Shared>::default();
    let mut threads = vec![spawn(&shared, 1, Some(life), victim)];
    let others = survivors.iter().enumerate();
    threads.extend(others.map(|(number, body)| spawn(&shared, 2 + number, None, *body)));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // As the last: whatever state they left, it can be entered.
    as_task(0, None, || shared.enter());
}

/// The model for each step at which the victim can die, until it has none left.
fn at_every_step(
    scene: Scene,
    preemptions: usize,
    survivors: &'static [fn(&Shared)],
    victim: fn(&Shared),
) {
    for life in 0.. {
        somebody_died();
        scene.explore(Some(preemptions), move || {
            somebody_dies(survivors, life, victim)
        });
        if !somebody_died() {
            assert!(life > 2, "the victim has more steps than that");
            return;
        }
    }
}

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

/// An owner dies, and its slot has a new task at once.
fn has_a_successor(scene: Scene) {
    for life in 1..6 {
        scene.explore(Some(3), move || {
            let shared = Arc::<Shared>::default();
            let in_slot_1 = Arc::clone(&shared);
            let slot_1 = thread::spawn(move || {
                as_task(1, Some(life), || in_slot_1.enter());
                as_task(1, None, || in_slot_1.enter());
            });
            let other = spawn(&shared, 2, None, Shared::enter);
            slot_1.join().unwrap();
            other.join().unwrap();
        });
    }
}

#[test]
fn a_successor_in_its_slot_is_not_taken_for_the_dead_owner() {
    has_a_successor(Scene::default());
}

fn unrepaired_is_lost(scene: Scene) {
    scene.explore(Some(3), || {
        let shared = Arc::<Shared>::default();
        assert!(!as_task(1, Some(2), || {
            shared.lock.lock(None);
            step();
            step();
        }));
        let give_up = |shared: &Shared| match shared.lock.lock(None) {
            Taken::OwnerDied => shared.lock.give_up(),
            other => assert_eq!(other, Taken::NotRecoverable),
        };
        let threads = [2, 3].map(|number| spawn(&shared, number, None, give_up));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.lock.lock(None), Taken::NotRecoverable);
    });
}

#[test]
fn unrepaired_means_not_recoverable_for_all_tasks() {
    unrepaired_is_lost(Scene::default());
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

macro_rules! twin {
    ($name:ident, $fault:ident, $expected:expr, $model:expr) => {
        #[test]
        fn $name() {
            let fault = latchwork::model::Fault::$fault;
            let scene = Scene {
                fault: Some(fault),
                ..Scene::default()
            };
            scene.must_fail(stringify!($name), $expected, $model);
        }
    };
}
twin!(
    twin_taker_that_forgets_the_sleepers_is_found,
    RegionTakerForgetsSleepers,
    "deadlock",
    |scene| at_every_step(scene, 2, TWO, Shared::enter)
);
twin!(
    twin_unlock_that_forgets_the_sleepers_is_found,
    RegionUnlockForgetsSleepers,
    "deadlock",
    |scene| at_every_step(scene, 2, TWO, Shared::enter)
);
twin!(
    twin_sleeper_that_misses_deaths_is_found,
    RegionSleeperMissesDeaths,
    "deadlock",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
twin!(
    twin_watch_that_begins_after_the_check_is_found,
    RegionWatchBeginsLate,
    "deadlock",
    |scene| at_every_step(scene, 3, ONE, Shared::enter)
);
twin!(
    twin_death_that_is_hidden_is_found,
    RegionHidesDeath,
    "nobody said so",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
twin!(
    twin_life_that_is_read_as_it_was_is_found,
    RegionReadsOldLife,
    "Causality violation",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
twin!(
    twin_successor_taken_for_the_dead_owner_is_found,
    RegionIgnoresGenerations,
    "deadlock",
    has_a_successor
);
twin!(
    twin_unlock_without_release_is_found,
    RegionUnlockRelaxed,
    "Causality violation",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
