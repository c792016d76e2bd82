//! Models of the robust mutex: `src/mutex/robust.rs` under the model checker, with a kernel that handles the death of a
//! task as Linux does.
//!
//! In each model a victim dies before its n-th step, for every n, in every interleaving within the bound. Properties:
//! every survivor gets in (a lost wake-up, or a lock that stays with its dead owner, ends as loom's deadlock); two
//! tasks are never in the critical section at once; and a task that finds the data torn has got the owner-death error.
//! Every model has a negative twin.
//!
//! A sleeper's nap ends when a task has died whose wake-up no other task passes on, and at no other time: everything
//! else must work without naps.
//!
//! Left out: the links of the list (`tests/robust/`, and the kill tests with the real kernel), the spin before the
//! sleep, a victim that is killed asleep (equivalent to one that never slept, or one that was woken), more than two
//! survivors.
#![cfg(loom)]

use latchwork::model::{Scene, WakeOrder};
use latchwork::sharing;

mod loom_robust_support;
use loom_robust_support::{Shared, at_every_step, unrepaired_is_lost};

type WaitWake = latchwork::mutex::WaitWake<sharing::Shared>;

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
            Shared::<WaitWake>::enter,
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
            Shared::<WaitWake>::enter,
        );
    }
}

#[test]
fn two_survivors_get_in_whenever_a_task_dies_that_waits_with_a_deadline() {
    at_every_step(Scene::default(), 2, 2, Shared::<WaitWake>::try_enter);
}

#[test]
fn unrepaired_means_not_recoverable_for_all_tasks() {
    unrepaired_is_lost::<WaitWake>(Scene::default(), 3);
}

/// All steps of the victim in one model, one after the other, for a twin.
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
    Shared::<WaitWake>::enter
);
twin!(
    twin_announcement_that_ends_before_the_wake_is_found,
    RobustSettlesBeforeWake,
    "deadlock",
    2,
    Shared::<WaitWake>::enter
);
twin!(
    twin_taker_that_forgets_the_sleepers_is_found,
    RobustTakerForgetsSleepers,
    "deadlock",
    2,
    Shared::<WaitWake>::enter
);
twin!(
    twin_unlock_that_forgets_the_sleepers_is_found,
    RobustUnlockForgetsSleepers,
    "deadlock",
    2,
    Shared::<WaitWake>::enter
);
twin!(
    twin_sleepers_that_wait_to_be_woken_are_found,
    RobustSleepersNeverLook,
    "deadlock",
    2,
    Shared::<WaitWake>::enter
);
twin!(
    twin_death_that_is_hidden_is_found,
    RobustHidesDeath,
    "nobody said so",
    1,
    Shared::<WaitWake>::enter
);
twin!(
    twin_kernel_that_swallows_a_wake_is_found,
    KernelSwallowsWake,
    "deadlock",
    2,
    Shared::<WaitWake>::enter
);
twin!(
    twin_unlock_without_release_is_found,
    RobustUnlockRelaxed,
    "Causality violation",
    1,
    Shared::<WaitWake>::enter
);
