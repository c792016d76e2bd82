//! Models of the robust forms of the priority-inheritance and the throughput mutex: `src/mutex/robust/` under the model
//! checker, with a kernel that handles the death of a task as Linux does: first the robust list, then the sleepers on
//! priority-inheritance futexes.
//!
//! Properties: those of `loom_robust.rs`; and the death of a top waiter, or of a gate's owner, keeps no other task out.
//! Task 3 is a real-time task. Every model has a negative twin.
//!
//! Two survivors of a throughput lock are checked with one preemption. With two preemptions the check takes four
//! minutes, and finds nothing.
//!
//! Left out: what `loom_robust.rs`, `loom_inherit.rs` and `loom_throughput.rs` leave out; the end of naps on the word;
//! and owners whose death the kernel does not report through the list (`robust_special.rs`).
#![cfg(loom)]

use latchwork::model::{HandsOff, Scene, WakeOrder};
use latchwork::sharing;

mod loom_robust_support;
use loom_robust_support::{Shared, at_every_step, unrepaired_is_lost};

type Inherit = latchwork::mutex::Inherit<sharing::Shared>;
type Throughput = latchwork::mutex::Throughput<sharing::Shared>;

const ORDERS: [WakeOrder; 2] = [WakeOrder::Oldest, WakeOrder::Newest];

/// Naps on the gate end, since a dead top waiter leaves the gate held.
fn napping(hands_off: HandsOff) -> Scene {
    Scene {
        hands_off,
        naps_end: true,
        ..Scene::default()
    }
}

#[test]
fn inherit_one_survivor_gets_in_whenever_the_owner_dies() {
    for spurious in [0, 1] {
        let scene = Scene {
            spurious,
            ..Scene::default()
        };
        at_every_step(scene, 3, 1, Shared::<Inherit>::enter);
    }
}

#[test]
fn inherit_two_survivors_get_in_whenever_the_owner_dies() {
    for wake_order in ORDERS {
        let scene = Scene {
            wake_order,
            ..Scene::default()
        };
        at_every_step(scene, 2, 2, Shared::<Inherit>::enter);
    }
}

#[test]
fn inherit_two_survivors_get_in_whenever_a_task_dies_that_waits_with_a_deadline() {
    at_every_step(Scene::default(), 2, 2, Shared::<Inherit>::try_enter);
}

#[test]
fn inherit_unrepaired_means_not_recoverable_for_everybody() {
    unrepaired_is_lost::<Inherit>(Scene::default(), 3);
}

#[test]
fn throughput_one_survivor_gets_in_whenever_the_owner_dies() {
    for hands_off in [HandsOff::Never, HandsOff::AtOnce] {
        at_every_step(napping(hands_off), 3, 1, Shared::<Throughput>::enter);
    }
}

#[test]
fn throughput_two_survivors_get_in_whenever_the_owner_dies() {
    for hands_off in [HandsOff::Never, HandsOff::AtOnce] {
        at_every_step(napping(hands_off), 1, 2, Shared::<Throughput>::enter);
    }
}

#[test]
fn throughput_two_survivors_get_in_whenever_a_task_dies_that_waits_with_a_deadline() {
    at_every_step(
        napping(HandsOff::AtOnce),
        1,
        2,
        Shared::<Throughput>::try_enter,
    );
}

#[test]
fn throughput_unrepaired_means_not_recoverable_for_everybody() {
    unrepaired_is_lost::<Throughput>(napping(HandsOff::Never), 2);
}

/// All steps of the victim in one model, one after the other, for a twin.
macro_rules! twin {
    ($name:ident, $fault:ident, $expected:expr, $survivors:expr, $victim:expr) => {
        #[test]
        fn $name() {
            let fault = latchwork::model::Fault::$fault;
            Scene {
                fault: Some(fault),
                ..napping(HandsOff::AtOnce)
            }
            .must_fail(stringify!($name), $expected, |scene| {
                at_every_step(scene, 2, $survivors, $victim);
            });
        }
    };
}
twin!(
    twin_inherit_unlock_that_ignores_sleepers_is_found,
    RobustInheritIgnoresSleepers,
    "deadlock",
    1,
    Shared::<Inherit>::enter
);
twin!(
    twin_inherit_death_that_is_hidden_is_found,
    RobustHidesDeath,
    "nobody said so",
    1,
    Shared::<Inherit>::enter
);
twin!(
    twin_inherit_unlock_without_release_is_found,
    RobustUnlockRelaxed,
    "Causality violation",
    1,
    Shared::<Inherit>::enter
);
twin!(
    twin_inherit_gate_that_stays_closed_is_found,
    InheritKeepsGate,
    "deadlock",
    2,
    Shared::<Inherit>::try_enter
);
twin!(
    twin_throughput_lock_without_announcement_is_found,
    RobustNotAnnounced,
    "deadlock",
    1,
    Shared::<Throughput>::enter
);
twin!(
    twin_throughput_reservation_that_wakes_nobody_is_found,
    ThroughputHandOffWakesNobody,
    "deadlock",
    1,
    Shared::<Throughput>::enter
);
twin!(
    twin_throughput_death_that_is_hidden_is_found,
    RobustHidesDeath,
    "nobody said so",
    1,
    Shared::<Throughput>::enter
);
twin!(
    twin_throughput_taker_that_forgets_the_sleepers_is_found,
    ThroughputTakerForgetsSleepers,
    "deadlock",
    2,
    Shared::<Throughput>::enter
);

#[test]
fn twin_inherit_taker_that_trusts_the_word_is_found() {
    let scene = Scene {
        fault: Some(latchwork::model::Fault::RobustTrustsWord),
        ..Scene::default()
    };
    scene.must_fail(
        "twin_inherit_taker_that_trusts_the_word_is_found",
        "NotRecoverable",
        |scene| unrepaired_is_lost::<Inherit>(scene, 2),
    );
}
