//! Models of a queue's two sides: `src/queue/lane.rs` and `src/queue/sleepers.rs` under the model checker.
//!
//! A queue of capacity 1 or 2 has two locks, two lanes between them, and cells of loom's, which notices
//! two tasks that touch one at a time. Senders and receivers sleep and wake as `Queue::attempt` and
//! `Queue::take` do. A second model has a flag for the deletion and a set of those who wait and those who
//! have been given a broadcast, under one lock. Properties: messages arrive whole and in order, no cell
//! is written before it was read, no wake-up is lost (a lost one ends as loom's deadlock), a broadcast
//! reaches exactly those that it counted, a deletion ends all waits, a flush none, and a notification that
//! finds nobody registered makes no system call. Every model has a negative twin.
//!
//! Left out: the cells' states, ranks, deaths (`region/park.rs` and the kill tests), the polls before the
//! sleep, more than three tasks. Positions do not wrap.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{Fault, Lane, SOON, Scene, Sleepers, WakeOrder};
use latchwork::mutex::{Mutex, WaitWake};
use latchwork::negative_twin;
use latchwork::sharing;
use latchwork::time::Deadline;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

/// What one side's lock protects: its positions, and the cells that it knows of.
#[derive(Default)]
struct Side {
    put: u32,
    taken: u32,
    known: Vec<u32>,
    /// The number of the next message.
    number: u32,
}

impl Side {
    /// Takes over all that lies in a lane, if nothing is known of.
    fn refill(&mut self, lane: &Lane) -> bool {
        if self.known.is_empty() {
            while let Some(cell) = lane.look(self.taken) {
                self.known.push(cell);
                self.taken += 1;
            }
        }
        !self.known.is_empty()
    }
}

struct Queue {
    sending: Mutex<Side, WaitWake<sharing::Shared>>,
    receiving: Mutex<Side, WaitWake<sharing::Shared>>,
    messages: Lane,
    free: Lane,
    cells: [UnsafeCell<u32>; 2],
    senders: Sleepers,
    receivers: Sleepers,
}

impl Queue {
    fn new(capacity: u32) -> Arc<Self> {
        let sending = Side {
            known: (0..capacity).collect(),
            ..Side::default()
        };
        Arc::new(Self {
            sending: Mutex::from_raw(WaitWake::new(), sending),
            receiving: Mutex::from_raw(WaitWake::new(), Side::default()),
            messages: Lane::default(),
            free: Lane::default(),
            cells: [UnsafeCell::new(0), UnsafeCell::new(0)],
            senders: Sleepers::default(),
            receivers: Sleepers::default(),
        })
    }

    /// The loop of `Queue::attempt` and `Queue::take`: `use_it` of a cell that came by one lane, which
    /// goes on by the other. Returns whether it was done before the deadline passed, and made a
    /// system call to wake.
    fn pass(
        &self,
        side: &Mutex<Side, WaitWake<sharing::Shared>>,
        (from, to): (&Lane, &Lane),
        (sleepers, others): (&Sleepers, &Sleepers),
        deadline: Option<Deadline>,
        use_it: impl Fn(&UnsafeCell<u32>, u32),
    ) -> Option<bool> {
        loop {
            let mut mine = side.lock();
            if !mine.refill(from) {
                let ticket = sleepers.register();
                let there = mine.refill(from);
                drop(mine);
                let (in_time, woken) = match there {
                    true => (true, false),
                    false => sleepers.sleep(ticket, deadline),
                };
                sleepers.leave(ticket, woken);
                if !in_time {
                    return None;
                }
                continue;
            }
            let cell = mine.known.remove(0);
            use_it(&self.cells[cell as usize], mine.number);
            mine.number += 1;
            to.put(mine.put, cell);
            mine.put += 1;
            drop(mine);
            return Some(others.notify(1));
        }
    }

    fn send(&self) -> bool {
        let lanes = (&self.free, &self.messages);
        let sleepers = (&self.senders, &self.receivers);
        let write = |cell: &UnsafeCell<u32>, number| {
            // SAFETY: loom checks that nobody else has it.
            cell.with_mut(|cell| unsafe { *cell = number });
        };
        self.pass(&self.sending, lanes, sleepers, None, write)
            .unwrap()
    }

    fn receive_until(&self, deadline: Option<Deadline>) -> Option<bool> {
        let lanes = (&self.messages, &self.free);
        let sleepers = (&self.receivers, &self.senders);
        let read = |cell: &UnsafeCell<u32>, number| {
            // SAFETY: as above.
            assert_eq!(cell.with(|cell| unsafe { *cell }), number);
        };
        self.pass(&self.receiving, lanes, sleepers, deadline, read)
    }

    fn receive(&self) {
        self.receive_until(None).unwrap();
    }

    fn receiver(queue: &Arc<Self>, messages: u32) -> JoinHandle<()> {
        let queue = Arc::clone(queue);
        thread::spawn(move || (0..messages).for_each(|_| queue.receive()))
    }
}

/// One sender, one receiver: the sender finds the queue full, the receiver finds it empty.
fn one_to_one(capacity: u32, messages: u32) -> impl Fn() + Send + Sync + 'static {
    move || {
        let queue = Queue::new(capacity);
        let receiver = Queue::receiver(&queue, messages);
        for _ in 0..messages {
            queue.send();
        }
        receiver.join().unwrap();
    }
}

/// One sender, two receivers with a message each.
fn one_to_two(capacity: u32) -> impl Fn() + Send + Sync + 'static {
    move || {
        let queue = Queue::new(capacity);
        let receivers = [Queue::receiver(&queue, 1), Queue::receiver(&queue, 1)];
        queue.send();
        queue.send();
        receivers
            .into_iter()
            .for_each(|receiver| receiver.join().unwrap());
    }
}

/// Two senders of a full queue, one receiver.
fn two_to_one() {
    let queue = Queue::new(1);
    let senders = [0, 1].map(|_| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            queue.send();
        })
    });
    queue.receive();
    queue.receive();
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
}

/// A receiver whose deadline passes leaves its registration, and maybe a message, to the other.
fn one_of_two_receivers_gives_up() {
    let queue = Queue::new(2);
    let patient = Queue::receiver(&queue, 1);
    let hasty = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.receive_until(Some(SOON)).is_some())
    };
    queue.send();
    if hasty.join().unwrap() {
        queue.send();
    }
    patient.join().unwrap();
}

#[test]
fn one_sender_and_one_receiver_never_both_sleep() {
    Scene::default().explore(Some(3), one_to_one(1, 2));
    Scene {
        spurious: 1,
        ..Scene::default()
    }
    .explore(Some(3), one_to_one(1, 2));
    Scene::default().explore(Some(3), one_to_one(1, 3));
}

#[test]
fn two_messages_release_two_receivers() {
    for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
        for capacity in [1, 2] {
            Scene {
                wake_order,
                ..Scene::default()
            }
            .explore(Some(3), one_to_two(capacity));
        }
    }
}

#[test]
fn two_messages_release_two_receivers_despite_spurious_wakeups() {
    Scene {
        spurious: 1,
        ..Scene::default()
    }
    .explore(Some(2), one_to_two(1));
}

#[test]
fn room_for_two_releases_two_senders() {
    Scene::default().explore(Some(3), two_to_one);
}

#[test]
fn a_receiver_that_gives_up_takes_no_wakeup_with_it() {
    for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
        Scene {
            wake_order,
            ..Scene::default()
        }
        .explore(Some(3), one_of_two_receivers_gives_up);
    }
}

#[test]
fn nobody_registered_means_no_system_call() {
    Scene::default().explore(None, || {
        let queue = Queue::new(2);
        assert!(!queue.send());
        assert!(!queue.send());
        assert_eq!(queue.receive_until(None), Some(false));
    });
}

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
    wake_order: WakeOrder::Newest,
    hands_off: false,
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

negative_twin!(
    twin_ticket_that_does_not_move_is_found,
    QueueTicketStays,
    "deadlock",
    Some(3),
    one_to_one(1, 1)
);

negative_twin!(
    twin_notification_that_skips_a_single_sleeper_is_found,
    QueueSkipsSingleSleeper,
    "deadlock",
    Some(3),
    one_to_one(1, 1)
);

negative_twin!(
    twin_notification_that_takes_two_registrations_is_found,
    QueueTakesTwoRegistrations,
    "deadlock",
    Some(3),
    one_to_two(2)
);

negative_twin!(
    twin_one_who_leaves_with_anothers_registration_is_found,
    QueueLeavesForAnother,
    "deadlock",
    Some(3),
    one_to_two(2)
);

negative_twin!(
    twin_sleeper_without_barrier_is_found,
    QueueSleeperUnordered,
    "deadlock",
    Some(3),
    one_to_one(1, 1)
);

negative_twin!(
    twin_waker_without_barrier_is_found,
    QueueWakerUnordered,
    "deadlock",
    Some(3),
    one_to_one(1, 1)
);

negative_twin!(
    twin_lane_without_release_is_found,
    LaneRelaxed,
    "Causality violation",
    Some(3),
    one_to_one(1, 2)
);
