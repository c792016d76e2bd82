//! What is on its way to receivers that wait and do not run: those who give it, those who are given it, and those who
//! settle their deaths are killed at each instruction.

use super::journal::{compose, read};
use super::steps::messages_left;
use super::steps_more::{blocks, reached};
use super::{LARGE, MAX_MESSAGE, check_capacity_of, drain, region};
use latchwork::queue::{Discipline, Queue, QueueOptions};
use latchwork::region::Region;
use latchwork_testkit::{Child, Exit, Trial, step};
use std::cell::Cell;

fn message(number: u32, length: usize) -> Vec<u8> {
    let mut message = Vec::new();
    compose(&mut message, 1, number, length);
    message
}

/// For one message.
fn queue(region: &Region, discipline: Discipline) -> Queue<'_> {
    let options = QueueOptions::new(1, MAX_MESSAGE as u32).discipline(discipline);
    Queue::create(region, "queue", &options).unwrap()
}

/// A receiver that waits and does not run.
fn stopped(trial: &Trial, queue: Queue<'_>) -> Child {
    let child = Child::fork(|| {
        queue.receive(&mut [0; MAX_MESSAGE]).unwrap();
    });
    trial.stop_asleep(&child);
    child
}

fn kill_all(region: &Region, children: &mut [Child]) {
    for child in children {
        assert_eq!(child.kill(), Exit::Signal(libc::SIGKILL));
    }
    region.sweep().unwrap();
}

fn numbers(queue: Queue<'_>) -> Vec<u32> {
    let mut numbers = Vec::new();
    drain(queue, |message| {
        numbers.push(read(&message).1);
        message.done();
    });
    numbers
}

/// The queue is whole, takes what it was made for, and leaves no memory behind when it is deleted.
fn check(region: &Region, queue: Queue<'_>, before: usize) {
    assert!(queue.is_consistent().unwrap());
    check_capacity_of(queue, 64);
    assert_eq!(queue.in_flight().unwrap(), 0);
    queue.delete().unwrap();
    assert_eq!(blocks(region), before);
    region.check_heap().unwrap();
}

/// The receiver needs cells that another task's wait has used up.
#[test]
fn a_receiver_that_begins_to_wait_is_killed_at_every_instruction() {
    let trial = Trial::begin("a_receiver_that_begins_to_wait_is_killed_at_every_instruction")
        .across_namespaces();
    for discipline in [Discipline::Fifo, Discipline::Priority, Discipline::Racing] {
        let region = region(&trial);
        region.join("test").unwrap();
        queue(&region, discipline).delete().unwrap();
        let before = blocks(&region);
        let sent = Cell::new(0);
        step::each_instruction_and_recovery(
            &trial,
            &format!("begin to wait, {discipline:?}"),
            || {
                let queue = queue(&region, discipline);
                let first = stopped(&trial, queue);
                // Racing: a board is unread. In order: who has been given nothing is to have a cell, too.
                let boards = u32::from(discipline == Discipline::Racing);
                (0..boards).for_each(|_| assert_eq!(queue.broadcast(&message(0, 64)).unwrap(), 1));
                sent.set(0);
                (queue, [first])
            },
            |(queue, _), span| {
                region.join("stepped").unwrap();
                let mut buffer = [0; MAX_MESSAGE];
                span.run(|| queue.receive(&mut buffer).unwrap());
                read(&buffer[..64]);
            },
            |(queue, _)| {
                let number = sent.get();
                queue.try_send(&message(number, 64)).unwrap();
                sent.set(number + 1);
                true
            },
            |(queue, _), span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    assert!(queue.is_consistent().unwrap());
                });
            },
            |(queue, mut waiting), point| {
                kill_all(&region, &mut waiting);
                let left = numbers(queue);
                let all = Vec::from_iter(0..sent.get());
                let fewer = &all[..all.len().saturating_sub(1)];
                assert!(left == all || left == fewer, "{left:?} at {point:?}");
                check(&region, queue, before);
                let (sent, left) = (all.len(), left.len());
                format!("{sent} messages sent, {left} left")
            },
        );
    }
}

/// Two get their messages, and one is pending.
#[test]
fn a_sender_to_waiters_that_do_not_run_is_killed_at_every_instruction() {
    let trial = Trial::begin("a_sender_to_waiters_that_do_not_run_is_killed_at_every_instruction")
        .across_namespaces();
    let region = region(&trial);
    region.join("test").unwrap();
    for length in [64, LARGE] {
        queue(&region, Discipline::Fifo).delete().unwrap();
        let before = blocks(&region);
        let messages = [0, 1, 2].map(|number| message(number, length));
        step::each_instruction_and_recovery(
            &trial,
            "send three to two who wait",
            || {
                let queue = queue(&region, Discipline::Fifo);
                (queue, [0, 1].map(|_| stopped(&trial, queue)))
            },
            |(queue, _), span| {
                region.join("stepped").unwrap();
                span.run(|| {
                    messages
                        .iter()
                        .for_each(|message| queue.try_send(message).unwrap());
                });
            },
            |_| false,
            |(queue, _), span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    assert!(queue.is_consistent().unwrap());
                });
            },
            |(queue, mut waiting), point| {
                region.sweep().unwrap();
                assert!(queue.is_consistent().unwrap());
                // One of them goes on to its end, if it was given something.
                let (first, second) = waiting.split_at_mut(1);
                let pending = queue.len();
                let before_end = queue.in_flight().unwrap() + pending;
                kill_all(&region, second);
                let received = u32::from(before_end > 0);
                if received > 0 {
                    first[0].signal(libc::SIGCONT);
                    assert_eq!(first[0].wait(), Exit::Code(0));
                } else {
                    kill_all(&region, first);
                }
                let left = numbers(queue);
                let all = Vec::from_iter(received..before_end);
                assert_eq!(left, all, "{before_end} sent, killed at {point:?}");
                check(&region, queue, before);
                format!("{before_end} messages sent")
            },
        );
    }
}

#[test]
fn a_receiver_that_copies_what_it_was_given_is_killed_at_every_instruction() {
    let trial =
        Trial::begin("a_receiver_that_copies_what_it_was_given_is_killed_at_every_instruction")
            .across_namespaces();
    let region = region(&trial);
    region.join("test").unwrap();
    queue(&region, Discipline::Fifo).delete().unwrap();
    let before = blocks(&region);
    // The one waits all the while, so that the other needs a chunk for what it copies.
    step::each_instruction_and_recovery(
        &trial,
        "receive, large, in order",
        || {
            let queue = queue(&region, Discipline::Fifo);
            let waiting = [0, 1].map(|_| stopped(&trial, queue));
            for number in 0..3 {
                queue.try_send(&message(number, LARGE)).unwrap();
            }
            (queue, waiting)
        },
        |(queue, _), span| {
            region.join("stepped").unwrap();
            span.run(|| queue.try_receive(&mut [0; MAX_MESSAGE]).unwrap());
        },
        |_| false,
        |(queue, _), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                assert!(queue.is_consistent().unwrap());
            });
        },
        |(queue, mut waiting), point| {
            kill_all(&region, &mut waiting);
            let left = numbers(queue);
            assert!(left == [0, 1, 2] || left == [0, 1], "{left:?} at {point:?}");
            check(&region, queue, before);
            messages_left(left.len() as u32)
        },
    );
}

/// A message that is being copied is not pending, and takes no place.
#[test]
fn a_receiver_that_stands_still_as_it_copies_takes_no_place_at_any_instruction() {
    let trial =
        Trial::begin("a_receiver_that_stands_still_as_it_copies_takes_no_place_at_any_instruction")
            .across_namespaces();
    let region = region(&trial);
    region.join("test").unwrap();
    let queue = queue(&region, Discipline::Fifo);
    step::each_standstill(
        &trial,
        "receive, large, in order",
        || {
            drain(queue, |message| message.done());
            queue.try_send(&message(0, LARGE)).unwrap();
            None
        },
        |_, span| {
            region.join("stepped").unwrap();
            let mut buffer = [0; MAX_MESSAGE];
            let length = span.run(|| queue.try_receive(&mut buffer).unwrap());
            assert_eq!(read(&buffer[..length]).1, 0);
        },
        |sender| {
            let child = sender.insert(Child::fork(|| {
                if queue.is_empty() {
                    queue.try_send(&message(1, LARGE)).unwrap();
                    assert_eq!(queue.len(), 1);
                }
            }));
            // Or as far as the one that stands still lets it.
            trial.wait_until(|| child.try_wait().is_some() || child.is_in_futex());
        },
        |sender, _| {
            sender.into_iter().for_each(Child::succeed);
            drain(queue, |message| message.done());
            assert!(queue.is_consistent().unwrap());
            assert_eq!(queue.in_flight().unwrap(), 0);
        },
    );
}

/// With boards that others have still to read.
#[test]
fn a_broadcast_beside_unread_boards_reaches_all_or_none_at_every_instruction() {
    let trial =
        Trial::begin("a_broadcast_beside_unread_boards_reaches_all_or_none_at_every_instruction")
            .across_namespaces();
    for discipline in [Discipline::Fifo, Discipline::Priority, Discipline::Racing] {
        let region = region(&trial);
        region.join("test").unwrap();
        queue(&region, discipline).delete().unwrap();
        let before = blocks(&region);
        step::each_instruction_and_recovery(
            &trial,
            &format!("broadcast, {discipline:?}"),
            || {
                let queue = queue(&region, discipline);
                let mut waiting = Vec::new();
                for reached in [1, 2] {
                    waiting.extend((0..reached).map(|_| stopped(&trial, queue)));
                    assert_eq!(queue.broadcast(&message(reached, LARGE)).unwrap(), reached);
                }
                waiting.extend((0..2).map(|_| stopped(&trial, queue)));
                (queue, waiting)
            },
            |(queue, _), span| {
                region.join("stepped").unwrap();
                let spoken = message(3, LARGE);
                span.run(|| queue.broadcast(&spoken).unwrap());
            },
            |_| false,
            |(queue, _), span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    assert!(queue.is_consistent().unwrap());
                });
            },
            |(queue, mut waiting), point| {
                region.sweep().unwrap();
                assert!(queue.is_consistent().unwrap());
                let late = queue.broadcast(b"late").unwrap();
                assert!(late == 0 || late == 2, "killed at {point:?}: {late}");
                // Some read, some die.
                let (reading, dying) = waiting.split_at_mut(2);
                for child in reading {
                    child.signal(libc::SIGCONT);
                    assert_eq!(child.wait(), Exit::Code(0));
                }
                kill_all(&region, dying);
                check(&region, queue, before);
                reached(late)
            },
        );
    }
}

/// A receiver is killed somewhere as it makes room for what it may be given, and then one who settles that.
#[test]
fn recovery_of_a_receiver_that_made_room_can_be_repeated_from_every_instruction() {
    let trial = Trial::begin(
        "recovery_of_a_receiver_that_made_room_can_be_repeated_from_every_instruction",
    );
    let region = region(&trial);
    region.join("test").unwrap();
    queue(&region, Discipline::Fifo).delete().unwrap();
    let before = blocks(&region);
    let victim = |queue: Queue<'_>, span: step::Span| {
        region.join("victim").unwrap();
        span.run(|| queue.try_receive(&mut [0; MAX_MESSAGE]).unwrap());
    };
    let fill = || {
        let queue = queue(&region, Discipline::Fifo);
        let waiting = [0, 1].map(|_| stopped(&trial, queue));
        for number in 0..3 {
            queue.try_send(&message(number, LARGE)).unwrap();
        }
        (queue, waiting)
    };
    let (queue, mut waiting) = fill();
    let Some(places) = step::Places::record(|span| victim(queue, span)) else {
        return;
    };
    kill_all(&region, &mut waiting);
    drain(queue, |message| message.done());
    check(&region, queue, before);
    let mut rng = trial.seed().rng(1);
    step::each_instruction(
        &trial,
        "recovery from a kill of a receiver",
        || {
            let (queue, waiting) = fill();
            places.kill(&mut rng, |span| victim(queue, span));
            (queue, waiting)
        },
        |(queue, _), span| {
            span.run(|| {
                region.join("stepped").unwrap();
                assert!(queue.is_consistent().unwrap());
            });
        },
        |_| false,
        |(queue, mut waiting), point| {
            kill_all(&region, &mut waiting);
            let left = numbers(queue);
            assert!(left == [0, 1, 2] || left == [0, 1], "{left:?} at {point:?}");
            check(&region, queue, before);
            messages_left(left.len() as u32)
        },
    );
}

/// The chunks of a queue go with it, whoever is killed in its deletion.
#[test]
fn a_deletion_gives_chunks_back_at_every_instruction() {
    let trial =
        Trial::begin("a_deletion_gives_chunks_back_at_every_instruction").across_namespaces();
    let region = region(&trial);
    region.join("test").unwrap();
    queue(&region, Discipline::Fifo).delete().unwrap();
    let before = blocks(&region);
    step::each_instruction_and_recovery(
        &trial,
        "delete",
        || {
            let queue = queue(&region, Discipline::Fifo);
            let mut waiting = [0, 1, 2, 3].map(|_| stopped(&trial, queue));
            kill_all(&region, &mut waiting);
            assert!(blocks(&region) > before);
            queue
        },
        |queue, span| {
            region.join("stepped").unwrap();
            span.run(|| queue.delete().unwrap());
        },
        |_| false,
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
            });
        },
        |_, _| {
            region.sweep().unwrap();
            let is_deleted = Queue::open(&region, "queue").is_err();
            check(&region, queue(&region, Discipline::Fifo), before);
            step::done(is_deleted)
        },
    );
}
