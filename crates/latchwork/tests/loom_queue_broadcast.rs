//! Models of deletions, broadcasts and flushes of a queue: `src/queue/sleepers.rs` under the model checker.
//!
//! A queue has, under one lock, a flag for the deletion, the set of waiting receivers, and the set of those that a
//! broadcast was given to. Properties: a broadcast reaches exactly the receivers that it counted, a deletion ends all
//! waits, a flush ends none, and no wake-up is lost (a lost one ends as loom's deadlock). Every model has a negative twin.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{Fault, HandsOff, SOON, Scene, Sleepers, WakeOrder};
use latchwork::mutex::{Mutex, WaitWake};
use latchwork::negative_twin;
use latchwork::sharing;
use latchwork::time::Deadline;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

/// What a receiver got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Message,
    Broadcast,
    Deleted,
    Nothing,
}

/// What the lock of a queue with two possible receivers protects.
#[derive(Default)]
struct State {
    ready: u32,
    deleted: bool,
    waits: [bool; 2],
    given: [bool; 2],
}

struct Hall {
    state: Mutex<State, WaitWake<sharing::Shared>>,
    receivers: Sleepers,
}

impl Hall {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::from_raw(WaitWake::new(), State::default()),
            receivers: Sleepers::default(),
        })
    }

    /// The loop of `Queue::take`.
    fn receive(&self, me: usize, deadline: Option<Deadline>) -> Got {
        let mut late = false;
        loop {
            let mut state = self.state.lock();
            let got = if core::mem::take(&mut state.given[me]) {
                Some(Got::Broadcast)
            } else if state.deleted {
                Some(Got::Deleted)
            } else if state.ready > 0 {
                state.ready -= 1;
                Some(Got::Message)
            } else {
                late.then_some(Got::Nothing)
            };
            if let Some(got) = got {
                state.waits[me] = false;
                return got;
            }
            state.waits[me] = true;
            let ticket = self.receivers.register();
            drop(state);
            let (in_time, woken) = self.receivers.sleep(ticket, deadline);
            late = !in_time;
            self.receivers.leave(ticket, woken);
        }
    }

    fn receiver(hall: &Arc<Self>, me: usize, deadline: Option<Deadline>) -> JoinHandle<Got> {
        let hall = Arc::clone(hall);
        thread::spawn(move || hall.receive(me, deadline))
    }

    fn send(&self) {
        let mut state = self.state.lock();
        state.ready += 1;
        drop(state);
        self.receivers.notify(1);
    }

    /// As `Cells::post_board`; how many it reached.
    fn broadcast(&self) -> usize {
        let mut state = self.state.lock();
        let mut count = 0;
        for me in 0..2 {
            if state.waits[me] && !state.given[me] {
                state.given[me] = true;
                count += 1;
            }
        }
        drop(state);
        if count > 0 {
            self.receivers.notify(u32::MAX);
        }
        count
    }

    fn flush(&self) -> u32 {
        core::mem::take(&mut self.state.lock().ready)
    }

    fn delete(&self) {
        let mut state = self.state.lock();
        state.deleted = true;
        drop(state);
        self.receivers.notify(u32::MAX);
    }
}

/// Whoever waits is told of a deletion; a broadcast before it reaches those that it counted.
fn broadcast_and_delete() {
    let hall = Hall::new();
    let receivers = [
        Hall::receiver(&hall, 0, None),
        Hall::receiver(&hall, 1, None),
    ];
    let reached = hall.broadcast();
    hall.delete();
    let got = receivers.map(|receiver| receiver.join().unwrap());
    let told = got.iter().filter(|got| **got == Got::Broadcast).count();
    assert_eq!(told, reached);
    assert!(
        got.iter()
            .all(|got| matches!(got, Got::Broadcast | Got::Deleted))
    );
}

/// A broadcast against a receiver that gives up: it got it or not, and the count says which.
fn broadcast_to_one_who_gives_up() {
    let hall = Hall::new();
    let hasty = Hall::receiver(&hall, 0, Some(SOON));
    let reached = hall.broadcast();
    let got = hasty.join().unwrap();
    assert_eq!(got == Got::Broadcast, reached == 1);
    assert!(matches!(got, Got::Broadcast | Got::Nothing));
}

/// A message and a flush: it is received or dropped, and the receiver waits for the next one.
fn flush_against_receive() {
    let hall = Hall::new();
    let receiver = Hall::receiver(&hall, 0, None);
    hall.send();
    if hall.flush() == 1 {
        hall.send();
    }
    assert_eq!(receiver.join().unwrap(), Got::Message);
}

#[test]
fn a_deletion_ends_all_waits_and_a_broadcast_reaches_whom_it_counts() {
    for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
        Scene {
            wake_order,
            ..Scene::default()
        }
        .explore(Some(3), broadcast_and_delete);
    }
}

#[test]
fn a_broadcast_to_one_who_gives_up_is_counted_truly() {
    Scene::default().explore(Some(4), broadcast_to_one_who_gives_up);
}

/// One receives one message, the other two; a wake-up for the one may come late, and take the other.
fn receivers_unlike() {
    let hall = Hall::new();
    let one = Hall::receiver(&hall, 0, None);
    let two = {
        let hall = Arc::clone(&hall);
        thread::spawn(move || [(); 2].map(|()| hall.receive(1, None)))
    };
    (0..3).for_each(|_| hall.send());
    assert_eq!(one.join().unwrap(), Got::Message);
    assert_eq!(two.join().unwrap(), [Got::Message; 2]);
}

/// The kernel prefers real-time tasks, whoever came first.
const NEWEST_FIRST: Scene = Scene {
    spurious: 0,
    refused: 0,
    wake_order: WakeOrder::Newest,
    hands_off: HandsOff::Never,
    naps_end: false,
    starving: false,
    fault: None,
};

#[test]
fn a_wakeup_that_takes_another_takes_nobodys_registration() {
    NEWEST_FIRST.explore(Some(3), receivers_unlike);
}

#[test]
fn twin_one_who_was_woken_and_leaves_is_found() {
    let scene = Scene {
        fault: Some(Fault::QueueLeavesWhenWoken),
        ..NEWEST_FIRST
    };
    scene.must_fail(
        "twin_one_who_was_woken_and_leaves_is_found",
        "deadlock",
        |scene| scene.explore(Some(3), receivers_unlike),
    );
}

#[test]
fn a_flush_takes_the_message_or_the_receiver_does() {
    Scene::default().explore(Some(4), flush_against_receive);
}

negative_twin!(
    twin_notification_of_all_that_wakes_one_is_found,
    QueueNotifiesOneOfAll,
    "deadlock",
    Some(3),
    broadcast_and_delete
);
