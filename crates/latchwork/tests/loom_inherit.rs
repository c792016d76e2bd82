//! Models of the priority-inheritance mutexes: `src/mutex/inherit.rs` under the model checker, with a kernel that
//! passes words on, detects wait-for cycles, and makes a sleeper the heir when an owner dies.
//!
//! Properties: two tasks are never in the critical section at once; each task sees what the one before it wrote there;
//! every task gets in or gets an error (a lost wake-up, or a gate that stays closed, ends as loom's deadlock); only a
//! task of a wait-for cycle gets a deadlock error; and no task sees data that a dead owner left torn. Task 3 is a
//! real-time task. Every model has a negative twin.
//!
//! Left out: polls and naps (`sys/futex_pi_loom.rs`), priorities, more than four tasks.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{SOON, Scene, WakeOrder, as_task, somebody_died, step};
use latchwork::mutex::{Inherit, InheritFault, InheritPlain, Protocol};
use latchwork::negative_twin;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

#[derive(Default)]
struct Data {
    sum: u32,
    torn: bool,
}

/// A lock and the data that it protects.
#[derive(Default)]
struct Shared<P> {
    lock: P,
    data: UnsafeCell<Data>,
}

// SAFETY: the data is used only under the lock; the model checks just that.
unsafe impl<P> Sync for Shared<P> {}
// SAFETY: the data is used only under the lock, by one task at a time.
unsafe impl<P> Send for Shared<P> {}

trait Lock: Protocol<Fault = InheritFault> + Default + 'static {}
impl<P: Protocol<Fault = InheritFault> + Default + 'static> Lock for P {}

impl<P: Lock> Shared<P> {
    fn with<R>(&self, body: impl FnOnce(&mut Data) -> R) -> R {
        // SAFETY: the caller holds the lock; loom reports it if two tasks do.
        self.data.with_mut(|data| body(unsafe { &mut *data }))
    }

    fn work_and_unlock(&self) {
        self.with(|data| {
            assert!(!data.torn, "torn data that was not reported");
            data.torn = true;
        });
        step();
        self.with(|data| {
            data.sum += 1;
            data.torn = false;
        });
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.release() };
    }

    fn enter(&self) {
        self.lock.acquire().expect("no task dies");
        self.work_and_unlock();
    }

    fn sum(&self) -> u32 {
        self.lock.acquire().expect("no task dies");
        self.with(|data| data.sum)
    }
}

fn spawn(number: usize, body: impl FnOnce() + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        as_task(number, None, body);
    })
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// These tasks enter the critical section `rounds` times each.
fn every_task_enters<P: Lock, const N: usize>(tasks: [usize; N], rounds: u32) -> impl Fn() {
    move || {
        let shared = Arc::<Shared<P>>::default();
        join(tasks.map(|number| {
            let shared = Arc::clone(&shared);
            spawn(number, move || (0..rounds).for_each(|_| shared.enter()))
        }));
        as_task(0, None, || assert_eq!(shared.sum(), N as u32 * rounds));
    }
}

/// One task gives up at its deadline; the others must still get in.
fn a_deadline_passes<P: Lock, const N: usize>(patient: [usize; N]) -> impl Fn() {
    move || {
        let shared = Arc::<Shared<P>>::default();
        let hasty = Arc::clone(&shared);
        let hasty = spawn(1, move || {
            if hasty.lock.acquire_until(SOON).expect("no task dies") {
                hasty.work_and_unlock();
            }
        });
        join(patient.map(|number| {
            let shared = Arc::clone(&shared);
            spawn(number, move || shared.enter())
        }));
        join([hasty]);
        as_task(0, None, || {
            let sum = shared.sum() as usize;
            assert!(sum == N || sum == N + 1);
        });
    }
}

/// Takes `first`, then `second`; gives up at a deadlock error. Returns whether it gave up.
fn take_both<P: Lock>(first: &Shared<P>, second: &Shared<P>) -> bool {
    first.lock.acquire().expect("nothing is held");
    let is_deadlock = match second.lock.acquire() {
        Ok(()) => {
            second.work_and_unlock();
            false
        }
        Err(fault) => {
            assert_eq!(fault, InheritFault::Deadlock);
            true
        }
    };
    first.work_and_unlock();
    is_deadlock
}

/// Two tasks take two locks in opposite order; other tasks take one of them only.
fn a_deadlock<P: Lock, const N: usize>(bystanders: [usize; N]) -> impl Fn() {
    move || {
        let (left, right) = (Arc::<Shared<P>>::default(), Arc::<Shared<P>>::default());
        let reports = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let cycle = [1, 2].map(|number| {
            let (left, right, reports) =
                (Arc::clone(&left), Arc::clone(&right), Arc::clone(&reports));
            spawn(number, move || {
                let both = if number == 1 {
                    (left, right)
                } else {
                    (right, left)
                };
                if take_both(&both.0, &both.1) {
                    reports.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
                }
            })
        });
        let others = bystanders.map(|number| {
            let left = Arc::clone(&left);
            spawn(number, move || {
                let taken = left.lock.acquire();
                assert_eq!(
                    taken,
                    Ok(()),
                    "a task outside the cycle gets a deadlock error"
                );
                left.work_and_unlock();
            })
        });
        join(cycle);
        join(others);
        assert!(reports.load(loom::sync::atomic::Ordering::Relaxed) < 2);
    }
}

/// A survivor of another task's death; returns whether the lock is `GONE`.
fn survive<P: Lock>(shared: &Shared<P>) -> bool {
    match shared.lock.acquire() {
        Ok(()) => {
            shared.work_and_unlock();
            false
        }
        Err(fault) => {
            assert_eq!(fault, InheritFault::OwnerGone);
            true
        }
    }
}

fn a_task_dies<P: Lock, const N: usize>(survivors: [usize; N], life: usize) {
    let shared = Arc::<Shared<P>>::default();
    let victim = Arc::clone(&shared);
    let victim = thread::spawn(move || {
        as_task(1, Some(life), || {
            victim.enter();
        });
    });
    let gone = Arc::new(loom::sync::atomic::AtomicBool::new(false));
    join(survivors.map(|number| {
        let (shared, gone) = (Arc::clone(&shared), Arc::clone(&gone));
        spawn(number, move || {
            if survive(&shared) {
                gone.store(true, loom::sync::atomic::Ordering::Relaxed);
            }
        })
    }));
    join([victim]);
    let gone = gone.load(loom::sync::atomic::Ordering::Relaxed);
    as_task(0, None, || {
        let gone_now = survive(&shared);
        assert!(gone_now || !gone, "a lock whose owner died was taken");
    });
}

/// Runs the model for each step at which the victim can die, until there is no such step left.
fn at_every_step<P: Lock, const N: usize>(scene: Scene, preemptions: usize, survivors: [usize; N]) {
    for life in 0.. {
        somebody_died();
        scene.explore(Some(preemptions), move || {
            a_task_dies::<P, N>(survivors, life)
        });
        if !somebody_died() {
            assert!(life > 2, "the victim has more steps than that");
            return;
        }
    }
}

const ORDERS: [WakeOrder; 2] = [WakeOrder::Oldest, WakeOrder::Newest];

fn ordered(wake_order: WakeOrder) -> Scene {
    Scene {
        wake_order,
        ..Scene::default()
    }
}

#[test]
fn two_tasks_exclude_each_other_and_both_enter() {
    Scene::default().explore(None, every_task_enters::<InheritPlain, 2>([1, 2], 1));
    Scene::default().explore(None, every_task_enters::<Inherit, 2>([1, 2], 1));
    Scene::default().explore(Some(3), every_task_enters::<InheritPlain, 2>([1, 2], 2));
    Scene::default().explore(Some(3), every_task_enters::<Inherit, 2>([1, 2], 2));
}

#[test]
fn three_tasks_exclude_each_other_and_all_enter() {
    for order in ORDERS {
        let scene = ordered(order);
        scene.explore(Some(3), every_task_enters::<InheritPlain, 3>([0, 1, 2], 1));
        scene.explore(Some(3), every_task_enters::<Inherit, 3>([0, 1, 2], 1));
    }
}

#[test]
fn a_real_time_task_goes_past_the_gate() {
    for order in ORDERS {
        ordered(order).explore(Some(3), every_task_enters::<Inherit, 3>([1, 2, 3], 1));
    }
}

#[test]
fn an_owner_that_is_exiting_is_asked_for_again() {
    let scene = Scene {
        spurious: 2,
        ..Scene::default()
    };
    scene.explore(Some(3), every_task_enters::<InheritPlain, 2>([1, 2], 1));
    scene.explore(Some(3), every_task_enters::<Inherit, 3>([1, 2, 3], 1));
}

#[test]
fn a_task_that_gives_up_leaves_the_others_their_turn() {
    for order in ORDERS {
        let scene = ordered(order);
        scene.explore(Some(3), a_deadline_passes::<InheritPlain, 2>([0, 2]));
        scene.explore(Some(2), a_deadline_passes::<Inherit, 2>([0, 2]));
        scene.explore(Some(2), a_deadline_passes::<Inherit, 2>([2, 3]));
    }
}

#[test]
fn deadlock_is_reported_to_a_cycle_of_two() {
    Scene::default().explore(Some(3), a_deadlock::<InheritPlain, 0>([]));
    Scene::default().explore(Some(3), a_deadlock::<Inherit, 0>([]));
}

#[test]
fn deadlock_is_reported_only_within_the_cycle() {
    for order in ORDERS {
        ordered(order).explore(Some(2), a_deadlock::<InheritPlain, 1>([0]));
        ordered(order).explore(Some(2), a_deadlock::<Inherit, 1>([0]));
    }
}

#[test]
fn one_survivor_proceeds_or_gets_the_death_reported() {
    at_every_step::<InheritPlain, 1>(Scene::default(), 3, [2]);
    at_every_step::<Inherit, 1>(Scene::default(), 3, [2]);
}

#[test]
fn two_survivors_proceed_or_get_the_death_reported() {
    for order in ORDERS {
        at_every_step::<InheritPlain, 2>(ordered(order), 2, [0, 2]);
        at_every_step::<Inherit, 2>(ordered(order), 2, [0, 2]);
        at_every_step::<Inherit, 2>(ordered(order), 2, [2, 3]);
    }
}

negative_twin!(
    twin_lock_without_acquire_is_found,
    InheritLockRelaxed,
    "Causality violation",
    None,
    every_task_enters::<Inherit, 2>([1, 2], 1)
);

negative_twin!(
    twin_unlock_without_release_is_found,
    InheritUnlockRelaxed,
    "Causality violation",
    None,
    every_task_enters::<InheritPlain, 2>([1, 2], 1)
);

negative_twin!(
    twin_unlock_that_ignores_sleepers_is_found,
    InheritUnlockIgnoresSleepers,
    "deadlock",
    Some(3),
    every_task_enters::<InheritPlain, 2>([1, 2], 1)
);

negative_twin!(
    twin_gate_that_stays_closed_is_found,
    InheritKeepsGate,
    "deadlock",
    Some(2),
    a_deadline_passes::<Inherit, 2>([0, 2])
);

negative_twin!(
    twin_owner_of_the_gate_that_blames_itself_is_found,
    InheritBlamesGate,
    "a task outside the cycle",
    Some(2),
    a_deadlock::<Inherit, 1>([0])
);

#[test]
fn twin_heir_that_hides_the_death_is_found() {
    let scene = Scene {
        fault: Some(latchwork::model::Fault::InheritHidesDeath),
        ..Scene::default()
    };
    scene.must_fail(
        "twin_heir_that_hides_the_death_is_found",
        "torn data that was not reported",
        |scene| at_every_step::<InheritPlain, 1>(scene, 2, [2]),
    );
}
