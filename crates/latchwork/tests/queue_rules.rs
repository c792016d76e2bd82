//! What a message queue promises, rule by rule: RTEMS's, POSIX's, and its own.
#![cfg(not(loom))]

use core::time::Duration;
use latchwork::queue::{
    ControlError, Discipline, Message, Priority, Queue, QueueError, QueueOptions, Rank,
    ReceiveError, SendError, Wait,
};
use latchwork::region::{Box, Region, RegionOptions};
use latchwork_testkit::{Child, Exit, Trial};
use std::thread;

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .create_anonymous()
        .unwrap()
}

fn queue(region: &Region, capacity: u32) -> Queue<'_> {
    Queue::create(region, "queue", &QueueOptions::new(capacity, 8192)).unwrap()
}

fn ordered(region: &Region, discipline: Discipline) -> Queue<'_> {
    let options = QueueOptions::new(4, 8192).discipline(discipline);
    Queue::create(region, &format!("{discipline:?}"), &options).unwrap()
}

fn receive(queue: Queue<'_>) -> Vec<u8> {
    let mut buffer = [0; 8192];
    let length = queue.try_receive(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

fn drained(queue: Queue<'_>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Ok(message) = queue.try_receive_held() {
        all.push(message.to_vec());
    }
    assert!(queue.is_consistent().unwrap());
    all
}

/// A child that receives once, and ends with the message's first byte, or 200 for an error of
/// deletion, 201 for a time-out. It sleeps already.
fn receiver(trial: &Trial, queue: Queue<'_>) -> Child {
    receiver_until(trial, queue, Wait::Forever)
}

fn receiver_until(trial: &Trial, queue: Queue<'_>, wait: Wait) -> Child {
    let child = Child::fork(|| {
        let mut buffer = [0; 8192];
        let received = match wait {
            Wait::Until(deadline) => queue.receive_until(&mut buffer, deadline),
            _ => queue.receive(&mut buffer),
        };
        std::process::exit(match received {
            Ok(0) => 202,
            Ok(_) => i32::from(buffer[0]),
            Err(ReceiveError::Deleted) => 200,
            Err(ReceiveError::TimedOut) => 201,
            Err(_) => 203,
        })
    });
    trial.wait_until(|| child.is_in_futex());
    child
}

#[test]
fn urgent_messages_come_first_and_last_sent_first() {
    let _trial = Trial::begin("urgent_messages_come_first_and_last_sent_first");
    let region = region();
    let queue = queue(&region, 8);
    queue.send(b"1").unwrap();
    queue.urgent().send(b"a").unwrap();
    queue.send(b"2").unwrap();
    queue.urgent().send(b"b").unwrap();
    queue.with_priority(Priority::MAX).send(b"p").unwrap();
    assert_eq!(drained(queue), [b"b", b"a", b"p", b"1", b"2"]);
}

#[test]
fn priorities_come_highest_first_and_in_order_within_one() {
    let _trial = Trial::begin("priorities_come_highest_first_and_in_order_within_one");
    let region = region();
    let options = QueueOptions::new(64, 8);
    let queue = Queue::create(&region, "queue", &options).unwrap();
    let mut expected = Vec::new();
    // Starts at different places of the ring.
    for round in 0..5_u32 {
        expected.clear();
        for number in 0..61_u32 {
            let priority = Priority::new((number * 7919 % 13 * 2730) as u16).unwrap();
            queue
                .with_priority(priority)
                .send(&number.to_ne_bytes())
                .unwrap();
            expected.push((core::cmp::Reverse(priority), number));
        }
        expected.sort_unstable();
        for (priority, number) in &expected {
            let message = queue.try_receive_held().unwrap();
            assert_eq!(message.rank(), Some(Rank::Priority(priority.0)));
            assert_eq!(&*message, number.to_ne_bytes());
        }
        for _ in 0..=round {
            queue.send(b"x").unwrap();
            receive(queue);
        }
    }
}

#[test]
fn a_message_may_be_empty() {
    let _trial = Trial::begin("a_message_may_be_empty");
    let region = region();
    let queue = queue(&region, 2);
    queue.send(b"").unwrap();
    queue
        .send_block(Box::copied_in(b"", &region).unwrap(), Wait::Not)
        .unwrap();
    assert_eq!(queue.len(), 2);
    assert_eq!(drained(queue), [b"", b""]);
}

#[test]
fn a_full_queue_refuses_who_does_not_wait() {
    let _trial = Trial::begin("a_full_queue_refuses_who_does_not_wait");
    let region = region();
    let queue = queue(&region, 2);
    for length in [1, 6000] {
        let message = &[7; 8192][..length];
        queue.send(message).unwrap();
        queue.send(message).unwrap();
        assert!(matches!(queue.try_send(message), Err(SendError::Full)));
        assert!(matches!(
            queue.urgent().try_send(message),
            Err(SendError::Full)
        ));
        assert!(matches!(queue.reserve(Wait::Not), Err(SendError::Full)));
        assert!(matches!(
            queue.send_batch(&[message], Wait::Not),
            Err(SendError::Full)
        ));
        assert!(matches!(
            queue.send_for(message, Duration::from_millis(1)),
            Err(SendError::TimedOut)
        ));
        let block = Box::copied_in(message, &region).unwrap();
        let refused = queue.send_block(block, Wait::Not).unwrap_err();
        assert!(matches!(refused.error, SendError::Full));
        assert_eq!(&*refused.bytes, message);
        drop(refused);
        assert_eq!(queue.flush().unwrap(), 2);
    }
    region.check_heap().unwrap();
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

#[test]
fn pending_counts_what_is_ready() {
    let _trial = Trial::begin("pending_counts_what_is_ready");
    let region = region();
    let queue = queue(&region, 4);
    assert_eq!(queue.len(), 0);
    queue.send(b"1").unwrap();
    queue.urgent().send(b"2").unwrap();
    assert_eq!(queue.len(), 2);
    let held = queue.receive_held().unwrap();
    assert_eq!(queue.len(), 1);
    held.give_back();
    assert_eq!(queue.len(), 2);
}

#[test]
fn flush_drops_what_is_ready_and_returns_how_many() {
    let _trial = Trial::begin("flush_drops_what_is_ready_and_returns_how_many");
    let region = region();
    let queue = queue(&region, 4);
    assert_eq!(queue.flush().unwrap(), 0);
    queue.send(b"held").unwrap();
    let held = queue.receive_held().unwrap();
    queue.send(b"1").unwrap();
    queue
        .send_block(Box::copied_in(&[3; 100_000], &region).unwrap(), Wait::Not)
        .unwrap();
    queue.urgent().send(b"2").unwrap();
    assert_eq!(queue.flush().unwrap(), 3);
    assert!(queue.is_empty());
    assert_eq!(&*held, b"held");
    held.give_back();
    assert_eq!(drained(queue), [b"held"]);
    region.check_heap().unwrap();
}

#[test]
fn flush_wakes_senders_and_no_receivers() {
    let trial = Trial::begin("flush_wakes_senders_and_no_receivers");
    let region = region();
    let queue = queue(&region, 2);
    let waiting = receiver(&trial, queue);
    assert_eq!(queue.flush().unwrap(), 0);
    assert!(waiting.is_in_futex());
    queue.send(&[9]).unwrap();
    expect(waiting, 9);
    queue.send(b"1").unwrap();
    queue.send(b"2").unwrap();
    let senders = [0, 1].map(|_| Child::fork(|| queue.send(b"3").unwrap()));
    for sender in &senders {
        trial.wait_until(|| sender.is_in_futex());
    }
    assert_eq!(queue.flush().unwrap(), 2);
    senders.into_iter().for_each(Child::succeed);
    assert_eq!(drained(queue), [b"3", b"3"]);
}

fn expect(mut child: Child, code: i32) {
    assert_eq!(child.wait(), Exit::Code(code));
}

#[test]
fn a_broadcast_reaches_all_who_wait_and_nobody_else() {
    let trial = Trial::begin("a_broadcast_reaches_all_who_wait_and_nobody_else");
    let region = region();
    let mut spoken = vec![7; 6000];
    for discipline in [Discipline::Racing, Discipline::Fifo, Discipline::Priority] {
        let queue = ordered(&region, discipline);
        for length in [1, 6000] {
            spoken[0] = length as u8;
            assert_eq!(queue.broadcast(&spoken[..length]).unwrap(), 0);
            assert!(queue.is_empty());
            // More than the queue holds.
            let waiting: Vec<_> = (0..6).map(|_| receiver(&trial, queue)).collect();
            assert_eq!(queue.broadcast(&spoken[..length]).unwrap(), 6);
            assert_eq!(queue.broadcast(&spoken[..length]).unwrap(), 0);
            assert_eq!(queue.len(), 0);
            // It takes no room from others.
            for _ in 0..4 {
                queue.try_send(b"x").unwrap();
            }
            assert_eq!(queue.flush().unwrap(), 4);
            waiting
                .into_iter()
                .for_each(|child| expect(child, i32::from(length as u8)));
            assert!(queue.is_consistent().unwrap());
        }
    }
}

/// A board that all readers left, by whatever way, is free again.
#[test]
fn a_broadcast_to_tasks_that_are_killed_leaves_nothing() {
    let trial = Trial::begin("a_broadcast_to_tasks_that_are_killed_leaves_nothing");
    let region = region();
    let queue = queue(&region, 1);
    for length in [1, 6000] {
        let mut waiting: Vec<_> = (0..3).map(|_| receiver(&trial, queue)).collect();
        waiting.iter().for_each(|child| child.signal(libc::SIGSTOP));
        assert_eq!(queue.broadcast(&[5; 6000][..length]).unwrap(), 3);
        assert_eq!(waiting[0].kill(), Exit::Signal(libc::SIGKILL));
        assert_eq!(waiting[1].kill(), Exit::Signal(libc::SIGKILL));
        region.sweep().unwrap();
        waiting[2].signal(libc::SIGCONT);
        assert_eq!(waiting[2].wait(), Exit::Code(5));
        assert!(queue.is_consistent().unwrap());
        let late = receiver(&trial, queue);
        assert_eq!(queue.broadcast(&[6; 6000][..length]).unwrap(), 1);
        expect(late, 6);
    }
}

#[test]
fn receivers_that_wait_in_order_are_served_in_order() {
    let trial = Trial::begin("receivers_that_wait_in_order_are_served_in_order");
    let region = region();
    let queue = ordered(&region, Discipline::Fifo);
    let waiting: Vec<_> = (0..4).map(|_| receiver(&trial, queue)).collect();
    for number in 1..=4_u8 {
        queue.send(&[number]).unwrap();
        // It belongs to who waits: nothing is pending, and nobody who comes now gets it.
        assert_eq!(queue.len(), 0);
        assert!(matches!(queue.try_receive_held(), Err(ReceiveError::Empty)));
        assert_eq!(queue.flush().unwrap(), 0);
    }
    for (child, number) in waiting.into_iter().zip(1..) {
        expect(child, number);
    }
}

#[test]
fn a_message_for_a_task_that_is_killed_goes_to_the_next_in_order() {
    let trial = Trial::begin("a_message_for_a_task_that_is_killed_goes_to_the_next_in_order");
    let region = region();
    let queue = ordered(&region, Discipline::Fifo);
    let mut first = receiver(&trial, queue);
    let second = receiver(&trial, queue);
    first.signal(libc::SIGSTOP);
    queue.send(&[1]).unwrap();
    queue.send(&[2]).unwrap();
    expect(second, 2);
    let third = receiver(&trial, queue);
    first.kill();
    expect(third, 1);
    assert!(queue.is_empty());
}

#[test]
fn a_wait_that_times_out_leaves_nothing_behind() {
    let trial = Trial::begin("a_wait_that_times_out_leaves_nothing_behind");
    let region = region();
    for discipline in [Discipline::Racing, Discipline::Fifo, Discipline::Priority] {
        let queue = ordered(&region, discipline);
        let hasty = receiver_until(&trial, queue, Wait::at_most(Duration::from_millis(100)));
        let patient = receiver(&trial, queue);
        expect(hasty, 201);
        assert_eq!(queue.broadcast(&[3]).unwrap(), 1);
        expect(patient, 3);
        queue.send(&[4]).unwrap();
        assert_eq!(drained(queue), [[4]]);
        assert!(matches!(
            queue.receive_for(&mut [], Duration::from_millis(1)),
            Err(ReceiveError::TimedOut)
        ));
    }
}

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
        assert!(matches!(other, Err(QueueError::Deleted)));
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

/// A message of the deleted queue has no place in the new one to come again to: be it given back, or its receiver dead.
#[test]
fn a_message_in_flight_does_not_outlive_its_queue_in_a_new_one() {
    let trial = Trial::begin("a_message_in_flight_does_not_outlive_its_queue_in_a_new_one");
    let region = region();
    let turn = Queue::create(&region, "turn", &QueueOptions::new(1, 1)).unwrap();
    for discipline in [Discipline::Racing, Discipline::Fifo] {
        for killed in [false, true] {
            let old = ordered(&region, discipline);
            old.send(b"small").unwrap();
            let block = Box::copied_in(&[7; 5000], &region).unwrap();
            old.send_block(block, Wait::Not).unwrap();
            let blocks = region.heap_stats().shared_blocks;
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
            assert_eq!(region.heap_stats().shared_blocks, blocks - 1);
            for _ in 0..new.capacity() {
                new.try_send(b"new").unwrap();
            }
            assert_eq!(drained(new).len(), new.capacity() as usize);
        }
    }
}

#[test]
fn a_reserved_place_is_sent_when_committed_and_free_when_dropped() {
    let trial = Trial::begin("a_reserved_place_is_sent_when_committed_and_free_when_dropped");
    let region = region();
    let queue = queue(&region, 2);
    let mut first = queue.reserve(Wait::Forever).unwrap();
    let second = queue.urgent().reserve(Wait::Forever).unwrap();
    assert!(matches!(queue.try_send(b"x"), Err(SendError::Full)));
    first[..3].copy_from_slice(b"one");
    assert_eq!(queue.len(), 0);
    first.commit(3).unwrap();
    drop(second);
    assert_eq!(drained(queue), [b"one"]);
    // One that is killed with a place gives it back.
    for _ in 0..3 {
        let mut child = Child::fork(|| {
            let _places = [
                queue.reserve(Wait::Forever).unwrap(),
                queue.reserve(Wait::Forever).unwrap(),
            ];
            loop {
                thread::park();
            }
        });
        trial.wait_until(|| child.is_in_futex());
        child.kill();
        queue.send(b"2").unwrap();
        assert_eq!(drained(queue), [b"2"]);
    }
    let place = queue.reserve(Wait::Forever).unwrap();
    assert!(matches!(place.commit(8193), Err(SendError::TooLong { .. })));
    let place = queue.reserve(Wait::Forever).unwrap();
    let mut child = Child::fork(|| place.commit(1).unwrap());
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
}

#[test]
fn a_batch_goes_and_comes_whole_as_far_as_there_is_room() {
    let _trial = Trial::begin("a_batch_goes_and_comes_whole_as_far_as_there_is_room");
    let region = region();
    let queue = queue(&region, 4);
    for length in [3, 1800] {
        let bytes: Vec<Vec<u8>> = (0..6).map(|number| vec![number; length]).collect();
        let batch: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        assert_eq!(queue.send_batch(&batch, Wait::Forever).unwrap(), 4);
        let received = queue.receive_batch(3, Wait::Forever).unwrap();
        assert_eq!(received.len(), 3);
        assert!(received.iter().eq(batch[..3].iter().copied()));
        received.give_back();
        assert_eq!(queue.len(), 4);
        let received = queue.receive_batch(9, Wait::Forever).unwrap();
        assert!(received.iter().eq(batch[..4].iter().copied()));
        drop(received);
        assert!(matches!(
            queue.receive_batch(2, Wait::Not),
            Err(ReceiveError::Empty)
        ));
        assert!(queue.is_consistent().unwrap());
    }
    assert_eq!(queue.send_batch(&[], Wait::Forever).unwrap(), 0);
}

#[test]
fn blocks_change_hands_untouched_and_none_is_lost() {
    let _trial = Trial::begin("blocks_change_hands_untouched_and_none_is_lost");
    let region = region();
    let queue = queue(&region, 4);
    let blocks = || {
        let stats = region.heap_stats();
        stats.private_blocks + stats.shared_blocks
    };
    let before = blocks();
    for length in [0, 10, 5000, 70_000, 400_000] {
        let mut bytes = Box::zeroed_in(length, &region).unwrap();
        bytes.fill(length as u8);
        let address = bytes.as_ptr().addr();
        queue.send_block(bytes, Wait::Forever).unwrap();
        // By another task, which large ones become private to.
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let bytes = queue.receive_block(Wait::Forever).unwrap();
                assert_eq!(bytes.len(), length);
                assert!(bytes.iter().all(|byte| *byte == length as u8));
                if length > 32 << 10 {
                    assert_eq!(bytes.as_ptr().addr(), address);
                }
            });
            other.join().unwrap();
        });
    }
    // As bytes, and in place.
    queue
        .send_block(Box::copied_in(&[8; 700], &region).unwrap(), Wait::Forever)
        .unwrap();
    assert_eq!(receive(queue), [8; 700]);
    queue.send(b"plain").unwrap();
    assert_eq!(&*queue.receive_block(Wait::Not).unwrap(), b"plain");
    assert_eq!(blocks(), before);
    region.check_heap().unwrap();
}

#[test]
fn a_block_of_another_region_is_refused() {
    let _trial = Trial::begin("a_block_of_another_region_is_refused");
    let (region, other) = (region(), region());
    let queue = queue(&region, 4);
    let bytes = Box::copied_in(b"abroad", &other).unwrap();
    let refused = queue.send_block(bytes, Wait::Not).unwrap_err();
    assert!(matches!(refused.error, SendError::OtherRegion));
    assert_eq!(&*refused.bytes, b"abroad");
}

#[test]
fn a_message_dropped_by_a_panic_is_delivered_again() {
    let _trial = Trial::begin("a_message_dropped_by_a_panic_is_delivered_again");
    let region = region();
    let queue = queue(&region, 4);
    queue.send(b"job").unwrap();
    let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let _message = queue.receive_held().unwrap();
        panic!("in the midst of the work");
    }));
    assert!(panicked.is_err());
    let message = queue.try_receive_held().unwrap();
    assert_eq!(message.deliveries(), 2);
    drop(message);
    assert!(queue.is_empty());
}

/// Whether a descriptor is readable within some time.
fn is_readable(watch: &impl std::os::fd::AsFd, milliseconds: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    let mut polled = [PollFd::new(watch, PollFlags::IN)];
    poll(&mut polled, Some(&timeout)).unwrap() > 0
}

#[test]
fn a_watched_queue_is_readable_while_it_has_messages() {
    let trial = Trial::begin("a_watched_queue_is_readable_while_it_has_messages");
    let region = region();
    let queue = queue(&region, 4);
    let watch = queue.watch().unwrap();
    assert!(!watch.clear());
    for _ in 0..20 {
        // From another process.
        Child::fork(|| {
            queue.send(b"1").unwrap();
            queue.send(b"2").unwrap();
        })
        .succeed();
        trial.wait_until(|| is_readable(&watch, 1000));
        watch.clear();
        // Something is left.
        trial.wait_until(|| is_readable(&watch, 1000));
        assert_eq!(drained(queue), [b"1", b"2"]);
        // It may have been signalled once more meanwhile; then there is nothing.
        trial.wait_until(|| {
            watch.clear();
            !is_readable(&watch, 0)
        });
    }
    queue.delete().unwrap();
    trial.wait_until(|| is_readable(&watch, 1000));
    drop(watch);
}
