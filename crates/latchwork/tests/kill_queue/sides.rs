//! One side of a queue is at work while a task of the other side stands still, or is dead and nobody knows it yet.

use super::journal::{compose, read};
use super::{LARGE, MAX_MESSAGE, Operation, check_capacity_of, drain, region};
use latchwork::queue::{Discipline, Queue, QueueOptions, SendError, Wait};
use latchwork::region::{Box, Region};
use latchwork_testkit::{Child, Trial, step};
use std::sync::LazyLock;

fn message(number: u32, length: usize) -> Vec<u8> {
    let mut message = Vec::new();
    compose(&mut message, 1, number, length);
    message
}

fn queue(region: &Region, capacity: u32) -> Queue<'_> {
    let options = QueueOptions::new(capacity, MAX_MESSAGE as u32);
    Queue::create(region, "queue", &options).unwrap()
}

/// The numbers of all messages in the queue, in their order.
fn numbers(queue: Queue<'_>) -> Vec<u32> {
    let mut numbers = Vec::new();
    drain(queue, |message| {
        numbers.push(read(&message).1);
        message.done();
    });
    numbers
}

/// A task that got hold of something, and stands still.
fn holder<T>(trial: &Trial, hold: impl FnOnce() -> T) -> Child {
    let child = Child::fork(|| {
        core::mem::forget(hold());
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| child.is_in_futex());
    child
}

/// Returns when the task is dead, before its parent has waited for it. For a caller in the parent's PID namespace.
fn kill_of_another(task: &Child) {
    task.signal(libc::SIGKILL);
    let path = format!("/proc/{}/stat", task.pid());
    while !std::fs::read_to_string(&path).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
}

/// The death came first, so a call that does not wait gets what the dead task had, even if other tasks detect the death
/// and settle it at the same time.
#[test]
fn a_call_that_does_not_wait_detects_a_death_swept_at_any_instruction() {
    let trial = Trial::begin("a_call_that_does_not_wait_detects_a_death_swept_at_any_instruction");
    let region = region(&trial);
    region.join("test").unwrap();
    let queue = queue(&region, 1);
    // Or as far as the one that stands still lets it.
    let sweep = |tasks: &mut Vec<Child>| {
        let mut sweeper = Child::fork(|| drop(region.sweep().unwrap()));
        trial.wait_until(|| sweeper.try_wait().is_some() || sweeper.is_in_futex());
        tasks.push(sweeper);
    };
    step::each_standstill(
        &trial,
        "try_receive",
        || {
            drain(queue, |message| message.done());
            queue.send(b"one").unwrap();
            vec![holder(&trial, || queue.receive_held().unwrap())]
        },
        |tasks, span| {
            region.join("stepped").unwrap();
            kill_of_another(&tasks[0]);
            span.run(|| queue.try_receive(&mut [0; 16]))
                .expect("the dead task's message");
        },
        sweep,
        |_, _| {},
    );
    step::each_standstill(
        &trial,
        "try_send",
        || {
            drain(queue, |message| message.done());
            vec![holder(&trial, || queue.reserve(Wait::Not).unwrap())]
        },
        |tasks, span| {
            region.join("stepped").unwrap();
            kill_of_another(&tasks[0]);
            span.run(|| queue.try_send(b"one"))
                .expect("the dead task's place");
        },
        sweep,
        |_, _| {},
    );
}

/// Those who stand still in the midst of a send count neither too much nor too little.
#[test]
fn pending_messages_are_counted_truly_at_any_instruction_of_a_sender() {
    let trial = Trial::begin("pending_messages_are_counted_truly_at_any_instruction_of_a_sender")
        .across_namespaces();
    let region = region(&trial);
    let queue = queue(&region, 8);
    step::each_standstill(
        &trial,
        "send, while all is received",
        || drain(queue, |message| message.done()),
        |_, span| {
            region.join("stepped").unwrap();
            span.run(|| queue.send(&message(1, 64)).unwrap());
        },
        |_| {
            let before = queue.len();
            assert!(before <= 1, "{before} messages, of which one is being sent");
            drain(queue, |message| message.done());
            assert_eq!(queue.len(), 0);
        },
        |_, _| {},
    );
}

/// A large broadcast has a place while it is copied. The sender that finds none then has one when nobody waits any more.
#[test]
fn a_broadcast_that_reaches_nobody_gives_its_place_to_a_sender_at_any_instruction() {
    let trial = Trial::begin(
        "a_broadcast_that_reaches_nobody_gives_its_place_to_a_sender_at_any_instruction",
    )
    .across_namespaces();
    let region = region(&trial);
    region.join("test").unwrap();
    let queue = queue(&region, 1);
    step::each_standstill(
        &trial,
        "broadcast",
        || {
            region.sweep().unwrap();
            drain(queue, |message| message.done());
            let waiter = Child::fork(|| {
                let _ = queue.receive(&mut [0; MAX_MESSAGE]);
            });
            trial.wait_until(|| waiter.is_in_futex());
            (waiter, None)
        },
        |_, span| {
            region.join("stepped").unwrap();
            let spoken = message(3, LARGE);
            span.run(|| queue.broadcast(&spoken).unwrap());
        },
        |(waiter, sender)| {
            waiter.kill();
            region.sweep().unwrap();
            let child = sender.insert(Child::fork(|| queue.send(b"one").unwrap()));
            trial.wait_until(|| child.try_wait().is_some() || child.is_in_futex());
        },
        |(mut waiter, sender), _| {
            match sender {
                Some(sender) => {
                    sender.succeed();
                    assert_eq!(queue.len(), 1);
                }
                None => {
                    waiter.wait();
                }
            }
            assert!(queue.is_consistent().unwrap());
        },
    );
}

/// A sender is killed, and receivers take what they find before anybody knows of it; and the other way round.
#[test]
fn the_other_side_works_on_before_a_death_is_known_at_every_instruction() {
    let trial =
        Trial::begin("the_other_side_works_on_before_a_death_is_known_at_every_instruction")
            .across_namespaces();
    let region = region(&trial);
    let queue = queue(&region, 3);
    let ended = |sent: &[u32], name: &str, point| {
        region.sweep().unwrap();
        let rest = numbers(queue);
        let all = [sent, &rest].concat();
        check_capacity_of(queue, 64);
        region.check_heap().unwrap();
        assert!(all.is_sorted(), "{name}, killed at {point:?}: {all:?}");
        all
    };
    // Copied under the lock, or outside it.
    let length = trial.seed().rng(1).choice([64, LARGE]).unwrap();
    step::each_instruction_and_recovery(
        &trial,
        "send, then receive",
        || {
            for number in 0..2 {
                queue.send(&message(number, length)).unwrap();
            }
        },
        |(), span| {
            region.join("stepped").unwrap();
            let sent = message(2, length);
            span.run(|| queue.send(&sent).unwrap());
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
            // Without a sweep: as far as they go.
            let mut seen = Vec::new();
            for _ in 0..2 {
                seen.push(read(&queue.try_receive_held().unwrap()).1);
            }
            let all = ended(&seen, "send", point);
            assert!(all == [0, 1] || all == [0, 1, 2], "{all:?} at {point:?}");
            step::done(all.len() == 3)
        },
    );
    step::each_instruction_and_recovery(
        &trial,
        "receive, then send",
        || {
            for number in 0..3 {
                queue.send(&message(number, length)).unwrap();
            }
        },
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| queue.receive(&mut [0; MAX_MESSAGE]).unwrap());
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
            // A place that is free already, or not before the sweep that this makes.
            let more = queue.try_send(&message(3, length));
            assert!(matches!(more, Ok(()) | Err(SendError::Full)));
            let all = ended(&[], "receive", point);
            let first = u32::from(all[0] != 0);
            let end = 3 + u32::from(more.is_ok());
            assert_eq!(all, Vec::from_iter(first..end), "at {point:?}");
            assert_eq!(first == 1, more.is_ok(), "at {point:?}");
            step::done(first == 1)
        },
    );
}

/// One is killed somewhere, and then one who finds it out, at each instruction of its recovery.
#[test]
fn recovery_from_a_kill_anywhere_can_be_repeated_from_every_instruction() {
    let trial =
        Trial::begin("recovery_from_a_kill_anywhere_can_be_repeated_from_every_instruction");
    let region = region(&trial);
    let disciplines = [Discipline::Racing, Discipline::Fifo, Discipline::Priority];
    let discipline = trial.seed().rng(2).choice(disciplines).unwrap();
    let options = QueueOptions::new(3, MAX_MESSAGE as u32).discipline(discipline);
    let queue = Queue::create(&region, "queue", &options).unwrap();
    // Composed here: in the child its instructions would be places to be killed at, too.
    static URGENT: LazyLock<Vec<u8>> = LazyLock::new(|| message(0, LARGE));
    LazyLock::force(&URGENT);
    let send = |queue: Queue<'_>| queue.urgent().send(&URGENT).unwrap();
    let receive = |queue: Queue<'_>| {
        queue.receive(&mut [0; MAX_MESSAGE]).unwrap();
    };
    let give_back = |queue: Queue<'_>| queue.receive_held().unwrap().give_back();
    let blocks = |queue: Queue<'_>| {
        let block = queue.receive_block(Wait::Forever).unwrap();
        queue.send_block(block, Wait::Forever).unwrap();
    };
    let flush = |queue: Queue<'_>| {
        queue.flush().unwrap();
    };
    let operations: [(&str, Operation, &[&[u32]]); 5] = [
        ("an urgent send", send, &[&[1, 2], &[0, 1, 2]]),
        ("a receive", receive, &[&[1, 2], &[2]]),
        ("a message given back", give_back, &[&[1, 2]]),
        (
            "a block received and sent",
            blocks,
            &[&[1, 2], &[2], &[2, 1]],
        ),
        ("a flush", flush, &[&[1, 2], &[2], &[]]),
    ];
    let fill = || {
        drain(queue, |message| message.done());
        for number in [1, 2] {
            let block = Box::copied_in(&message(number, 1700), &region).unwrap();
            queue.send_block(block, Wait::Not).unwrap();
        }
    };
    let victim = |operation: Operation, span: step::Span| {
        region.join("victim").unwrap();
        span.run(|| operation(queue));
    };
    let mut places = Vec::new();
    for (name, operation, left) in operations {
        fill();
        match step::Places::record(|span| victim(operation, span)) {
            Some(place) => places.push((name, operation, left, place)),
            None => return,
        }
    }
    let mut rng = trial.seed().rng(1);
    step::each_instruction(
        &trial,
        &format!("recovery from a kill, {discipline:?}"),
        || {
            region.sweep().unwrap();
            fill();
            let (name, operation, left, places) = rng.choice(&places).unwrap();
            places.kill(&mut rng, |span| victim(*operation, span));
            (name, left)
        },
        |_, span| {
            span.run(|| {
                region.join("stepped").unwrap();
                assert!(queue.is_consistent().unwrap());
            });
        },
        |_| false,
        |(name, left), point| {
            region.sweep().unwrap();
            assert!(queue.is_consistent().unwrap());
            let numbers = numbers(queue);
            assert!(
                left.contains(&&*numbers),
                "{name}, recovery killed at {point:?}: {numbers:?}"
            );
            check_capacity_of(queue, 64);
            region.check_heap().unwrap();
            format!("after {name}, messages {numbers:?} are left")
        },
    );
}
