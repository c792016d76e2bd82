//! Deletion, and queues that are made anew.

use super::{drained, expect, ordered, queue, receiver, region};
use latchwork::queue::{
    ControlError, Discipline, Message, Queue, QueueError, QueueOptions, ReceiveError, SendError,
    Wait,
};
use latchwork::region::{Box, ObjectError};
use latchwork_testkit::{Child, Exit, Trial};
use std::thread;

#[test]
fn deletion_ends_all_waits_and_all_later_use() {
    let trial = Trial::begin("deletion_ends_all_waits_and_all_later_use");
    let region = region();
    for discipline in [Discipline::Racing, Discipline::Fifo] {
        let queue = ordered(&region, discipline);
        let waiting: Vec<_> = (0..3).map(|_| receiver(&trial, queue)).collect();
        queue.delete().unwrap();
        waiting.into_iter().for_each(|child| expect(child, 200));
        let other = Queue::open(&region, &format!("{discipline:?}"));
        let none = ObjectError::NotFound;
        assert_eq!(other.err().unwrap().to_string(), none.to_string());
        assert!(matches!(queue.delete(), Err(ControlError::Deleted)));
        assert!(matches!(queue.flush(), Err(ControlError::Deleted)));
        assert!(matches!(queue.receive_held(), Err(ReceiveError::Deleted)));
    }
}

#[test]
fn deletion_ends_the_waits_of_senders() {
    let trial = Trial::begin("deletion_ends_the_waits_of_senders");
    let region = region();
    let queue = queue(&region, 1);
    queue.send(b"1").unwrap();
    let senders = [1, 6000].map(|length| {
        let child = Child::fork(|| {
            let sent = queue.send(&[0; 6000][..length]);
            assert!(matches!(sent, Err(SendError::Deleted)));
        });
        trial.wait_until(|| child.is_in_futex());
        child
    });
    queue.delete().unwrap();
    senders.into_iter().for_each(Child::succeed);
    assert!(queue.is_consistent().unwrap());
}

#[test]
fn a_deleted_queue_can_be_made_anew_and_old_handles_stay_dead() {
    let _trial = Trial::begin("a_deleted_queue_can_be_made_anew_and_old_handles_stay_dead");
    let region = region();
    let old = queue(&region, 2);
    old.send(b"old").unwrap();
    old.send(b"held").unwrap();
    let held = old.receive_held().unwrap();
    old.delete().unwrap();
    assert_eq!(&*held, b"old");
    let new = queue(&region, 2);
    assert!(matches!(old.try_send(b"x"), Err(SendError::Deleted)));
    new.send(b"new").unwrap();
    drop(held);
    assert_eq!(drained(new), [b"new"]);
    let other = QueueOptions::new(3, 8192);
    assert!(matches!(
        Queue::create(&region, "queue", &other),
        Err(QueueError::OtherOptions { capacity: 2, .. })
    ));
}

/// Who waits and has not noticed yet that the queue was deleted.
#[test]
fn waiters_of_a_deleted_queue_get_nothing_of_the_new_one() {
    let trial = Trial::begin("waiters_of_a_deleted_queue_get_nothing_of_the_new_one");
    let region = region();
    for discipline in [Discipline::Racing, Discipline::Fifo, Discipline::Priority] {
        for is_broadcast in [false, true] {
            let old = ordered(&region, discipline);
            let waiting = receiver(&trial, old);
            trial.stop_asleep(&waiting);
            old.delete().unwrap();
            let new = ordered(&region, discipline);
            let left: &[&[u8]] = if is_broadcast {
                assert_eq!(new.broadcast(&[1]).unwrap(), 0, "{discipline:?}");
                &[]
            } else {
                new.send(&[1]).unwrap();
                &[&[1]]
            };
            waiting.signal(libc::SIGCONT);
            expect(waiting, 200);
            assert_eq!(drained(new), left, "{discipline:?}");
            let late = receiver(&trial, new);
            assert_eq!(new.broadcast(&[2]).unwrap(), 1);
            expect(late, 2);
        }
    }
}

/// A message in flight that is given back after the deletion, too.
#[test]
fn waiters_of_a_deleted_queue_get_its_error_even_if_messages_come_back() {
    let trial = Trial::begin("waiters_of_a_deleted_queue_get_its_error_even_if_messages_come_back");
    let region = region();
    let queue = ordered(&region, Discipline::Fifo);
    queue.send(&[1]).unwrap();
    let held = queue.receive_held().unwrap();
    let waiting = receiver(&trial, queue);
    trial.stop_asleep(&waiting);
    queue.delete().unwrap();
    held.give_back();
    waiting.signal(libc::SIGCONT);
    expect(waiting, 200);
    assert!(drained(ordered(&region, Discipline::Fifo)).is_empty());
}

/// A message of the deleted queue has no place in the new one to come again to: be it given back, or its receiver dead.
#[test]
fn a_message_in_flight_does_not_outlive_its_queue_in_a_new_one() {
    let trial = Trial::begin("a_message_in_flight_does_not_outlive_its_queue_in_a_new_one");
    let region = region();
    let turn = Queue::create(&region, "turn", &QueueOptions::new(1, 1)).unwrap();
    let mut blocks = None;
    for discipline in [Discipline::Racing, Discipline::Fifo] {
        for killed in [false, true] {
            let old = ordered(&region, discipline);
            old.send(b"small").unwrap();
            let block = Box::copied_in(&[7; 5000], &region).unwrap();
            old.send_block(block, Wait::Not).unwrap();
            let mut child = Child::fork(|| {
                let held = [(); 2].map(|()| old.receive_held().unwrap());
                if killed {
                    thread::park();
                }
                // Until the queue has been made anew.
                turn.receive(&mut [0]).unwrap();
                assert_eq!((&*held[0], held[1].len()), (&b"small"[..], 5000));
                held.into_iter().for_each(Message::give_back);
            });
            trial.wait_until(|| old.is_empty() && child.is_in_futex());
            old.delete().unwrap();
            let new = ordered(&region, discipline);
            if killed {
                assert_eq!(child.kill(), Exit::Signal(libc::SIGKILL));
                region.sweep().unwrap();
            } else {
                turn.send(b"!").unwrap();
                child.succeed();
            }
            assert!(drained(new).is_empty(), "{discipline:?}, {killed}");
            for _ in 0..new.capacity() {
                new.try_send(b"new").unwrap();
            }
            assert_eq!(drained(new).len(), new.capacity() as usize);
            new.delete().unwrap();
            // What a killed one had goes when another queue is made.
            ordered(&region, discipline).delete().unwrap();
            let now = region.heap_stats().shared_blocks;
            assert_eq!(*blocks.get_or_insert(now), now, "{discipline:?}, {killed}");
        }
    }
}

/// What a waiter was given is in flight until it has looked at it.
#[test]
fn a_message_that_is_refused_after_the_deletion_ends_the_queue() {
    let trial = Trial::begin("a_message_that_is_refused_after_the_deletion_ends_the_queue");
    let region = region();
    ordered(&region, Discipline::Fifo).delete().unwrap();
    let before = region.heap_stats().shared_blocks;
    for is_broadcast in [false, true] {
        let queue = ordered(&region, Discipline::Fifo);
        let waiting = Child::fork(|| {
            let received = queue.receive(&mut [0]);
            assert!(
                matches!(received, Err(ReceiveError::BufferTooSmall { bytes: 3, .. })),
                "{received:?}"
            );
        });
        trial.stop_asleep(&waiting);
        if is_broadcast {
            assert_eq!(queue.broadcast(b"two").unwrap(), 1);
        } else {
            queue.send(b"two").unwrap();
        }
        queue.delete().unwrap();
        waiting.signal(libc::SIGCONT);
        waiting.succeed();
        assert_eq!(region.heap_stats().shared_blocks, before, "{is_broadcast}");
    }
}

#[test]
fn errors_come_in_order_deleted_before_too_long_before_full() {
    let _trial = Trial::begin("errors_come_in_order_deleted_before_too_long_before_full");
    let region = region();
    let queue = queue(&region, 1);
    queue.send(b"").unwrap();
    let long = [0; 8193];
    assert!(matches!(
        queue.try_send(&long),
        Err(SendError::TooLong {
            bytes: 8193,
            max_message: 8192
        })
    ));
    assert!(matches!(queue.try_send(b"1"), Err(SendError::Full)));
    queue.delete().unwrap();
    assert!(matches!(queue.try_send(&long), Err(SendError::Deleted)));
    assert!(matches!(queue.broadcast(&long), Err(SendError::Deleted)));
    assert!(matches!(
        queue.try_receive(&mut []),
        Err(ReceiveError::Deleted)
    ));
}
