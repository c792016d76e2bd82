//! Models of events: `src/region/events.rs` under the model checker.
//!
//! One task receives from its set, one or two others send to it. Properties: no event and no wake-up is
//! lost (a lost one ends as loom's deadlock), what a sender wrote is visible to who receives its event, a
//! send that does not make the condition true makes no system call, nothing reaches a successor, and what is sent
//! after the task was satisfied stays pending.
//! Every model has a negative twin.
//!
//! Left out: deaths (`region/park.rs` and its kill tests), signal handlers, the polls before the sleep,
//! more than two senders, loads that are torn (a model's set is one word).
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{Events, SOON, Scene};
use latchwork::negative_twin;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

const A: u32 = 1;
/// The last one of a model's 16.
const B: u32 = 1 << 15;
/// The generation of the receiving task.
const ME: u32 = 7;

#[derive(Default)]
struct Task {
    events: Events,
    /// Written before `A` and `B` are sent.
    data: [UnsafeCell<u32>; 2],
}

// SAFETY: that the data is not accessed by two at once is what the models find out.
unsafe impl Sync for Task {}

impl Task {
    fn new() -> Arc<Self> {
        let task = Self::default();
        task.events.begin(ME);
        Arc::new(task)
    }

    fn send(&self, event: u32) -> Option<bool> {
        // SAFETY: this event's place is written by its one sender, before it sends; loom checks that nobody
        // reads it meanwhile.
        self.data[usize::from(event == B)].with_mut(|data| unsafe { *data = event });
        self.events.send(ME, event)
    }

    fn sender(task: &Arc<Self>, event: u32) -> JoinHandle<()> {
        let task = Arc::clone(task);
        thread::spawn(move || assert!(task.send(event).is_some()))
    }

    /// What was received is there.
    fn check(&self, received: u32) {
        for (place, event) in [A, B].into_iter().enumerate() {
            if received & event != 0 {
                // SAFETY: the event was received, after which its sender writes no more; loom checks that.
                assert_eq!(self.data[place].with(|data| unsafe { *data }), event);
            }
        }
    }
}

/// Two senders, each event received by itself or both at once.
fn any_of_two() {
    let task = Task::new();
    let senders = [A, B].map(|event| Task::sender(&task, event));
    let mut left = A | B;
    while left != 0 {
        let received = task.events.receive(left, false, None).unwrap();
        assert!(received != 0 && received & !left == 0);
        task.check(received);
        left &= !received;
    }
    for sender in senders {
        sender.join().unwrap();
    }
    assert_eq!(task.events.pending(), 0);
}

/// Two senders, both events received together.
fn all_of_two() {
    let task = Task::new();
    let senders = [A, B].map(|event| Task::sender(&task, event));
    assert_eq!(task.events.receive(A | B, true, None), Some(A | B));
    task.check(A | B);
    for sender in senders {
        sender.join().unwrap();
    }
    assert_eq!(task.events.pending(), 0);
}

/// One sender, one event.
fn one_of_one() {
    let task = Task::new();
    let sender = Task::sender(&task, A);
    assert_eq!(task.events.receive(A, false, None), Some(A));
    task.check(A);
    sender.join().unwrap();
}

/// A receive whose time is over either has the event or leaves it.
fn one_in_time_or_not() {
    let task = Task::new();
    let sender = Task::sender(&task, A);
    let received = task.events.receive(A | B, false, Some(SOON));
    sender.join().unwrap();
    assert_eq!(received.unwrap_or(0) | task.events.pending(), A);
    assert_eq!(
        received.unwrap_or(A) & task.events.pending(),
        received.map_or(A, |_| 0)
    );
    // Nothing of the first condition is left.
    assert_eq!(task.send(B), Some(false));
}

/// What comes after the send that satisfies a waiting task is not for this receive.
fn one_after_the_other(second: u32) {
    let task = Task::new();
    let sender = {
        let task = Arc::clone(&task);
        thread::spawn(move || {
            while !task.events.is_awaited() {
                thread::yield_now();
            }
            assert!(task.events.send(ME, A).is_some());
            assert_eq!(task.events.send(ME, second), Some(false));
        })
    };
    assert_eq!(task.events.receive(A | B, false, None), Some(A));
    sender.join().unwrap();
    assert_eq!(task.events.pending(), second);
}

/// A sender knows a task that goes meanwhile; its place has another one then.
fn a_stale_sender() {
    let task = Task::new();
    let sender = {
        let task = Arc::clone(&task);
        thread::spawn(move || task.events.send(ME, A).is_some())
    };
    task.events.begin(ME + 1);
    sender.join().unwrap();
    assert_eq!(task.events.pending(), 0);
}

#[test]
fn an_event_wakes_its_task() {
    for spurious in [0, 1] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(None, one_of_one);
    }
}

#[test]
fn each_of_two_events_is_received_once() {
    for spurious in [0, 1] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(Some(3), any_of_two);
    }
}

#[test]
fn the_last_of_all_events_wakes_their_task() {
    for spurious in [0, 1] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(Some(3), all_of_two);
    }
}

#[test]
fn an_event_at_the_deadline_is_received_or_stays() {
    Scene::default().explore(None, one_in_time_or_not);
}

#[test]
fn what_is_sent_after_the_task_was_satisfied_stays_pending() {
    for second in [A, B] {
        Scene::default().explore(Some(3), move || one_after_the_other(second));
    }
}

#[test]
fn no_event_reaches_a_successor() {
    Scene::default().explore(None, a_stale_sender);
}

#[test]
fn a_send_to_a_task_that_does_not_wait_makes_no_system_call() {
    Scene::default().explore(None, || {
        let task = Task::new();
        assert_eq!(task.send(A), Some(false));
        assert_eq!(task.events.receive(A, true, None), Some(A));
        assert_eq!(task.send(B), Some(false));
        assert_eq!(task.events.send(ME + 1, A), None);
        assert_eq!(task.events.pending(), B);
    });
}

/// The first of two events that a task waits for leaves it asleep.
#[test]
fn one_wake_up_for_all_of_two() {
    Scene::default().explore(Some(3), || {
        let task = Task::new();
        let other = Arc::clone(&task);
        let sender = thread::spawn(move || {
            let calls = [other.send(A).unwrap(), other.send(B).unwrap()];
            assert!(!calls[0]);
        });
        assert_eq!(task.events.receive(A | B, true, None), Some(A | B));
        sender.join().unwrap();
    });
}

negative_twin!(
    twin_send_without_release_is_found,
    EventSendRelaxed,
    "Causality violation",
    Some(3),
    one_of_one
);

negative_twin!(
    twin_sleep_that_no_sender_knows_of_is_found,
    EventSleepsUntold,
    "deadlock",
    Some(3),
    one_of_one
);

negative_twin!(
    twin_send_that_adds_to_what_was_given_is_found,
    EventsMerge,
    "left == right",
    Some(3),
    || one_after_the_other(B)
);

negative_twin!(
    twin_sleep_on_events_that_were_not_looked_at_is_found,
    EventSleepsOnUnseen,
    "deadlock",
    Some(3),
    one_of_one
);

negative_twin!(
    twin_events_that_do_not_add_up_are_found,
    EventsDoNotAddUp,
    "deadlock",
    Some(3),
    all_of_two
);

negative_twin!(
    twin_events_that_are_cleared_by_a_store_are_found,
    EventsClearedByStore,
    "Causality violation",
    Some(3),
    any_of_two
);

negative_twin!(
    twin_sender_to_whom_it_may_concern_is_found,
    EventIgnoresGeneration,
    "left == right",
    Some(3),
    a_stale_sender
);
