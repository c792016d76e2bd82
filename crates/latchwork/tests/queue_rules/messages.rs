//! Messages: their order, what is refused, in place, in batches, as blocks.

use super::{drained, queue, receive, region};
use core::time::Duration;
use latchwork::queue::{Priority, Queue, QueueOptions, Rank, ReceiveError, SendError, Wait};
use latchwork::region::Box;
use latchwork_testkit::{Child, Exit, Trial};
use std::thread;

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
fn a_full_queue_refuses_a_send_that_does_not_wait() {
    let _trial = Trial::begin("a_full_queue_refuses_a_send_that_does_not_wait");
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
