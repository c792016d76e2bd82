//! Models of the robust mutex: `src/mutex/robust.rs` under the model checker, with a kernel that
//! buries the dead as Linux does.
//!
//! In each model a victim dies before its n-th step, for every n, in every interleaving within the
//! bound. Properties: every survivor gets in (a lost wake-up, or a lock that stays with the dead,
//! ends as loom's deadlock), two are never inside at once, and whoever finds the data torn was told.
//! Every model has a negative twin.
//!
//! Left out: the links of the list (`tests/robust.rs`, and the kill tests with the real kernel), the
//! spin before the sleep, a victim that is killed asleep (which is a victim that never slept, or one
//! that was woken), more than two survivors.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{RobustLock, SOON, Scene, Taken, WakeOrder, as_task, somebody_died, step};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

struct Shared {
    lock: RobustLock,
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
        match self.lock.lock(None) {
            Taken::Clean => {
                // SAFETY: the lock is held.
                let torn = self.torn.with(|data| unsafe { *data });
                assert!(!torn, "torn data, and nobody said so");
            }
            Taken::OwnerDied => {
                self.set_torn(false);
                self.lock.mark_consistent();
            }
            other => panic!("{other:?}"),
        }
        self.work_and_unlock();
    }

    /// A victim that gives up at its deadline.
    fn try_enter(&self) {
        if self.lock.lock(Some(SOON)) == Taken::Clean {
            self.work_and_unlock();
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

/// A victim and `survivors` others.
fn somebody_dies(survivors: usize, life: usize, victim: fn(&Shared)) {
    let shared = Arc::new(Shared {
        lock: RobustLock::default(),
        torn: UnsafeCell::new(false),
    });
    let mut threads = vec![spawn(&shared, 1, Some(life), victim)];
    threads.extend((0..survivors).map(|number| spawn(&shared, 2 + number, None, Shared::enter)));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // As the last: whatever state they left, it can be entered.
    as_task(0, None, || shared.enter());
}

/// The model for each step at which the victim can die, until it has none left.
fn at_every_step(scene: Scene, preemptions: usize, survivors: usize, victim: fn(&Shared)) {
    for life in 0.. {
        somebody_died();
        scene.explore(Some(preemptions), move || {
            somebody_dies(survivors, life, victim)
        });
        if !somebody_died() {
            assert!(life > 5, "the victim has more steps than that");
            return;
        }
    }
}

#[test]
fn one_survivor_gets_in_whenever_the_owner_dies() {
    for spurious in [0, 1] {
        at_every_step(
            Scene {
                spurious,
                ..Scene::default()
            },
            3,
            1,
            Shared::enter,
        );
    }
}

#[test]
fn two_survivors_get_in_whenever_the_owner_dies() {
    for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
        at_every_step(
            Scene {
                wake_order,
                ..Scene::default()
            },
            2,
            2,
            Shared::enter,
        );
    }
}

#[test]
fn two_survivors_get_in_whenever_a_task_dies_that_waits_with_a_deadline() {
    at_every_step(Scene::default(), 2, 2, Shared::try_enter);
}

#[test]
fn unrepaired_means_not_recoverable_for_everybody() {
    Scene::default().explore(Some(3), || {
        let shared = Arc::new(Shared {
            lock: RobustLock::default(),
            torn: UnsafeCell::new(false),
        });
        assert!(!as_task(1, Some(4), || {
            shared.lock.lock(None);
            step();
            step();
        }));
        let give_up = |shared: &Shared| match shared.lock.lock(None) {
            // SAFETY: the lock is held.
            Taken::OwnerDied => unsafe { shared.lock.unlock() },
            other => assert_eq!(other, Taken::NotRecoverable),
        };
        let threads = [2, 3].map(|number| spawn(&shared, number, None, give_up));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.lock.lock(None), Taken::NotRecoverable);
    });
}

/// All steps of the victim in one model after the other, for a twin.
macro_rules! twin {
    ($name:ident, $fault:ident, $expected:expr, $survivors:expr, $victim:expr) => {
        #[test]
        fn $name() {
            let fault = latchwork::model::Fault::$fault;
            Scene {
                fault: Some(fault),
                ..Scene::default()
            }
            .must_fail(stringify!($name), $expected, |scene| {
                at_every_step(scene, 2, $survivors, $victim);
            });
        }
    };
}
twin!(
    twin_lock_without_announcement_is_found,
    RobustNotAnnounced,
    "deadlock",
    1,
    Shared::enter
);
twin!(
    twin_announcement_that_ends_before_the_wake_is_found,
    RobustSettlesBeforeWake,
    "deadlock",
    2,
    Shared::enter
);
twin!(
    twin_taker_that_forgets_the_sleepers_is_found,
    RobustTakerForgetsSleepers,
    "deadlock",
    2,
    Shared::enter
);
twin!(
    twin_unlock_that_forgets_the_sleepers_is_found,
    RobustUnlockForgetsSleepers,
    "deadlock",
    2,
    Shared::enter
);
twin!(
    twin_death_that_is_hidden_is_found,
    RobustHidesDeath,
    "nobody said so",
    1,
    Shared::enter
);
twin!(
    twin_kernel_that_swallows_a_wake_is_found,
    KernelSwallowsWake,
    "deadlock",
    2,
    Shared::enter
);
twin!(
    twin_unlock_without_release_is_found,
    RobustUnlockRelaxed,
    "Causality violation",
    1,
    Shared::enter
);
