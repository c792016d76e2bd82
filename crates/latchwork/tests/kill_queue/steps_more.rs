//! Places, batches, blocks and broadcasts, killed at each instruction.

use super::journal::compose;
use super::steps::{filling, messages_left, step_through};
use super::{LARGE, MAX_MESSAGE, Operation, drain, region};
use latchwork::queue::{Discipline, Queue, QueueOptions, Wait};
use latchwork::region::{Box, Region, TaskId};
use latchwork::semaphore::Priority;
use latchwork::semaphore::TaskPriority as _;
use latchwork_testkit::{Child, Page, Trial, is_in_region_sleep, step};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

fn never(_: Queue<'_>) -> bool {
    false
}

fn message(number: u32, length: usize) -> Vec<u8> {
    let mut message = Vec::new();
    compose(&mut message, 1, number, length);
    message
}

#[test]
fn a_place_is_sent_or_free_at_every_instruction() {
    let trial = Trial::begin("a_place_is_sent_or_free_at_every_instruction").across_namespaces();
    let message = message(7, 900);
    let reserve = |queue: Queue<'_>| {
        let mut place = queue.reserve(Wait::Forever).unwrap();
        place[..message.len()].copy_from_slice(&message);
        place.commit(message.len()).unwrap();
    };
    step_through(&trial, "reserve and commit", 3, 1, reserve, never, &[1, 2]);
    let drop_it = |queue: Queue<'_>| drop(queue.reserve(Wait::Forever).unwrap());
    step_through(&trial, "reserve and drop", 3, 1, drop_it, never, &[1]);
}

#[test]
fn batches_are_whole_messages_at_every_instruction() {
    let trial = Trial::begin("batches_are_whole_messages_at_every_instruction").across_namespaces();
    for length in [64, 2800] {
        let messages = [7, 8, 9].map(|number| message(number, length));
        let batch = messages.each_ref().map(Vec::as_slice);
        let send = |queue: Queue<'_>| {
            queue.send_batch(&batch, Wait::Forever).unwrap();
        };
        step_through(&trial, "send a batch", 4, 1, send, never, &[1, 2, 3, 4]);
    }
    let due = [0, 1].map(filling);
    let receive = |queue: Queue<'_>| {
        let messages = queue.receive_batch(2, Wait::Forever).unwrap();
        assert!(messages.iter().eq(due.iter().map(Vec::as_slice)));
    };
    step_through(&trial, "receive a batch", 4, 3, receive, never, &[1, 2, 3]);
}

#[test]
fn flush_and_deletion_leave_whole_messages_at_every_instruction() {
    let trial = Trial::begin("flush_and_deletion_leave_whole_messages_at_every_instruction")
        .across_namespaces();
    let flush = |queue: Queue<'_>| {
        queue.flush().unwrap();
    };
    step_through(&trial, "flush", 4, 3, flush, never, &[0, 1, 2, 3]);
    let region = region(&trial);
    let options = QueueOptions::new(4, MAX_MESSAGE as u32);
    step::each_instruction_and_recovery(
        &trial,
        "delete",
        || {
            let queue = Queue::create(&region, "queue", &options).unwrap();
            queue.send(&message(1, LARGE)).unwrap();
            let block = Box::copied_in(&[2; 40_000], &region).unwrap();
            queue.send_block(block, Wait::Not).unwrap();
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
                Queue::create(&region, "queue", &options).unwrap();
            });
        },
        |_, _| {
            region.sweep().unwrap();
            let queue = Queue::create(&region, "queue", &options).unwrap();
            let mut left = 0;
            while queue.try_receive_held().is_ok() {
                left += 1;
            }
            super::check_capacity(queue);
            region.check_heap().unwrap();
            messages_left(left)
        },
    );
}

/// Blocks in the region, of whomever.
pub(super) fn blocks(region: &Region) -> usize {
    let stats = region.heap_stats();
    stats.private_blocks + stats.shared_blocks
}

static FILLING: [u8; 40_000] = [3; 40_000];

/// What is left is a whole block that the queue has, or nothing.
fn step_through_blocks(
    trial: &Trial,
    name: &str,
    length: usize,
    filled: bool,
    operation: impl Fn(Queue<'_>, &Region),
) {
    let region = region(trial);
    let options = QueueOptions::new(3, 16);
    let queue = Queue::create(&region, "queue", &options).unwrap();
    let before = blocks(&region);
    step::each_instruction_and_recovery(
        trial,
        name,
        || {
            if filled {
                let block = Box::copied_in(&FILLING[..length], &region).unwrap();
                queue.send_block(block, Wait::Not).unwrap();
            }
        },
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| operation(queue, &region));
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
            // Whoever found the death goes on in all places, the dead task's among them.
            assert!(queue.is_consistent().unwrap());
            let mut left = queue.capacity();
            for _ in 0..queue.capacity() {
                let next = Box::copied_in(&FILLING[..length], &region).unwrap();
                if queue.send_block(next, Wait::Not).is_err() {
                    break;
                }
                left -= 1;
            }
            region.sweep().unwrap();
            while let Ok(held) = queue.try_receive_held() {
                assert!(*held == FILLING[..length]);
            }
            assert!(queue.is_consistent().unwrap());
            assert_eq!(blocks(&region), before, "{name}, killed at {point:?}");
            region.check_heap().unwrap();
            messages_left(left)
        },
    );
}

#[test]
fn blocks_are_never_lost_or_doubled_at_any_instruction() {
    let trial =
        Trial::begin("blocks_are_never_lost_or_doubled_at_any_instruction").across_namespaces();
    for length in [200, 40_000] {
        step_through_blocks(&trial, "send a block", length, false, |queue, region| {
            let block = Box::copied_in(&FILLING[..length], region).unwrap();
            queue.send_block(block, Wait::Not).unwrap();
        });
        step_through_blocks(&trial, "receive a block", length, true, |queue, _| {
            drop(queue.receive_block(Wait::Not).unwrap());
        });
        step_through_blocks(
            &trial,
            "receive a block in place",
            length,
            true,
            |queue, _| {
                drop(queue.try_receive_held().unwrap());
            },
        );
        step_through_blocks(&trial, "flush a block", length, true, |queue, _| {
            queue.flush().unwrap();
        });
    }
}

/// All who wait get a broadcast whose sender is killed, or none; and its board is free again.
#[test]
fn a_broadcast_reaches_all_or_none_at_every_instruction() {
    let trial =
        Trial::begin("a_broadcast_reaches_all_or_none_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let queue = Queue::create(&region, "queue", &QueueOptions::new(2, MAX_MESSAGE as u32)).unwrap();
    for length in [16, LARGE] {
        step::each_instruction_and_recovery(
            &trial,
            "broadcast",
            || {
                [0, 1].map(|_| {
                    let child = Child::fork(|| {
                        let received = queue.receive_held().unwrap();
                        std::process::exit(i32::from(received.len() == length));
                    });
                    trial.wait_until(|| child.is_in_futex());
                    child
                })
            },
            |_, span| {
                region.join("stepped").unwrap();
                let spoken = message(3, length);
                span.run(|| queue.broadcast(&spoken).unwrap());
            },
            |_| false,
            |_, span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    assert!(queue.is_consistent().unwrap());
                });
            },
            |waiting, point| {
                region.sweep().unwrap();
                // Those who were not reached.
                let late = queue.broadcast(b"late").unwrap();
                assert!(late == 0 || late == 2, "killed at {point:?}: {late}");
                let code = i32::from(late == 0);
                for mut child in waiting {
                    assert_eq!(
                        child.wait(),
                        latchwork_testkit::Exit::Code(code),
                        "{point:?}"
                    );
                }
                super::check_capacity(queue);
                reached(late)
            },
        );
    }
}

/// The outcome of a round: a later broadcast has reached so many of those that waited.
pub(super) fn reached(late: u32) -> &'static str {
    match late {
        0 => "reached all",
        _ => "reached nobody",
    }
}

/// A sender that stands still in the midst of a hand-over, while the receiver that it is for dies, and another task gets
/// that one's slot and waits at another queue.
#[test]
fn nobody_is_given_what_was_for_its_predecessor_at_any_instruction() {
    let trial = Trial::begin("nobody_is_given_what_was_for_its_predecessor_at_any_instruction")
        .across_namespaces();
    let region = region(&trial);
    region.join("test").unwrap();
    let make = |name, discipline| {
        let options = QueueOptions::new(4, 64).discipline(discipline);
        Queue::create(&region, name, &options).unwrap()
    };
    let in_order = make("in order", Discipline::Fifo);
    let racing = make("racing", Discipline::Racing);
    let second = make("second", Discipline::Fifo);
    let receiver = |queue: Queue<'_>, due: &'static [u8]| {
        Child::fork(|| {
            let mut buffer = [0; 64];
            let length = queue.receive(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], due);
        })
    };
    let send = |queue: Queue<'_>| queue.send(b"to the first").unwrap();
    let broadcast = |queue: Queue<'_>| {
        queue.broadcast(b"to the first").unwrap();
    };
    let operations: [(&str, Operation, Queue<'_>); 3] = [
        ("send", send, in_order),
        ("broadcast", broadcast, in_order),
        ("broadcast under two locks", broadcast, racing),
    ];
    for (name, operation, first) in operations {
        step::each_standstill(
            &trial,
            &format!("{name} to a receiver that dies"),
            || {
                region.sweep().unwrap();
                let waiter = receiver(first, b"to the first");
                trial.wait_until(|| waiter.is_in_futex());
                (waiter, None)
            },
            |_, span| {
                region.join("stepped").unwrap();
                span.run(|| operation(first));
            },
            |(waiter, successor)| {
                // Unless it has its message by now.
                waiter.kill();
                let child = successor.insert(receiver(second, b"first come"));
                // There, or in the way of the one that stands still.
                trial.wait_until(|| child.is_in_futex());
            },
            |(mut waiter, successor), point| {
                if let Some(successor) = successor {
                    trial.wait_until(|| successor.is_in_region_sleep());
                    let later = receiver(second, b"second come");
                    trial.wait_until(|| later.is_in_region_sleep());
                    second.send(b"first come").unwrap();
                    second.send(b"second come").unwrap();
                    successor.succeed();
                    later.succeed();
                } else {
                    assert_eq!(point, step::Point::Finished);
                    waiter.wait();
                }
                assert!(second.is_empty() && second.is_consistent().unwrap());
                drain(first, |message| message.done());
                assert!(first.is_consistent().unwrap());
            },
        );
    }
}

/// A change that comes while a receiver begins to wait is not lost on its place.
#[test]
fn a_receiver_is_served_by_a_priority_that_was_changed_at_any_instruction() {
    let trial =
        Trial::begin("a_receiver_is_served_by_a_priority_that_was_changed_at_any_instruction");
    let region = region(&trial);
    region.join("test").unwrap();
    let options = QueueOptions::new(4, 64).discipline(Discipline::Priority);
    let queue = Queue::create(&region, "by priority", &options).unwrap();
    let task_at = |own| {
        let me = region.task_id().unwrap();
        me.set_priority(&region, Priority::new(own).unwrap())
            .unwrap();
        me
    };
    let first_byte = || {
        let mut buffer = [0; 64];
        queue.receive(&mut buffer).unwrap();
        u64::from(buffer[0])
    };
    // The receiver: its process, its task, and what it received.
    let page = Page::<[AtomicU64; 3]>::new();
    let [process, task, received] = &*page;
    // Whether its priority was changed; and whether it was when the messages were sent.
    let (changed, in_time) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        step::each_standstill(
            &trial,
            "begin to wait for a message",
            || {
                region.sweep().unwrap();
                process.store(0, SeqCst);
                changed.store(false, SeqCst);
                let rival = Child::fork(|| {
                    task_at(100);
                    first_byte();
                });
                trial.wait_until(|| rival.is_in_futex());
                // Once both wait.
                let sender = scope.spawn(|| {
                    while !is_in_region_sleep(process.load(SeqCst).try_into().unwrap()) {
                        std::thread::yield_now();
                    }
                    in_time.store(changed.load(SeqCst), SeqCst);
                    queue.send(&[1]).unwrap();
                    queue.send(&[2]).unwrap();
                });
                (rival, sender)
            },
            |_, span| {
                task.store(task_at(200).to_raw(), SeqCst);
                let me = std::process::id().into();
                span.run(|| {
                    process.store(me, SeqCst);
                    received.store(first_byte(), SeqCst);
                });
            },
            |_| {
                let task = TaskId::from_raw(task.load(SeqCst)).unwrap();
                task.set_priority(&region, Priority::new(50).unwrap())
                    .unwrap();
                changed.store(true, SeqCst);
            },
            |(rival, sender), point| {
                sender.join().unwrap();
                rival.succeed();
                let due = 2 - u64::from(in_time.load(SeqCst));
                assert_eq!(received.load(SeqCst), due, "stopped at {point:?}");
            },
        );
    });
}
