//! Models of the semaphores: `src/semaphore/` under the model checker, with the records of three tasks in
//! place of a region.
//!
//! Properties: every wait ends (a lost wake-up, or an unreported circle, ends as loom's deadlock), two owners
//! are never inside at once and see what the one before did, units are neither lost nor made, and a priority
//! that is worked out by several at once is the right one in the end. Every model has a negative twin.
//!
//! Left out: deaths (`tests/kill_semaphore`), the polls before the queue and before the sleep, ceilings,
//! more than three tasks.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{SOON, Scene, SemaphoreKind, Semaphores, Waited, as_task};
use latchwork::negative_twin;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Model {
    semaphores: Semaphores,
    data: UnsafeCell<u32>,
}

// SAFETY: the data is used by who has obtained the semaphore; loom checks that.
unsafe impl Sync for Model {}

impl Model {
    fn new(count: usize, kind: SemaphoreKind) -> Arc<Self> {
        Arc::new(Self {
            semaphores: Semaphores::new(count, kind),
            data: UnsafeCell::new(0),
        })
    }

    fn work(&self) {
        // SAFETY: called between an obtain and its release only; loom checks that nobody else is.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }
}

/// Runs each body as the task of its number.
fn run(model: &Arc<Model>, bodies: &[fn(&Model, u16)]) {
    let tasks: Vec<_> = (1..)
        .zip(bodies)
        .map(|(number, body)| {
            let (model, body) = (Arc::clone(model), *body);
            thread::spawn(move || {
                as_task(usize::from(number), None, || body(&model, number));
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
}

fn enter(model: &Model, task: u16) {
    assert_eq!(model.semaphores.obtain(0, task, None), Waited::Obtained);
    model.work();
    model.semaphores.release(0, task);
}

fn enter_in_time(model: &Model, task: u16) {
    if model.semaphores.obtain(0, task, Some(SOON)) == Waited::Obtained {
        model.work();
        model.semaphores.release(0, task);
    }
}

fn two_tasks_share_a_count() {
    let model = Model::new(1, SemaphoreKind::Counting(1));
    run(&model, &[enter, enter]);
    assert_eq!(model.semaphores.state(0), (1, 0));
}

#[test]
fn a_unit_passes_from_one_to_the_other() {
    for spurious in [0, 1] {
        let scene = Scene {
            spurious,
            ..Scene::default()
        };
        scene.explore(Some(2), two_tasks_share_a_count);
    }
}

negative_twin!(
    twin_obtain_without_acquire_is_found,
    SemaphoreObtainRelaxed,
    "Causality violation",
    Some(2),
    two_tasks_share_a_count
);
negative_twin!(
    twin_release_without_release_is_found,
    SemaphoreReleaseRelaxed,
    "Causality violation",
    Some(2),
    two_tasks_share_a_count
);
negative_twin!(
    twin_hand_over_without_wake_is_found,
    SemaphoreWakesNobody,
    "deadlock",
    Some(2),
    two_tasks_share_a_count
);
negative_twin!(
    twin_queueing_unannounced_is_found,
    SemaphoreQueuesUnannounced,
    "deadlock",
    Some(2),
    two_tasks_share_a_count
);

fn one_has_a_deadline() {
    let model = Model::new(1, SemaphoreKind::Counting(1));
    run(&model, &[enter, enter_in_time]);
    assert_eq!(model.semaphores.state(0), (1, 0));
}

#[test]
fn a_deadline_against_a_release_gives_one_result() {
    Scene::default().explore(Some(2), one_has_a_deadline);
}

negative_twin!(
    twin_deadline_that_wins_against_a_grant_is_found,
    SemaphoreGivesUpGranted,
    "assertion",
    Some(2),
    one_has_a_deadline
);

fn three_tasks_share_a_count() {
    let model = Model::new(1, SemaphoreKind::Counting(1));
    run(&model, &[enter, enter, enter]);
    assert_eq!(model.semaphores.state(0), (1, 0));
}

#[test]
fn a_unit_passes_through_a_queue_of_two() {
    Scene::default().explore(Some(1), three_tasks_share_a_count);
}

/// One only releases, twice: counts are handed over and added.
#[test]
fn units_come_from_anybody() {
    fn take(model: &Model, task: u16) {
        assert_eq!(model.semaphores.obtain(0, task, None), Waited::Obtained);
    }
    fn give_two(model: &Model, task: u16) {
        model.semaphores.release(0, task);
        model.semaphores.release(0, task);
    }
    Scene::default().explore(Some(2), || {
        let model = Model::new(1, SemaphoreKind::Counting(0));
        run(&model, &[take, give_two]);
        assert_eq!(model.semaphores.state(0), (1, 0));
    });
}

#[test]
fn two_owners_exclude_each_other() {
    for kind in [SemaphoreKind::Binary, SemaphoreKind::Inherit] {
        Scene::default().explore(Some(2), move || {
            let model = Model::new(1, kind);
            run(&model, &[enter, enter]);
            assert_eq!(model.semaphores.state(0), (0, 0));
        });
    }
}

#[test]
fn an_owner_and_a_deadline_exclude_each_other() {
    Scene::default().explore(Some(2), || {
        let model = Model::new(1, SemaphoreKind::Binary);
        run(&model, &[enter, enter_in_time]);
        assert_eq!(model.semaphores.state(0), (0, 0));
    });
}

fn in_opposite_order() {
    fn both(model: &Model, task: u16) {
        let own = usize::from(task - 1);
        assert_eq!(model.semaphores.obtain(own, task, None), Waited::Obtained);
        match model.semaphores.obtain(1 - own, task, None) {
            Waited::Obtained => model.semaphores.release(1 - own, task),
            Waited::Deadlock => {}
            waited => panic!("{waited:?}"),
        }
        model.semaphores.release(own, task);
    }
    let model = Model::new(2, SemaphoreKind::Binary);
    run(&model, &[both, both]);
    assert_eq!(
        [0, 1].map(|index| model.semaphores.state(index)),
        [(0, 0); 2]
    );
}

#[test]
fn a_cycle_that_two_tasks_complete_at_once_is_reported() {
    Scene::default().explore(Some(2), in_opposite_order);
}

negative_twin!(
    twin_entering_unordered_is_found,
    SemaphoreEntersUnordered,
    "deadlock",
    Some(2),
    in_opposite_order
);

/// The owner's own priority becomes lower while somebody begins to wait whose priority is between the two.
fn owner_is_lowered() {
    let model = owned_by_the_first(5);
    run(
        &model,
        &[
            |model, task| model.semaphores.set_priority(task, 50),
            |model, task| {
                model.semaphores.set_priority(task, 10);
                model.semaphores.begin_wait(0, task);
            },
        ],
    );
    assert_eq!(model.semaphores.priority(1), 10);
}

fn owned_by_the_first(priority: u32) -> Arc<Model> {
    let model = Model::new(1, SemaphoreKind::Inherit);
    as_task(1, None, || {
        model.semaphores.set_priority(1, priority);
        assert_eq!(model.semaphores.obtain(0, 1, None), Waited::Obtained);
    });
    model
}

#[test]
fn a_waiter_and_a_change_of_the_owner_do_not_miss_each_other() {
    Scene::default().explore(Some(2), owner_is_lowered);
}

negative_twin!(
    twin_looking_past_a_change_is_found,
    SemaphoreLooksPastBusy,
    "assertion",
    Some(2),
    owner_is_lowered
);

/// As before, of an owner for which somebody has waited already.
fn owner_is_lowered_again() {
    let model = owned_by_the_first(5);
    model.semaphores.set_inherits(1);
    run(
        &model,
        &[
            |model, task| model.semaphores.set_priority(task, 50),
            |model, task| {
                model.semaphores.set_priority(task, 10);
                model.semaphores.begin_wait(0, task);
            },
        ],
    );
    assert_eq!(model.semaphores.priority(1), 10);
}

#[test]
fn a_waiter_and_the_forgetting_of_earlier_ones_do_not_miss_each_other() {
    Scene::default().explore(Some(2), owner_is_lowered_again);
}

negative_twin!(
    twin_forgetting_who_has_just_come_is_found,
    SemaphoreForgetsLate,
    "assertion",
    Some(2),
    owner_is_lowered_again
);

/// The second, which is about to be handed the semaphore, gets a lower priority than the third, which waits, too.
fn heir_is_lowered() {
    let model = owned_by_the_first(50);
    for (task, priority) in [(2, 10), (3, 20)] {
        as_task(usize::from(task), None, || {
            model.semaphores.set_priority(task, priority);
            model.semaphores.begin_wait(0, task);
        });
    }
    run(
        &model,
        &[
            |model, task| model.semaphores.release(0, task),
            |model, _| model.semaphores.set_priority(2, 30),
        ],
    );
    let owner = model.semaphores.owner(0);
    assert!(owner == 2 || owner == 3);
    assert_eq!(model.semaphores.priority(owner), 20);
    assert_eq!(model.semaphores.priority(1), 50);
}

#[test]
fn a_hand_over_and_a_change_of_the_new_owner_do_not_miss_each_other() {
    Scene::default().explore(Some(2), heir_is_lowered);
}

negative_twin!(
    twin_handing_over_without_a_look_is_found,
    SemaphoreHeirUnseen,
    "assertion",
    Some(2),
    heir_is_lowered
);

fn waiter_is_raised() {
    let model = owned_by_the_first(50);
    run(
        &model,
        &[
            |model, _| model.semaphores.set_priority(2, 10),
            |model, task| model.semaphores.begin_wait(0, task),
        ],
    );
    assert_eq!(model.semaphores.queue_priority(2), 10);
    assert_eq!(model.semaphores.priority(1), 10);
}

#[test]
fn a_change_of_a_task_that_begins_to_wait_reaches_its_place_and_the_owner() {
    Scene::default().explore(Some(2), waiter_is_raised);
}

negative_twin!(
    twin_unordered_move_is_found,
    SemaphoreMovesUnordered,
    "assertion",
    Some(2),
    waiter_is_raised
);

#[test]
fn inherited_priorities_are_given_back() {
    Scene::default().explore(Some(2), || {
        let model = owned_by_the_first(50);
        run(
            &model,
            &[
                |model, task| {
                    model.semaphores.release(0, task);
                    assert_eq!(model.semaphores.priority(task), 50);
                },
                |model, task| {
                    model.semaphores.set_priority(task, 10);
                    assert_eq!(model.semaphores.obtain(0, task, None), Waited::Obtained);
                    model.semaphores.release(0, task);
                    assert_eq!(model.semaphores.priority(task), 10);
                },
            ],
        );
        assert_eq!([1, 2].map(|task| model.semaphores.priority(task)), [50, 10]);
    });
}
