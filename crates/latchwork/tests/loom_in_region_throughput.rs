//! Models of the throughput form of the region lock: `mutex/in_region/throughput.rs` under the model checker, with lives
//! as a region's task table has them.
//!
//! In each model a victim dies before its n-th step, for every n, in every interleaving within the bound. Properties:
//! those of `loom_in_region.rs`; the death of a top waiter, of a task for which the lock is reserved, or of a task that
//! wakes others, keeps no other task out; and a top waiter that is the only one gets in at the first unlock after its
//! request. Task 3 is a real-time task: it is overdue at once, beside the gate. Every model has a negative twin.
//!
//! A sleep on the word ends with each death that its waiter has not seen yet, and so does one on the gate: in the region
//! both end by their time, too, which this includes. Where naps end, a sleep on the gate, and one on the word before
//! the request, may end at any moment.
//!
//! Left out: what `loom_in_region.rs` and `loom_throughput.rs` leave out.
#![cfg(loom)]
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};
use latchwork::model::{HandsOff, SOON, Scene, Taken, WakeOrder, as_task, requests, take_requests};
use latchwork::mutex::Throughput;
use latchwork::sharing;
use loom::sync::Arc;

#[macro_use]
mod loom_in_region_support;
use loom_in_region_support::{at_every_step, has_a_successor, spawn, unrepaired_is_lost};

type Form = Throughput<sharing::Shared>;
type Shared = loom_in_region_support::Shared<Form>;

const ONE: &[fn(&Shared)] = &[Shared::enter];
const TWO: &[fn(&Shared)] = &[Shared::enter, Shared::enter];

/// When a top waiter is overdue.
const HANDS_OFF: [HandsOff; 3] = [HandsOff::Never, HandsOff::AtOnce, HandsOff::AfterSleep];

fn scene(hands_off: HandsOff) -> Scene {
    Scene {
        hands_off,
        ..Scene::default()
    }
}

fn napping(hands_off: HandsOff) -> Scene {
    Scene {
        naps_end: true,
        ..scene(hands_off)
    }
}

#[test]
fn one_survivor_gets_in_whenever_the_owner_dies() {
    for hands_off in HANDS_OFF {
        for spurious in [0, 1] {
            let scene = Scene {
                spurious,
                ..scene(hands_off)
            };
            at_every_step(scene, 3, ONE, Shared::enter);
        }
    }
}

#[test]
fn one_survivor_gets_in_though_naps_end() {
    for hands_off in HANDS_OFF {
        at_every_step(napping(hands_off), 2, ONE, Shared::enter);
    }
}

#[test]
fn two_survivors_get_in_whenever_a_task_dies() {
    for hands_off in HANDS_OFF {
        at_every_step(scene(hands_off), 1, TWO, Shared::enter);
    }
}

#[test]
fn two_survivors_get_in_in_the_other_order_of_wake_ups() {
    for hands_off in [HandsOff::AtOnce, HandsOff::AfterSleep] {
        let scene = Scene {
            wake_order: WakeOrder::Newest,
            ..scene(hands_off)
        };
        at_every_step(scene, 1, TWO, Shared::enter);
    }
}

#[test]
fn two_survivors_get_in_though_gates_are_taken_away() {
    for hands_off in [HandsOff::Never, HandsOff::AtOnce] {
        at_every_step(napping(hands_off), 1, TWO, Shared::enter);
    }
}

#[test]
fn two_survivors_get_in_whenever_a_task_dies_that_waits_with_a_deadline() {
    for hands_off in [HandsOff::Never, HandsOff::AtOnce] {
        at_every_step(scene(hands_off), 1, TWO, Shared::try_enter);
    }
}

#[test]
fn a_death_that_is_passed_on_is_reported_again() {
    for hands_off in [HandsOff::Never, HandsOff::AtOnce] {
        at_every_step(
            scene(hands_off),
            1,
            &[Shared::pass_on, Shared::enter],
            Shared::enter,
        );
    }
}

#[test]
fn a_successor_in_its_slot_is_not_taken_for_the_dead_owner() {
    for hands_off in [HandsOff::Never, HandsOff::AtOnce] {
        has_a_successor::<Form>(scene(hands_off));
    }
}

#[test]
fn unrepaired_means_not_recoverable_for_all_tasks() {
    for hands_off in HANDS_OFF {
        unrepaired_is_lost::<Form>(scene(hands_off));
    }
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

/// An unlock that hands off comes between a waiter's last look and its sleep: the kernel must refuse the sleep, whichever
/// task the owner was.
fn the_first_task_hands_off(scene: Scene) {
    let scene = Scene {
        hands_off: HandsOff::AtOnce,
        ..scene
    };
    scene.explore(Some(3), || {
        let shared = Arc::<Shared>::default();
        let waiter = spawn(&shared, 1, None, Shared::enter);
        as_task(0, None, || shared.enter());
        waiter.join().unwrap();
    });
}

#[test]
fn the_task_in_the_first_slot_hands_off_as_any_other() {
    the_first_task_hands_off(Scene::default());
}

fn gives_up_and_takes_nothing(scene: Scene) {
    scene.explore(Some(2), || {
        let shared = Arc::<Shared>::default();
        let threads = [
            spawn(&shared, 1, None, Shared::enter),
            spawn(&shared, 2, None, Shared::try_enter),
        ];
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        // The lock may still be reserved, and a call that does not wait for long takes it all the same.
        as_task(0, None, || {
            assert_eq!(shared.lock.lock(Some(SOON)), Taken::Clean);
            shared.work_and_unlock();
        });
    });
}

#[test]
fn a_top_waiter_that_gives_up_takes_nothing_with_it() {
    for hands_off in HANDS_OFF {
        gives_up_and_takes_nothing(scene(hands_off));
    }
}

/// A dead top waiter has the gate, and the lock may be reserved. A call that gives up takes it.
#[test]
fn a_lock_that_is_reserved_for_a_dead_task_is_taken_also_by_one_that_gives_up() {
    for life in 1..24 {
        scene(HandsOff::AtOnce).explore(Some(1), move || {
            let shared = Arc::<Shared>::default();
            let threads = [
                spawn(&shared, 1, None, Shared::enter),
                spawn(&shared, 2, Some(life), Shared::enter),
            ];
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            as_task(0, None, || {
                let taken = shared.lock.lock(Some(SOON));
                assert_ne!(taken, Taken::TimedOut, "no living task has the lock");
                shared.lock.mark_consistent();
                shared.work_and_unlock();
            });
        });
    }
}

const OVERTAKEN: &str = "a newcomer entered after the request";

/// A newcomer that comes after the request of the only top waiter does not get in before it.
fn request_keeps_newcomers_out(scene: Scene) {
    scene.explore(Some(3), || {
        take_requests();
        let shared = Arc::<Shared>::default();
        let is_in = Arc::new(AtomicBool::new(false));
        let waiter = {
            let (shared, is_in) = (Arc::clone(&shared), Arc::clone(&is_in));
            loom::thread::spawn(move || {
                as_task(2, None, || {
                    assert_eq!(shared.lock.lock(None), Taken::Clean);
                    is_in.store(true, Ordering::Relaxed);
                    shared.work_and_unlock();
                });
            })
        };
        as_task(1, None, || {
            for _ in 0..2 {
                let is_requested = requests() > 0 && !is_in.load(Ordering::Relaxed);
                assert_eq!(shared.lock.lock(None), Taken::Clean);
                let overtakes = is_requested && !is_in.load(Ordering::Relaxed);
                assert!(!overtakes, "{OVERTAKEN}");
                shared.work_and_unlock();
            }
        });
        waiter.join().unwrap();
    });
}

#[test]
fn a_request_keeps_newcomers_out() {
    request_keeps_newcomers_out(scene(HandsOff::AtOnce));
}

/// The same if the owner dies after the request: a newcomer that takes the lock from it has waited, and has made a request of
/// its own. (A death may end the newcomer's sleep at the gate; then there are two top waiters.)
fn request_beside_a_dead_owner_keeps_newcomers_out(scene: Scene) {
    for life in 1..6 {
        scene.explore(Some(2), move || {
            take_requests();
            let shared = Arc::<Shared>::default();
            let is_in = Arc::new(AtomicBool::new(false));
            let owner = spawn(&shared, 1, Some(life), Shared::enter);
            let waiter = {
                let (shared, is_in) = (Arc::clone(&shared), Arc::clone(&is_in));
                loom::thread::spawn(move || {
                    as_task(2, None, || {
                        shared.lock.lock(None);
                        is_in.store(true, Ordering::Relaxed);
                        shared.lock.mark_consistent();
                        shared.work_and_unlock();
                    });
                })
            };
            as_task(0, None, || {
                // The others may run first.
                loom::thread::yield_now();
                let before = requests();
                let is_requested = before > 0 && !is_in.load(Ordering::Relaxed);
                let taken = shared.lock.lock(None);
                let overtakes = is_requested && !is_in.load(Ordering::Relaxed);
                let has_waited = taken == Taken::Clean || requests() > before;
                assert!(!overtakes || has_waited, "{OVERTAKEN}");
                shared.lock.mark_consistent();
                shared.work_and_unlock();
            });
            owner.join().unwrap();
            waiter.join().unwrap();
        });
    }
}

#[test]
fn a_request_beside_a_dead_owner_keeps_newcomers_out() {
    request_beside_a_dead_owner_keeps_newcomers_out(scene(HandsOff::AtOnce));
}

region_twin!(
    twin_newcomer_that_ignores_a_request_beside_a_dead_owner_is_found,
    RegionNewcomerIgnoresRequest,
    OVERTAKEN,
    |scene| request_beside_a_dead_owner_keeps_newcomers_out(Scene {
        hands_off: HandsOff::AtOnce,
        ..scene
    })
);
region_twin!(
    twin_owner_that_looks_like_none_to_a_sleeper_is_found,
    RegionCountsSlotsFromZero,
    "deadlock",
    the_first_task_hands_off
);
region_twin!(
    twin_unlock_that_forgets_the_sleepers_is_found,
    RegionUnlockForgetsSleepers,
    "deadlock",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
);
region_twin!(
    twin_taker_that_forgets_the_sleepers_is_found,
    RegionTakerForgetsSleepers,
    "deadlock",
    |scene: Scene| at_every_step(
        Scene {
            hands_off: HandsOff::AtOnce,
            ..scene
        },
        2,
        TWO,
        Shared::enter
    )
);
region_twin!(
    twin_sleeper_that_misses_deaths_is_found,
    RegionSleeperMissesDeaths,
    "deadlock",
    |scene| at_every_step(scene, 2, ONE, Shared::enter)
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
region_twin!(
    twin_sleep_on_the_gate_without_an_end_is_found,
    RegionGateSleepsForEver,
    "deadlock",
    |scene| at_every_step(scene, 2, TWO, Shared::enter)
);
region_twin!(
    twin_dead_top_waiter_that_keeps_the_gate_is_found,
    RegionGateKeptByDead,
    "deadlock",
    |scene: Scene| at_every_step(
        Scene {
            hands_off: HandsOff::AtOnce,
            ..scene
        },
        2,
        ONE,
        Shared::enter
    )
);
region_twin!(
    twin_gate_that_wakes_nobody_is_found,
    RegionGateWakesNobody,
    "deadlock",
    |scene| at_every_step(scene, 2, TWO, Shared::enter)
);
region_twin!(
    twin_gate_that_is_kept_is_found,
    RegionGateIsKept,
    "deadlock",
    |scene| at_every_step(scene, 2, TWO, Shared::enter)
);
region_twin!(
    twin_hand_off_that_wakes_nobody_is_found,
    RegionHandOffWakesNobody,
    "deadlock",
    |scene: Scene| at_every_step(
        Scene {
            hands_off: HandsOff::AtOnce,
            ..scene
        },
        2,
        ONE,
        Shared::enter
    )
);
region_twin!(
    twin_hand_off_that_forgets_the_sleepers_is_found,
    RegionHandOffForgetsSleepers,
    "deadlock",
    |scene: Scene| at_every_step(
        Scene {
            hands_off: HandsOff::AtOnce,
            ..scene
        },
        2,
        TWO,
        Shared::enter
    )
);
region_twin!(
    twin_request_that_is_lost_is_found,
    RegionRequestIsLost,
    OVERTAKEN,
    |scene: Scene| request_keeps_newcomers_out(Scene {
        hands_off: HandsOff::AtOnce,
        ..scene
    })
);
region_twin!(
    twin_newcomer_that_takes_a_reserved_lock_is_found,
    RegionNewcomerTakesReserved,
    OVERTAKEN,
    |scene: Scene| request_keeps_newcomers_out(Scene {
        hands_off: HandsOff::AtOnce,
        ..scene
    })
);
