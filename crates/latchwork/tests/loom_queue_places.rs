//! Models of a queue that serves its receivers in order: `src/queue/places.rs` under the model checker.
//!
//! One lock protects the counts of cells, as in `src/queue/waiters.rs`; receivers that wait are handed what comes, or a
//! broadcast, and senders that find no room sleep until there is some. Properties: no wake-up is lost (a lost one ends
//! as loom's deadlock), what may be sent and what is broadcast has a cell, a receiver gets one thing, and all cells are
//! where they were in the end. Both negative twins must fail.
//!
//! Left out: states of cells, deaths (the kill tests), ranks, more than three tasks.
#![cfg(loom)]

use latchwork::model::{Places, Scene, Sleepers};
use latchwork::mutex::{Mutex, WaitWake};
use latchwork::negative_twin;
use latchwork::sharing;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

/// What a receiver was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Message,
    Board,
}

struct State {
    places: Places,
    /// Being written, or in hand.
    taken: u32,
    pending: u32,
    /// Whether each receiver waits, and what it was given.
    waits: [bool; 2],
    given: [Option<Given>; 2],
    readers: u32,
}

impl State {
    fn waiting(&self) -> u32 {
        (0..2)
            .filter(|me| self.waits[*me] && self.given[*me].is_none())
            .count() as u32
    }

    fn take_free(&mut self) {
        self.places.free = self.places.free.checked_sub(1).expect("a free cell");
    }

    /// As `Cells::serve_waiters`.
    fn hand_out(&mut self) {
        for me in 0..2 {
            if self.pending > 0 && self.waits[me] && self.given[me].is_none() {
                self.given[me] = Some(Given::Message);
                self.pending -= 1;
                self.places.given += 1;
            }
        }
    }

    /// As `Cells::end_given`.
    fn end_given(&mut self, me: usize) -> Option<Given> {
        let given = self.given[me].take()?;
        self.waits[me] = false;
        if given == Given::Board {
            self.readers -= 1;
            if self.readers > 0 {
                return Some(given);
            }
        }
        self.places.given -= 1;
        self.places.free += 1;
        Some(given)
    }
}

/// For one message, which somebody has in hand.
struct Queue {
    state: Mutex<State, WaitWake<sharing::Shared>>,
    senders: Sleepers,
    receivers: Sleepers,
}

impl Queue {
    fn new() -> Arc<Self> {
        let state = State {
            places: Places {
                free: 1,
                given: 0,
                spares: 1,
            },
            taken: 1,
            pending: 0,
            waits: [false; 2],
            given: [None; 2],
            readers: 0,
        };
        Arc::new(Self {
            state: Mutex::from_raw(WaitWake::new(), state),
            senders: Sleepers::default(),
            receivers: Sleepers::default(),
        })
    }

    /// The loop of `Queue::take`.
    fn receive(&self, me: usize) -> Given {
        loop {
            let mut state = self.state.lock();
            if let Some(given) = state.end_given(me) {
                return given;
            }
            if state.pending > 0 {
                state.waits[me] = false;
                state.pending -= 1;
                state.places.free += 1;
                drop(state);
                self.senders.notify(1);
                return Given::Message;
            }
            let joins = !core::mem::replace(&mut state.waits[me], true);
            if joins {
                state.waits[me] = false;
                while !state.places.may_wait(state.waiting()) {
                    state.places.spares += 1;
                    state.places.free += 1;
                }
                state.waits[me] = true;
            }
            let ticket = self.receivers.register();
            drop(state);
            if joins {
                self.senders.notify(Places::senders_to_wake());
            }
            let (_, woken) = self.receivers.sleep(ticket, None);
            self.receivers.leave(ticket, woken);
        }
    }

    fn receiver(queue: &Arc<Self>, me: usize) -> JoinHandle<Given> {
        let queue = Arc::clone(queue);
        thread::spawn(move || queue.receive(me))
    }

    /// The loop of `Queue::attempt`. `large`: the message is written without the lock.
    fn send(&self, large: bool) {
        loop {
            let mut state = self.state.lock();
            if state.places.has_room(state.waiting()) {
                state.take_free();
                state.taken += 1;
                if large {
                    drop(state);
                    state = self.state.lock();
                }
                state.taken -= 1;
                state.pending += 1;
                state.hand_out();
                drop(state);
                // In place of a word of its own for each.
                self.receivers.notify(u32::MAX);
                return;
            }
            let ticket = self.senders.register();
            drop(state);
            let (_, woken) = self.senders.sleep(ticket, None);
            self.senders.leave(ticket, woken);
        }
    }

    /// As `Cells::post_board`.
    fn broadcast(&self) -> u32 {
        let mut state = self.state.lock();
        let reached = state.waiting();
        if reached > 0 {
            state.take_free();
            state.places.given += 1;
            state.readers = reached;
            for me in 0..2 {
                if state.waits[me] && state.given[me].is_none() {
                    state.given[me] = Some(Given::Board);
                }
            }
        }
        drop(state);
        self.receivers.notify(u32::MAX);
        reached
    }

    /// Whoever had the message in hand has done with it.
    fn end(&self) {
        let mut state = self.state.lock();
        state.taken -= 1;
        state.places.free += 1;
        drop(state);
        self.senders.notify(1);
    }

    fn check(&self) {
        let state = self.state.lock();
        let places = state.places;
        let cells = places.free + places.given + state.taken + state.pending;
        assert_eq!(cells, 1 + places.spares);
        assert_eq!((places.given, state.waiting()), (0, 0));
    }
}

/// All places are taken until a receiver waits, and that is one.
fn a_waiter_is_a_place() {
    let queue = Queue::new();
    let receiver = Queue::receiver(&queue, 0);
    queue.send(false);
    assert_eq!(receiver.join().unwrap(), Given::Message);
    queue.end();
    queue.check();
}

/// The sender has a cell for the one that waits, and so has the broadcast.
fn a_broadcast_while_a_message_is_written() {
    let queue = Queue::new();
    let receiver = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || match queue.receive(0) {
            Given::Message => 0,
            Given::Board => {
                assert_eq!(queue.receive(0), Given::Message);
                1
            }
        })
    };
    let speaker = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.broadcast())
    };
    queue.send(true);
    assert_eq!(receiver.join().unwrap(), speaker.join().unwrap());
    queue.end();
    queue.check();
}

#[test]
fn a_sender_without_a_place_learns_of_a_receiver_that_waits() {
    Scene::default().explore(None, a_waiter_is_a_place);
}

#[test]
fn a_broadcast_has_a_cell_while_a_message_for_the_same_receiver_is_written() {
    Scene::default().explore(Some(3), a_broadcast_while_a_message_is_written);
}

#[test]
fn two_receivers_get_one_thing_each() {
    Scene::default().explore(Some(2), || {
        let queue = Queue::new();
        let receivers = [0, 1].map(|me| Queue::receiver(&queue, me));
        queue.end();
        queue.send(false);
        queue.send(false);
        let given = receivers.map(|receiver| receiver.join().unwrap());
        assert_eq!(given, [Given::Message; 2]);
        queue.check();
    });
}

negative_twin!(
    twin_receiver_that_waits_unannounced_is_found,
    QueueWaiterUnannounced,
    "deadlock",
    Some(3),
    a_waiter_is_a_place
);

negative_twin!(
    twin_broadcast_without_a_cell_is_found,
    QueueNoCellForBoard,
    "a free cell",
    Some(3),
    a_broadcast_while_a_message_is_written
);
