//! What a ring for one sender and one receiver promises. (`kill_queue` kills, `loom_ring` interleaves.)
#![cfg(not(loom))]

use core::mem::forget;
use core::time::Duration;
use latchwork::queue::spsc::{ClaimError, Spsc};
use latchwork::queue::{
    ControlError, Queue, QueueError, QueueOptions, ReceiveError, SendError, Wait,
};
use latchwork::region::{DetachError, ObjectError, Region, RegionOptions};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Trial, in_dying_thread};
use std::sync::Barrier;
use std::thread;

/// How many times a race is repeated.
const ROUNDS: u32 = 5_000;

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap()
}

fn ring(region: &Region, capacity: u32) -> Spsc<'_> {
    Spsc::create(region, "ring", &QueueOptions::new(capacity, 100)).unwrap()
}

#[test]
fn an_end_is_for_one_task_at_a_time() {
    let _trial = Trial::begin("an_end_is_for_one_task_at_a_time");
    let region = region();
    let ring = ring(&region, 2);
    let sender = ring.sender().unwrap();
    assert!(matches!(ring.sender(), Err(ClaimError::Taken)));
    in_dying_thread(|| {
        assert!(matches!(ring.sender(), Err(ClaimError::Taken)));
        // The other end is free; forgotten, it is so again when the thread dies.
        forget(ring.receiver().unwrap());
    });
    region.sweep().unwrap();
    drop(ring.receiver().unwrap());
    drop(sender);
    drop(ring.sender().unwrap());
}

#[test]
fn the_end_of_a_task_that_was_killed_can_be_claimed_anew() {
    let trial = Trial::begin("the_end_of_a_task_that_was_killed_can_be_claimed_anew");
    let region = region();
    let ring = ring(&region, 2);
    for number in 0..3 {
        let mut child = Child::fork(|| {
            let mut sender = ring.sender().unwrap();
            let _receiver = ring.receiver().unwrap();
            sender.send(&[number]).unwrap();
            loop {
                thread::park();
            }
        });
        trial.wait_until(|| child.is_in_futex());
        assert!(matches!(ring.receiver(), Err(ClaimError::Taken)));
        child.kill();
        drop(ring.sender().unwrap());
        let mut receiver = ring.receiver().unwrap();
        assert_eq!(*receiver.receive_held(Wait::Forever).unwrap(), [number]);
    }
}

#[test]
fn an_end_inherited_across_fork_is_the_parents() {
    let _trial = Trial::begin("an_end_inherited_across_fork_is_the_parents");
    let region = region();
    let ring = ring(&region, 2);
    let mut sender = ring.sender().unwrap();
    let mut child = Child::fork(|| sender.send(b"1").unwrap());
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    let mut sender = Some(sender);
    Child::fork(|| {
        drop(sender.take());
        assert!(matches!(ring.sender(), Err(ClaimError::Taken)));
    })
    .succeed();
    sender.unwrap().send(b"2").unwrap();
}

/// What was taken before the fork is the parent's, too.
#[test]
fn places_and_messages_inherited_across_fork_are_the_parents() {
    let _trial = Trial::begin("places_and_messages_inherited_across_fork_are_the_parents");
    let region = region();
    let ring = ring(&region, 2);
    let (mut sender, mut receiver) = (ring.sender().unwrap(), ring.receiver().unwrap());
    let aborts = |body: &mut dyn FnMut()| {
        assert_eq!(Child::fork(body).wait(), Exit::Signal(libc::SIGABRT));
    };
    let mut place = Some(sender.reserve(Wait::Not).unwrap());
    aborts(&mut || place.take().unwrap().commit(1).unwrap());
    assert!(ring.is_empty());
    place.unwrap().commit(1).unwrap();
    let mut held = Some(receiver.receive_held(Wait::Not).unwrap());
    aborts(&mut || drop(held.take()));
    held.unwrap().give_back();
    let mut batch = Some(receiver.receive_batch(2, Wait::Not).unwrap());
    aborts(&mut || drop(batch.take()));
    batch.unwrap().receive_first(0);
    aborts(&mut || assert_eq!(receiver.flush(), 1));
    assert_eq!(ring.len(), 1);
}

#[test]
fn a_task_with_an_end_cannot_leave() {
    let _trial = Trial::begin("a_task_with_an_end_cannot_leave");
    let region = region();
    let ring = ring(&region, 2);
    let sender = ring.sender().unwrap();
    assert!(matches!(
        region.clone().detach(),
        Err(DetachError::Holding { messages: 1, .. })
    ));
    drop(sender);
    region.clone().detach().unwrap();
}

#[test]
fn a_full_ring_and_an_empty_one_refuse_or_time_out() {
    let _trial = Trial::begin("a_full_ring_and_an_empty_one_refuse_or_time_out");
    let region = region();
    let ring = ring(&region, 3);
    let soon = || Deadline::after(Duration::from_millis(1));
    let mut buffer = [0; 100];
    let (mut sender, mut receiver) = (ring.sender().unwrap(), ring.receiver().unwrap());
    // All over the ring, whose places are four.
    for _ in 0..5 {
        for _ in 0..3 {
            sender.try_send(&[1; 100]).unwrap();
        }
        assert_eq!(ring.len(), 3);
        assert!(matches!(sender.try_send(b""), Err(SendError::Full)));
        assert!(matches!(
            sender.send_until(b"", soon()),
            Err(SendError::TimedOut)
        ));
        assert!(matches!(
            sender.send(&[0; 101]),
            Err(SendError::TooLong { .. })
        ));
        assert!(matches!(
            receiver.receive(&mut [0; 99]),
            Err(ReceiveError::BufferTooSmall {
                bytes: 100,
                buffer: 99
            })
        ));
        for _ in 0..3 {
            assert_eq!(receiver.receive(&mut buffer).unwrap(), 100);
        }
        assert!(matches!(
            receiver.try_receive(&mut buffer),
            Err(ReceiveError::Empty)
        ));
        assert!(matches!(
            receiver.receive_until(&mut buffer, soon()),
            Err(ReceiveError::TimedOut)
        ));
        sender.send(b"").unwrap();
        assert_eq!(receiver.receive(&mut buffer).unwrap(), 0);
    }
}

#[test]
fn places_and_batches_of_a_ring_go_whole() {
    let _trial = Trial::begin("places_and_batches_of_a_ring_go_whole");
    let region = region();
    let ring = ring(&region, 4);
    let (mut sender, mut receiver) = (ring.sender().unwrap(), ring.receiver().unwrap());
    let mut place = sender.reserve(Wait::Not).unwrap();
    place[..2].copy_from_slice(b"in");
    place.commit(2).unwrap();
    drop(sender.reserve(Wait::Not).unwrap());
    let batch: [&[u8]; 5] = [b"1", b"22", b"", b"4", b"5"];
    assert_eq!(sender.send_batch(&batch, Wait::Not).unwrap(), 3);
    receiver.receive_held(Wait::Not).unwrap().give_back();
    assert_eq!(*receiver.receive_held(Wait::Not).unwrap(), *b"in");
    let received = receiver.receive_batch(9, Wait::Not).unwrap();
    assert!(received.iter().eq(batch[..3].iter().copied()));
    received.receive_first(1);
    assert_eq!(receiver.receive_batch(1, Wait::Not).unwrap().len(), 1);
    assert_eq!(ring.len(), 1);
    let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let _held = receiver.receive_held(Wait::Not).unwrap();
        panic!("in the midst of the work");
    }));
    assert!(panicked.is_err());
    assert_eq!(ring.len(), 1);
}

/// Both sleep again and again, for the ring is small.
#[test]
fn a_stream_between_processes_arrives_in_order() {
    let trial = Trial::begin("a_stream_between_processes_arrives_in_order");
    let region = region();
    for capacity in [1, 2, 7] {
        let name = format!("ring of {capacity}");
        let ring = Spsc::create(&region, &name, &QueueOptions::new(capacity, 8)).unwrap();
        let sender = Child::fork(|| {
            let mut sender = ring.sender().unwrap();
            for number in 0..20_000_u32 {
                sender.send(&number.to_ne_bytes()).unwrap();
                if number % 1000 == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        let mut receiver = ring.receiver().unwrap();
        for number in 0..20_000_u32 {
            let held = receiver.receive_held(Wait::Forever).unwrap();
            assert_eq!(*held, number.to_ne_bytes());
            if number % 1500 == 0 {
                trial.progress();
                thread::sleep(Duration::from_micros(200));
            }
        }
        sender.succeed();
        assert!(ring.is_empty());
    }
}

#[test]
fn a_ring_is_no_queue_and_has_its_own_capacity() {
    let _trial = Trial::begin("a_ring_is_no_queue_and_has_its_own_capacity");
    let region = region();
    ring(&region, 2);
    assert!(Queue::open(&region, "ring").is_err());
    assert!(matches!(
        Spsc::create(&region, "ring", &QueueOptions::new(3, 100)),
        Err(QueueError::OtherOptions {
            capacity: 2,
            max_message: 100
        })
    ));
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
fn a_watched_ring_is_readable_while_it_has_messages() {
    let trial = Trial::begin("a_watched_ring_is_readable_while_it_has_messages");
    let region = region();
    let ring = ring(&region, 4);
    let watches = [ring.watch().unwrap(), ring.watch().unwrap()];
    assert!(!watches[0].clear());
    let mut receiver = ring.receiver().unwrap();
    for _ in 0..20 {
        // From another process.
        Child::fork(|| {
            let mut sender = ring.sender().unwrap();
            sender.send(b"1").unwrap();
            sender.send(b"2").unwrap();
        })
        .succeed();
        for watch in &watches {
            trial.wait_until(|| is_readable(watch, 1000));
            watch.clear();
            // Something is left.
            trial.wait_until(|| is_readable(watch, 1000));
        }
        assert_eq!(receiver.flush(), 2);
        for watch in &watches {
            // It may have been signalled once more meanwhile; then there is nothing.
            trial.wait_until(|| {
                watch.clear();
                !is_readable(watch, 0)
            });
        }
    }
    ring.delete().unwrap();
    for watch in &watches {
        trial.wait_until(|| is_readable(watch, 1000));
    }
}

#[test]
fn a_flush_drops_what_is_there_and_makes_room() {
    let trial = Trial::begin("a_flush_drops_what_is_there_and_makes_room");
    let region = region();
    let ring = ring(&region, 2);
    let mut sender = ring.sender().unwrap();
    sender.send(b"1").unwrap();
    sender.send(b"2").unwrap();
    assert_eq!(ring.len(), 2);
    assert_eq!(ring.flush().unwrap(), 2);
    assert_eq!(ring.flush().unwrap(), 0);
    assert!(ring.is_empty());
    sender.send(b"3").unwrap();
    sender.send(b"4").unwrap();
    drop(sender);
    let waiting = Child::fork(|| ring.sender().unwrap().send(b"5").unwrap());
    trial.wait_until(|| waiting.is_in_futex());
    let mut receiver = ring.receiver().unwrap();
    assert!(matches!(ring.flush(), Err(ClaimError::Taken)));
    assert_eq!(receiver.flush(), 2);
    waiting.succeed();
    assert_eq!(*receiver.receive_held(Wait::Not).unwrap(), *b"5");
}

#[test]
fn a_deletion_ends_all_waits_at_a_ring() {
    let trial = Trial::begin("a_deletion_ends_all_waits_at_a_ring");
    let region = region();
    for round in 0..10 {
        let ring = ring(&region, 1);
        let waiting = if round % 2 == 0 {
            Child::fork(|| {
                let mut receiver = ring.receiver().unwrap();
                let received = receiver.receive(&mut []);
                assert!(matches!(received, Err(ReceiveError::Deleted)));
            })
        } else {
            Child::fork(|| {
                let mut sender = ring.sender().unwrap();
                sender.send(b"1").unwrap();
                assert!(matches!(sender.send(b"2"), Err(SendError::Deleted)));
            })
        };
        trial.wait_until(|| waiting.is_in_futex());
        ring.delete().unwrap();
        waiting.succeed();
        assert!(matches!(ring.delete(), Err(ControlError::Deleted)));
    }
}

/// Whichever of the two is later finds no other task at the ring, and frees its messages' memory.
#[test]
fn a_deletion_and_an_end_that_is_dropped_leave_no_memory() {
    let trial = Trial::begin("a_deletion_and_an_end_that_is_dropped_leave_no_memory");
    let region = region();
    let blocks = || region.heap_stats().shared_blocks;
    ring(&region, 1).delete().unwrap();
    let meeting = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            region.join("dropper").unwrap();
            for _ in 0..ROUNDS {
                meeting.wait();
                let end = Spsc::open(&region, "ring").unwrap().sender().unwrap();
                meeting.wait();
                drop(end);
                meeting.wait();
            }
        });
        let before = blocks();
        for round in 0..ROUNDS {
            let ring = ring(&region, 1);
            meeting.wait();
            meeting.wait();
            ring.delete().unwrap();
            meeting.wait();
            assert_eq!(blocks(), before, "round {round}");
            trial.progress();
        }
    });
}

#[test]
fn a_ring_of_the_same_name_has_nothing_of_a_deleted_one() {
    let _trial = Trial::begin("a_ring_of_the_same_name_has_nothing_of_a_deleted_one");
    let region = region();
    let old = ring(&region, 2);
    let (mut sender, mut receiver) = (old.sender().unwrap(), old.receiver().unwrap());
    sender.send(b"held").unwrap();
    sender.send(b"dropped").unwrap();
    let held = receiver.receive_held(Wait::Not).unwrap();
    let place = sender.reserve(Wait::Not);
    assert!(matches!(place, Err(SendError::Full)));
    old.delete().unwrap();
    assert_eq!(*held, *b"held");
    drop(held);
    assert!(matches!(sender.try_send(b"x"), Err(SendError::Deleted)));
    let options = QueueOptions::new(2, 100);
    let open = Spsc::open(&region, "ring");
    let none = QueueError::Object(ObjectError::NotFound).to_string();
    assert_eq!(open.err().unwrap().to_string(), none);
    let new = Spsc::create(&region, "ring", &options).unwrap();
    drop((sender, receiver));
    assert!(new.is_empty());
    assert!(matches!(old.sender(), Err(ClaimError::Deleted)));
    new.sender().unwrap().send(b"new").unwrap();
    assert_eq!(
        *new.receiver().unwrap().receive_held(Wait::Not).unwrap(),
        *b"new"
    );
    assert_eq!(
        old.flush().err().map(|error| error.to_string()),
        Some("the ring was deleted".into())
    );
}
