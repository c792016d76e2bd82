//! Operations of a queue that are killed at each instruction.

use super::journal::{compose, read};
use super::{LARGE, MAX_MESSAGE, check_capacity, drain, region};
use core::time::Duration;
use latchwork::queue::{Discipline, Queue, QueueOptions, ReceiveError, SendError};
use latchwork_testkit::step;
use latchwork_testkit::{Child, Trial, die};

/// What the queue is filled with.
pub(super) fn filling(number: u32) -> Vec<u8> {
    let mut message = Vec::new();
    compose(
        &mut message,
        0,
        number,
        16 + number as usize * 4500 % MAX_MESSAGE,
    );
    message
}

/// Kills an operation at its instructions; after each kill the queue must be whole, and hold one of
/// the numbers of messages.
pub(super) fn step_through(
    trial: &Trial,
    name: &str,
    capacity: u32,
    filled: u32,
    operation: impl Fn(Queue<'_>),
    unblock: impl Fn(Queue<'_>) -> bool,
    left: &[u32],
) {
    let region = region(trial);
    let mut rng = trial
        .seed()
        .rng(u64::from(capacity) << 8 | u64::from(filled));
    let disciplines = [Discipline::Racing, Discipline::Fifo, Discipline::Priority];
    let discipline = rng.choice(disciplines).unwrap();
    let options = QueueOptions::new(capacity, MAX_MESSAGE as u32).discipline(discipline);
    let queue = Queue::create(&region, "queue", &options).unwrap();
    let name = &format!("{name}, {discipline:?}");
    step::each_instruction_and_recovery(
        trial,
        name,
        || {
            for number in 0..filled {
                queue.send(&filling(number)).unwrap();
            }
        },
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| operation(queue));
        },
        |()| unblock(queue),
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                assert!(queue.is_consistent().unwrap());
            });
        },
        |(), point| {
            // A dead task's messages come again in their places once its death is known.
            region.sweep().unwrap();
            let mut ids = Vec::new();
            let count = drain(queue, |message| {
                ids.push(read(&message));
                message.done();
            });
            assert!(
                left.contains(&count),
                "{name}, killed at {point:?}: {count} messages are left"
            );
            assert!(
                ids.is_sorted(),
                "{name}, killed at {point:?}: out of order: {ids:?}"
            );
            check_capacity(queue);
            region.check_heap().unwrap();
            messages_left(count)
        },
    );
}

/// The outcome of a round.
pub(super) fn messages_left(count: u32) -> String {
    format!("{count} messages left")
}

#[test]
fn send_is_all_or_nothing_at_every_instruction() {
    let trial = Trial::begin("send_is_all_or_nothing_at_every_instruction").across_namespaces();
    // Composed here: in the child its instructions would be stepped through, too.
    let send = |length: usize| {
        let mut message = Vec::new();
        compose(&mut message, 1, 7, length);
        move |queue: Queue<'_>| queue.send(&message).unwrap()
    };
    let never = |_: Queue<'_>| false;
    step_through(&trial, "send, small", 3, 1, send(64), never, &[1, 2]);
    step_through(&trial, "send, large", 3, 1, send(LARGE), never, &[1, 2]);
    let make_room = |queue: Queue<'_>| {
        queue
            .try_receive_held()
            .map(|message| message.done())
            .is_ok()
    };
    step_through(
        &trial,
        "send to a full queue",
        2,
        2,
        send(LARGE),
        make_room,
        &[1, 2],
    );
}

#[test]
fn receive_is_all_or_nothing_at_every_instruction() {
    let trial = Trial::begin("receive_is_all_or_nothing_at_every_instruction").across_namespaces();
    let never = |_: Queue<'_>| false;
    let receive = |queue: Queue<'_>| {
        queue.receive(&mut [0; MAX_MESSAGE]).unwrap();
    };
    step_through(&trial, "receive, small", 3, 1, receive, never, &[0, 1]);
    step_through(
        &trial,
        "receive_held and done",
        3,
        2,
        |queue| queue.receive_held().unwrap().done(),
        never,
        &[1, 2],
    );
    step_through(
        &trial,
        "receive_held and give back",
        3,
        2,
        |queue| queue.receive_held().unwrap().give_back(),
        never,
        &[2],
    );
    let fill = |queue: Queue<'_>| {
        let mut message = Vec::new();
        compose(&mut message, 1, 7, LARGE);
        queue.try_send(&message).is_ok()
    };
    step_through(
        &trial,
        "receive, large, from an empty queue",
        3,
        0,
        receive,
        fill,
        &[0, 1],
    );
}

#[test]
fn a_wait_that_ends_in_vain_leaves_the_queue_as_it_was_at_every_instruction() {
    let trial =
        Trial::begin("a_wait_that_ends_in_vain_leaves_the_queue_as_it_was_at_every_instruction")
            .across_namespaces();
    let limit = Duration::from_millis(1);
    // The limit ends each of its sleeps.
    let ends = |_: Queue<'_>| {
        std::thread::sleep(limit);
        true
    };
    let receive = |queue: Queue<'_>| {
        let received = queue.receive_for(&mut [0; MAX_MESSAGE], limit);
        assert!(matches!(received, Err(ReceiveError::TimedOut)));
    };
    step_through(&trial, "receive in vain", 3, 0, receive, ends, &[0]);
    for length in [64, LARGE] {
        let mut message = Vec::new();
        compose(&mut message, 1, 7, length);
        let send = |queue: Queue<'_>| {
            let sent = queue.send_for(&message, limit);
            assert!(matches!(sent, Err(SendError::TimedOut)));
        };
        let name = format!("send in vain, {length} B");
        step_through(&trial, &name, 2, 2, send, ends, &[2]);
    }
}

/// A dead sender and a dead receiver are found by a task that is killed while it recovers them.
#[test]
fn recovery_of_a_queue_can_be_repeated_from_every_instruction() {
    let trial = Trial::begin("recovery_of_a_queue_can_be_repeated_from_every_instruction");
    let region = region(&trial);
    let queue = Queue::create(&region, "queue", &QueueOptions::new(4, MAX_MESSAGE as u32)).unwrap();
    let mut message = Vec::new();
    step::each_instruction_and_recovery(
        &trial,
        "sweep and recovery of a queue",
        || {
            for number in 0..3 {
                compose(&mut message, 0, number, 100);
                queue.send(&message).unwrap();
            }
            Child::fork(|| {
                core::mem::forget(queue.receive_held().unwrap());
                core::mem::forget(queue.receive_held().unwrap());
                // Not in good order: the region learns of it by the kernel alone.
                die();
            })
            .wait();
        },
        |(), span| {
            span.run(|| {
                region.sweep().unwrap();
                assert!(queue.is_consistent().unwrap());
            });
        },
        |()| false,
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                assert!(queue.is_consistent().unwrap());
            });
        },
        |(), point| {
            region.sweep().unwrap();
            let mut ids = Vec::new();
            drain(queue, |message| {
                ids.push(read(&message).1);
                message.done();
            });
            assert_eq!(ids, [0, 1, 2], "killed at {point:?}");
            check_capacity(queue);
            messages_left(3)
        },
    );
}
