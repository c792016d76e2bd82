//! Models of a queue's two sides: `src/queue/lane.rs` and `src/queue/sleepers.rs` under the model checker.
//!
//! A queue of capacity 1 or 2 has two locks, two lanes between them, and cells of loom's, which detects two tasks that
//! touch one at a time. Senders and receivers sleep and wake as the queue's own do. Properties: messages arrive whole and
//! in order, no cell is written before it was read, no wake-up is lost (a lost one ends as loom's deadlock), and a
//! notification without a registered waiter makes no system call. Every model has a negative twin.
//!
//! Left out: the cells' states, ranks, deaths (`region/park.rs` and the kill tests), the polls before the sleep, more than
//! three tasks. Positions do not wrap. `loom_queue_broadcast.rs` has deletions, broadcasts and flushes.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{Lane, SOON, Scene, Sleepers, WakeOrder};
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
