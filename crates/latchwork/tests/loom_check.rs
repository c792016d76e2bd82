//! Wait-for cycles that several tasks complete at the same time: at least one of them detects the cycle, and no task
//! reports a cycle that does not exist. On the checker's own records and search.
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
        tasks.completes_cycle_by_waiting_for(task, (task + 1) % count)
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
    assert!(found, "no task detected the cycle");
}

#[test]
fn one_of_two_that_complete_a_cycle_detects_it() {
    Scene::default().explore(None, || ring(2));
}

#[test]
fn one_of_three_that_complete_a_cycle_detects_it() {
    Scene::default().explore(Some(2), || ring(3));
}

negative_twin!(
    twin_search_before_the_wait_is_published_is_detected,
    CheckWaitUnordered,
    "no task detected the cycle",
    None,
    || ring(2)
);

/// Holders are named on the board before they wait, and only then.
#[test]
fn one_of_two_stated_holders_detects_the_cycle() {
    Scene::default().explore(None, || ring_of(Tasks::with_stated_holders(2), 2));
}

negative_twin!(
    twin_holder_stated_after_the_wait_is_detected,
    CheckHolderSaidLate,
    "no task detected the cycle",
    None,
    || ring_of(Tasks::with_stated_holders(2), 2)
);

/// The lock has had another holder before: the last task that stated that it holds the lock is the holder.
#[test]
fn one_of_two_detects_the_cycle_after_a_change_of_holder() {
    Scene::default().explore(Some(3), || {
        let tasks = Arc::new(Tasks::with_stated_holders(3));
        // The third has waited for something once, holding the first's lock.
        tasks.takes(2, 0);
        tasks.completes_cycle_by_waiting_for(2, 2);
        tasks.gives_up(2);
        tasks.releases(2);
        tasks.takes(0, 0);
        tasks.takes(1, 1);
        let other = {
            let tasks = Arc::clone(&tasks);
            thread::spawn(move || tasks.completes_cycle_by_waiting_for(1, 0))
        };
        let found = tasks.completes_cycle_by_waiting_for(0, 1);
        assert!(found | other.join().unwrap(), "no task detected the cycle");
    });
}

/// A task releases its lock, and then waits for the lock of another task, which acquires that and then waits for the
/// released one: the two never wait for each other.
#[test]
fn a_chain_that_moves_on_is_not_a_cycle() {
    Scene::default().explore(Some(3), || {
        let tasks = Arc::new(Tasks::new(2));
        tasks.takes(1, 1);
        let other = {
            let tasks = Arc::clone(&tasks);
            thread::spawn(move || {
                tasks.releases(1);
                assert!(
                    !tasks.completes_cycle_by_waiting_for(1, 0),
                    "a false positive"
                );
            })
        };
        tasks.takes(0, 0);
        assert!(
            !tasks.completes_cycle_by_waiting_for(0, 1),
            "a false positive"
        );
        tasks.gives_up(0);
        other.join().unwrap();
    });
}
