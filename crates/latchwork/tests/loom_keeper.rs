//! Models of the hand-over of a lock from a thread that ends to the keeper: `src/adoption.rs` of `latchwork-sync`.
//!
//! In each model the process is killed: giver and keeper die, before the n-th and the m-th of their steps, for every n
//! and m, in every interleaving within the bound, and the kernel walks the list of each. A task of another process waits
//! meanwhile. Property: it gets the lock, and is told of the death. (A lock that stays with a dead owner ends as loom's
//! deadlock.)
//!
//! Left out: the links of the list (`tests/keeper.rs` and `tests/kill_keeper.rs`, with the real kernel), and what the
//! keeper has from others.
#![cfg(loom)]
#![allow(unsafe_code)]

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicUsize, Ordering};
use latchwork::model::{Adoption, Fault, Scene, Taken, as_task, die};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// The giver's number as a task, and its ID.
const GIVER: (usize, u32) = (1, 2);
const KEEPER: usize = 2;
const SURVIVOR: usize = 3;

/// The giver's steps, from the first after it has taken the lock, and the keeper's; one more than each has.
const STEPS: (RangeInclusive<usize>, RangeInclusive<usize>) = (6..=16, 0..=11);

#[derive(Default)]
struct Shared {
    adoption: Adoption,
    torn: Torn,
}

struct Torn(UnsafeCell<bool>);

// SAFETY: the data is touched under the lock only; that is what the model checks.
unsafe impl Sync for Torn {}
// SAFETY: as above.
unsafe impl Send for Torn {}

impl Default for Torn {
    fn default() -> Self {
        Self(UnsafeCell::new(false))
    }
}

/// How often the giver, and the keeper, completed its part.
static GIVEN: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicUsize = AtomicUsize::new(0);

fn a_process_is_killed(giver_steps: usize, keeper_steps: usize) {
    let shared = Arc::<Shared>::default();
    let mut others = Vec::new();
    as_task(GIVER.0, Some(giver_steps), || {
        assert_eq!(shared.adoption.lock.lock(None), Taken::Clean);
        // SAFETY: the lock is held.
        shared.torn.0.with_mut(|torn| unsafe { *torn = true });
        let (keeper, survivor) = (Arc::clone(&shared), Arc::clone(&shared));
        others.push(thread::spawn(move || {
            as_task(KEEPER, Some(keeper_steps), || {
                keeper.adoption.keep(GIVER.1);
                KEPT.fetch_add(1, Ordering::Relaxed);
                die();
            });
            keeper.adoption.kill();
        }));
        others.push(thread::spawn(move || {
            as_task(SURVIVOR, None, || enter(&survivor));
        }));
        shared.adoption.give();
        GIVEN.fetch_add(1, Ordering::Relaxed);
        die();
    });
    assert_eq!(others.len(), 2, "the giver had taken the lock");
    shared.adoption.kill();
    others.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Another process's task.
fn enter(shared: &Shared) {
    let lock = &shared.adoption.lock;
    match lock.lock(None) {
        // SAFETY: the lock is held.
        Taken::Clean => assert!(
            !shared.torn.0.with(|torn| unsafe { *torn }),
            "torn data, and nobody said so"
        ),
        Taken::OwnerDied => lock.mark_consistent(),
        other => panic!("{other:?}"),
    }
    // SAFETY: the lock is held.
    unsafe { lock.unlock() };
}

fn killed_at_every_pair_of_steps(scene: Scene, preemptions: usize) {
    for giver in STEPS.0 {
        for keeper in STEPS.1 {
            GIVEN.store(0, Ordering::Relaxed);
            KEPT.store(0, Ordering::Relaxed);
            scene.explore(Some(preemptions), move || {
                a_process_is_killed(giver, keeper)
            });
        }
    }
    let (given, kept) = (GIVEN.load(Ordering::Relaxed), KEPT.load(Ordering::Relaxed));
    assert!(
        given > 0 && kept > 0,
        "they have more steps: {given} {kept}"
    );
}

#[test]
fn a_lock_that_is_handed_over_is_never_lost() {
    killed_at_every_pair_of_steps(Scene::default(), 2);
}

macro_rules! twin {
    ($name:ident, $fault:ident) => {
        #[test]
        fn $name() {
            Scene {
                fault: Some(Fault::$fault),
                ..Scene::default()
            }
            .must_fail(stringify!($name), "deadlock", |scene| {
                killed_at_every_pair_of_steps(scene, 2);
            });
        }
    };
}
twin!(
    twin_giver_that_settles_before_the_keeper_has_the_lock_is_found,
    GiverSettlesEarly
);
twin!(
    twin_keeper_that_does_not_announce_is_found,
    KeeperUnannounced
);
