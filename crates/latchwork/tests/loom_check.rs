//! Circles of waits that several tasks close at the same time: one of them at least finds it, and nobody finds
//! one that is none. On the checker's own records and search.
#![cfg(loom)]

use latchwork::model::{Scene, Tasks};
use latchwork::negative_twin;
use loom::sync::Arc;
use loom::thread;

/// Each of `count` tasks holds a lock, and wants the next one's.
fn ring(count: usize) {
    ring_of(Tasks::new(count), count);
}

fn ring_of(tasks: Tasks, count: usize) {
    let tasks = Arc::new(tasks);
    let wait = move |tasks: &Tasks, task: usize| {
        tasks.takes(task, task);
        tasks.closes_by_waiting_for(task, (task + 1) % count)
    };
    let others: Vec<_> = (1..count)
        .map(|task| {
            let tasks = Arc::clone(&tasks);
            thread::spawn(move || wait(&tasks, task))
        })
        .collect();
    let mut found = wait(&tasks, 0);
    for other in others {
        found |= other.join().unwrap();
    }
    assert!(found, "nobody found the circle");
}

#[test]
fn of_two_that_close_a_circle_one_finds_it() {
    Scene::default().explore(None, || ring(2));
}

#[test]
fn of_three_that_close_a_circle_one_finds_it() {
    Scene::default().explore(Some(2), || ring(3));
}

negative_twin!(
    twin_task_that_looks_before_it_is_seen_to_wait_is_found,
    CheckWaitUnordered,
    "nobody found the circle",
    None,
    || ring(2)
);

/// What stands for holders on the board says so before they wait, and only then.
#[test]
fn of_two_whose_locks_say_who_holds_them_one_finds_the_circle() {
    Scene::default().explore(None, || ring_of(Tasks::who_say_what_they_hold(2), 2));
}

negative_twin!(
    twin_task_that_waits_before_it_says_what_it_holds_is_found,
    CheckHolderSaidLate,
    "nobody found the circle",
    None,
    || ring_of(Tasks::who_say_what_they_hold(2), 2)
);

/// The lock has changed hands: who says last what it holds is who holds it.
#[test]
fn of_two_one_of_which_has_the_lock_from_another_one_finds_the_circle() {
    Scene::default().explore(Some(3), || {
        let tasks = Arc::new(Tasks::who_say_what_they_hold(3));
        // The third has waited for something once, holding the first's lock.
        tasks.takes(2, 0);
        tasks.closes_by_waiting_for(2, 2);
        tasks.gives_up(2);
        tasks.releases(2);
        tasks.takes(0, 0);
        tasks.takes(1, 1);
        let other = {
            let tasks = Arc::clone(&tasks);
            thread::spawn(move || tasks.closes_by_waiting_for(1, 0))
        };
        let found = tasks.closes_by_waiting_for(0, 1);
        assert!(found | other.join().unwrap(), "nobody found the circle");
    });
}

/// One waits for what the other holds, which releases it, takes the next and waits for the first: they never
/// wait for each other.
#[test]
fn a_chain_that_moves_on_is_no_circle() {
    Scene::default().explore(Some(3), || {
        let tasks = Arc::new(Tasks::new(2));
        tasks.takes(1, 1);
        let other = {
            let tasks = Arc::clone(&tasks);
            thread::spawn(move || {
                tasks.releases(1);
                assert!(!tasks.closes_by_waiting_for(1, 0), "made up");
            })
        };
        tasks.takes(0, 0);
        assert!(!tasks.closes_by_waiting_for(0, 1), "made up");
        tasks.gives_up(0);
        other.join().unwrap();
    });
}
