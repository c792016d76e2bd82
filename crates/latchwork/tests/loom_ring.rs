//! Models of a ring's words: `src/queue/ring.rs` under the model checker.
//!
//! One sender and one receiver with a capacity of 1 or 2 and messages that are cells of loom's, which
//! notices two that touch one at a time. Properties: messages arrive in order and whole, no place is
//! overwritten before it was read, no wake-up is lost (a lost one ends as loom's deadlock), all watchers are notified, a
//! deletion ends all waits, a deleted ring's body is freed once no task has a side, and no system call is made while no task
//! sleeps. Every model has a negative twin.
//!
//! Left out: the copies themselves, deaths (`region/park.rs` and the kill tests), the polls before the sleep. Indices do
//! not wrap.
#![cfg(loom)]

use latchwork::model::{AtomicU64, Ring, SOON, Scene, Side};
use latchwork::negative_twin;
use latchwork::time::Deadline;
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering;
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Mail {
    ring: Ring,
    places: [UnsafeCell<u32>; 2],
    capacity: u32,
}

impl Mail {
    fn new(capacity: u32) -> Arc<Self> {
        Arc::new(Self {
            ring: Ring::default(),
            places: [UnsafeCell::new(0), UnsafeCell::new(0)],
            capacity,
        })
    }

    fn place(&self, index: u32) -> &UnsafeCell<u32> {
        &self.places[(index % self.capacity) as usize]
    }

    /// Sends the message with this number, which is its content, too.
    fn send(&self, number: u32) -> bool {
        self.ring
            .wait(Side::Sender, None, |head| number - head < self.capacity)
            .unwrap();
        self.place(number).with_mut(|place| write(place, number));
        self.ring.advance(Side::Sender, number + 1)
    }

    /// Receives the message with this number, if it comes before the deadline.
    fn receive(&self, number: u32, deadline: Option<Deadline>) -> bool {
        let there = self
            .ring
            .wait(Side::Receiver, deadline, |tail| tail > number);
        if there.is_some() {
            assert_eq!(self.place(number).with(read), number);
            self.ring.advance(Side::Receiver, number + 1);
        }
        there.is_some()
    }
}

#[allow(unsafe_code)]
fn write(place: *mut u32, number: u32) {
    // SAFETY: loom checks that nobody else has it.
    unsafe { *place = number };
}

#[allow(unsafe_code)]
fn read(place: *const u32) -> u32 {
    // SAFETY: as above.
    unsafe { *place }
}

fn stream(capacity: u32, messages: u32) -> impl Fn() + Send + Sync + 'static {
    move || {
        let mail = Mail::new(capacity);
        let receiver = {
            let mail = Arc::clone(&mail);
            thread::spawn(move || {
                (0..messages).for_each(|number| assert!(mail.receive(number, None)));
            })
        };
        for number in 0..messages {
            mail.send(number);
        }
        receiver.join().unwrap();
    }
}

/// A receiver that may give up once, and comes again.
fn impatient() {
    let mail = Mail::new(1);
    let receiver = {
        let mail = Arc::clone(&mail);
        thread::spawn(move || {
            if !mail.receive(0, Some(SOON)) {
                assert!(mail.receive(0, None));
            }
            assert!(mail.receive(1, None));
        })
    };
    mail.send(0);
    mail.send(1);
    receiver.join().unwrap();
}

/// Two watchers of one message.
fn watched() {
    let mail = Mail::new(1);
    let watchers = [0, 1].map(|_| {
        let mail = Arc::clone(&mail);
        thread::spawn(move || mail.ring.watch(1))
    });
    mail.send(0);
    watchers
        .into_iter()
        .for_each(|watcher| watcher.join().unwrap());
}

/// A receiver and a watcher of a ring that is deleted.
fn deleted() {
    let mail = Mail::new(1);
    let receiver = {
        let mail = Arc::clone(&mail);
        thread::spawn(move || assert!(!mail.receive(0, None)))
    };
    let watcher = {
        let mail = Arc::clone(&mail);
        thread::spawn(move || mail.ring.watch(1))
    };
    mail.ring.delete();
    receiver.join().unwrap();
    watcher.join().unwrap();
}

/// A deleted ring whose body one task frees, as `queue/spsc/end.rs` does, under a lock.
struct Claimed {
    ring: Ring,
    /// 0: no task has the side.
    claims: [AtomicU64; 2],
    /// Whether the body has been freed.
    freed: Mutex<bool>,
}

impl Claimed {
    fn claim(&self, side: usize) -> bool {
        self.claims[side]
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn clear_away(&self) {
        let mut freed = self.freed.lock().unwrap();
        if !self.claim(0) {
            return;
        }
        if self.claim(1) {
            assert!(!*freed);
            *freed = true;
            // The library gives up both claims here; its body word is 0 then. The model keeps them, so that no other task
            // frees the body.
            return;
        }
        self.ring.give_up(&self.claims[0]);
    }

    fn give_up(&self, side: usize) {
        if self.ring.give_up(&self.claims[side]) {
            self.clear_away();
        }
    }
}

/// A ring is deleted while one task gives up a side, and another claims the other side and finds the ring deleted, or not.
fn given_up() {
    let claimed = Arc::new(Claimed {
        ring: Ring::default(),
        claims: [0, 1].map(AtomicU64::new),
        freed: Mutex::new(false),
    });
    let last = {
        let claimed = Arc::clone(&claimed);
        thread::spawn(move || claimed.give_up(1))
    };
    let late = {
        let claimed = Arc::clone(&claimed);
        thread::spawn(move || {
            if claimed.claim(0) {
                claimed.give_up(0);
            }
        })
    };
    claimed.ring.delete();
    claimed.clear_away();
    last.join().unwrap();
    late.join().unwrap();
    assert!(*claimed.freed.lock().unwrap(), "no task has freed the body");
}

#[test]
fn a_deleted_ring_is_cleared_away_by_whoever_is_last() {
    Scene::default().explore(Some(3), given_up);
}

#[test]
fn all_who_watch_are_told() {
    Scene::default().explore(Some(3), watched);
}

#[test]
fn a_deletion_ends_all_waits() {
    Scene::default().explore(Some(3), deleted);
}

#[test]
fn messages_arrive_in_order_and_whole() {
    Scene::default().explore(Some(4), stream(1, 2));
    Scene::default().explore(Some(3), stream(1, 3));
    Scene::default().explore(Some(3), stream(2, 3));
}

#[test]
fn spurious_wakeups_do_no_harm() {
    Scene {
        spurious: 1,
        ..Scene::default()
    }
    .explore(Some(3), stream(1, 2));
}

#[test]
fn a_receiver_that_gives_up_can_come_again() {
    Scene::default().explore(Some(3), impatient);
}

#[test]
fn with_nobody_asleep_there_is_no_system_call() {
    Scene::default().explore(None, || {
        let mail = Mail::new(2);
        assert!(!mail.send(0));
        assert!(!mail.send(1));
        assert!(mail.receive(0, None));
    });
}

negative_twin!(
    twin_side_that_is_given_up_without_a_barrier_is_found,
    RingGivesUpUnordered,
    "no task has freed the body",
    Some(3),
    given_up
);

negative_twin!(
    twin_tail_without_release_is_found,
    RingTailRelaxed,
    "Causality violation",
    Some(3),
    stream(1, 2)
);

negative_twin!(
    twin_head_without_release_is_found,
    RingHeadRelaxed,
    "Causality violation",
    Some(3),
    stream(1, 3)
);

negative_twin!(
    twin_sleeper_that_does_not_look_again_is_found,
    RingLooksOnce,
    "deadlock",
    Some(3),
    stream(1, 1)
);

negative_twin!(
    twin_sleeper_without_barrier_is_found,
    RingSleeperUnordered,
    "deadlock",
    Some(3),
    stream(1, 1)
);

negative_twin!(
    twin_waker_without_barrier_is_found,
    RingWakerUnordered,
    "deadlock",
    Some(3),
    stream(1, 1)
);

negative_twin!(
    twin_word_that_is_not_cleared_is_found,
    RingWordStays,
    "deadlock",
    Some(3),
    stream(1, 2)
);

negative_twin!(
    twin_watcher_that_is_forgotten_is_found,
    RingForgetsWatchers,
    "deadlock",
    Some(3),
    watched
);

negative_twin!(
    twin_deletion_that_is_told_before_it_is_true_is_found,
    RingDeletesLate,
    "deadlock",
    Some(3),
    deleted
);
