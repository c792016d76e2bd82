//! Models of the condition variable: `src/condvar.rs` under the model checker.
//!
//! Property: no notification is lost (a lost one ends as loom's deadlock). Every model has a
//! negative twin.
//!
//! Left out: the wrap of the ticket, robust mutexes, more than two waiters.
#![cfg(loom)]

use latchwork::condvar::{Condvar, Waited};
use latchwork::model::{SOON, Scene, WakeOrder};
use latchwork::mutex::{Mutex, WaitWake};
use latchwork::negative_twin;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

struct Shared {
    tokens: Mutex<u32, WaitWake>,
    changed: Condvar,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tokens: Mutex::from_raw(WaitWake::new(), 0),
            changed: Condvar::new_in(),
        })
    }

    fn take(&self) {
        let mut tokens = self
            .changed
            .wait_while(self.tokens.lock(), |tokens| *tokens == 0);
        *tokens -= 1;
    }

    fn taker(shared: &Arc<Self>) -> JoinHandle<()> {
        let shared = Arc::clone(shared);
        thread::spawn(move || shared.take())
    }
}

fn one_waiter_is_notified() {
    let shared = Shared::new();
    let waiter = Shared::taker(&shared);
    *shared.tokens.lock() += 1;
    shared.changed.notify_one();
    waiter.join().unwrap();
}

fn one_waiter_is_notified_under_the_lock() {
    let shared = Shared::new();
    let waiter = Shared::taker(&shared);
    let mut tokens = shared.tokens.lock();
    *tokens += 1;
    shared.changed.notify_one();
    drop(tokens);
    waiter.join().unwrap();
}

/// Each of two notifications must reach a waiter of its own.
fn two_waiters_are_notified_one_by_one() {
    let shared = Shared::new();
    let waiters = [Shared::taker(&shared), Shared::taker(&shared)];
    for _ in 0..2 {
        *shared.tokens.lock() += 1;
        shared.changed.notify_one();
    }
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
}

fn two_waiters_are_notified_at_once() {
    let shared = Shared::new();
    let waiters = [Shared::taker(&shared), Shared::taker(&shared)];
    *shared.tokens.lock() += 2;
    shared.changed.notify_all();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
}

/// A waiter that gives up may have had the notification of another: it passes it on.
fn one_of_two_waiters_gives_up() {
    let shared = Shared::new();
    let patient = Shared::taker(&shared);
    let hasty = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let guard = shared.tokens.lock();
            if *guard == 0 && shared.changed.wait_until(guard, SOON).1 == Waited::Woken {
                shared.changed.notify_one();
            }
        })
    };
    *shared.tokens.lock() += 1;
    shared.changed.notify_one();
    patient.join().unwrap();
    hasty.join().unwrap();
}

#[test]
fn no_notification_is_lost_with_one_waiter() {
    for spurious in [0, 1, 2] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(Some(4), one_waiter_is_notified);
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(Some(4), one_waiter_is_notified_under_the_lock);
    }
}

#[test]
fn two_notifications_reach_two_waiters() {
    for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
        Scene {
            wake_order,
            ..Scene::default()
        }
        .explore(Some(3), two_waiters_are_notified_one_by_one);
    }
}

#[test]
fn two_notifications_reach_two_waiters_despite_spurious_wakeups() {
    Scene {
        spurious: 1,
        ..Scene::default()
    }
    .explore(Some(3), two_waiters_are_notified_one_by_one);
}

#[test]
fn a_broadcast_reaches_two_waiters() {
    for spurious in [0, 1] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(Some(3), two_waiters_are_notified_at_once);
    }
}

#[test]
fn a_waiter_that_gives_up_takes_no_notification_with_it() {
    Scene::default().explore(Some(3), one_of_two_waiters_gives_up);
}

negative_twin!(
    twin_ticket_that_does_not_move_is_found,
    CondvarTicketStays,
    "deadlock",
    None,
    one_waiter_is_notified
);

negative_twin!(
    twin_ticket_that_does_not_move_is_found_with_two_waiters,
    CondvarTicketStays,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once
);

negative_twin!(
    twin_ticket_that_is_read_after_the_unlock_is_found,
    CondvarTicketReadLate,
    "deadlock",
    None,
    one_waiter_is_notified
);

negative_twin!(
    twin_notification_that_skips_a_single_waiter_is_found,
    CondvarSkipsSingleWaiter,
    "deadlock",
    None,
    one_waiter_is_notified_under_the_lock
);
