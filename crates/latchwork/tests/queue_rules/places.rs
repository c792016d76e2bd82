//! What takes a place of the queue: pending messages, and nothing that is on its way to a task that waits.

use super::{expect, ordered, receiver, region};
use latchwork::queue::{Discipline, Queue, QueueOptions, ReceiveError, SendError, Wait};
use latchwork::region::{Box, Region, RegionOptions};
use latchwork_testkit::{Child, Exit, Trial};

const IN_ORDER: [Discipline; 2] = [Discipline::Fifo, Discipline::Priority];
const ALL: [Discipline; 3] = [Discipline::Racing, Discipline::Fifo, Discipline::Priority];

fn queue_of_one(region: &Region, discipline: Discipline, max_message: u32) -> Queue<'_> {
    let options = QueueOptions::new(1, max_message).discipline(discipline);
    Queue::create(region, &format!("{discipline:?} {max_message}"), &options).unwrap()
}

/// A receiver that waits, and does not run until it is continued.
fn stopped(trial: &Trial, queue: Queue<'_>) -> Child {
    let child = receiver(trial, queue);
    trial.stop_asleep(&child);
    child
}

fn continue_all(children: &[Child]) {
    children
        .iter()
        .for_each(|child| child.signal(libc::SIGCONT));
}

/// One more message is pending, and a second one is not.
fn check_room_for_one(queue: Queue<'_>, message: &[u8]) {
    queue.try_send(message).unwrap();
    assert_eq!(queue.len(), 1);
    assert!(matches!(queue.try_send(message), Err(SendError::Full)));
}

#[test]
fn messages_for_waiters_that_do_not_run_take_no_place() {
    let trial = Trial::begin("messages_for_waiters_that_do_not_run_take_no_place");
    let region = region();
    let mut message = vec![0; 6000];
    for discipline in IN_ORDER {
        // Copied under the lock, or outside of it.
        for length in [1, 6000] {
            let queue = queue_of_one(&region, discipline, 8192);
            let waiting: Vec<_> = (0..3).map(|_| stopped(&trial, queue)).collect();
            for number in 1..=3 {
                message[0] = number;
                queue.try_send(&message[..length]).unwrap();
                assert_eq!(queue.len(), 0);
            }
            message[0] = 4;
            check_room_for_one(queue, &message[..length]);
            assert!(queue.is_consistent().unwrap());
            continue_all(&waiting);
            for (child, number) in waiting.into_iter().zip(1..) {
                expect(child, number);
            }
            assert!(matches!(queue.try_send(b"x"), Err(SendError::Full)));
            assert_eq!(*queue.try_receive_held().unwrap(), message[..length]);
            check_room_for_one(queue, b"x");
            assert_eq!(queue.flush().unwrap(), 1);
            assert!(queue.is_consistent().unwrap());
        }
    }
}

#[test]
fn boards_that_nobody_has_read_take_no_place() {
    let trial = Trial::begin("boards_that_nobody_has_read_take_no_place");
    let region = region();
    let mut spoken = vec![0; 6000];
    for discipline in ALL {
        for length in [1, 6000] {
            let queue = queue_of_one(&region, discipline, 8192);
            let mut waiting = Vec::new();
            for number in 1..=9 {
                // As if the first had the processor to themselves.
                for _ in 0..=number % 2 {
                    waiting.push((stopped(&trial, queue), i32::from(number)));
                }
                spoken[0] = number;
                let reached = queue.broadcast(&spoken[..length]).unwrap();
                assert_eq!(reached, 1 + u32::from(number % 2));
            }
            check_room_for_one(queue, b"x");
            assert!(queue.is_consistent().unwrap());
            for (child, number) in waiting {
                child.signal(libc::SIGCONT);
                expect(child, number);
            }
            assert_eq!(queue.flush().unwrap(), 1);
            check_room_for_one(queue, b"x");
            assert_eq!(queue.flush().unwrap(), 1);
            assert!(queue.is_consistent().unwrap());
        }
    }
}

#[test]
fn broadcasts_in_a_loop_always_have_room() {
    let trial = Trial::begin("broadcasts_in_a_loop_always_have_room");
    let region = region();
    for discipline in ALL {
        let queue = queue_of_one(&region, discipline, 8);
        // Two have something to read all the while.
        let mut reading = Vec::new();
        for number in [1, 2] {
            reading.push(stopped(&trial, queue));
            assert_eq!(queue.broadcast(&[number; 8]).unwrap(), 1);
        }
        let listeners: Vec<_> = (0..3)
            .map(|_| {
                Child::fork(|| {
                    loop {
                        match queue.receive(&mut [0; 8]) {
                            Ok(_) => {}
                            Err(ReceiveError::Deleted) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let (mut sent, mut reached) = (0_u64, 0);
        // Some of them reach somebody.
        while sent < 20_000 || reached < 100 {
            reached += queue
                .broadcast(&sent.to_ne_bytes())
                .unwrap_or_else(|error| panic!("{discipline:?}, broadcast {sent}: {error}"));
            sent += 1;
        }
        continue_all(&reading);
        for (child, number) in reading.into_iter().zip(1..) {
            expect(child, number);
        }
        queue.try_send(b"x").unwrap();
        queue.delete().unwrap();
        listeners.into_iter().for_each(Child::succeed);
    }
}

/// What waiters had been given is pending again when they die: more than the queue was made for, and each message in
/// its place.
#[test]
fn messages_of_dead_waiters_are_pending_beyond_the_capacity() {
    let trial = Trial::begin("messages_of_dead_waiters_are_pending_beyond_the_capacity");
    let region = region();
    for discipline in IN_ORDER {
        let queue = queue_of_one(&region, discipline, 16);
        let mut waiting: Vec<_> = (0..3).map(|_| stopped(&trial, queue)).collect();
        for number in 1..=4 {
            queue.try_send(&[number]).unwrap();
        }
        for child in &mut waiting {
            assert_eq!(child.kill(), Exit::Signal(libc::SIGKILL));
        }
        region.sweep().unwrap();
        assert!(queue.is_consistent().unwrap());
        assert_eq!(queue.len(), 4);
        for number in 1..=4 {
            assert!(matches!(queue.try_send(b"x"), Err(SendError::Full)));
            assert_eq!(*queue.try_receive_held().unwrap(), [number]);
        }
        check_room_for_one(queue, b"x");
        assert!(queue.is_consistent().unwrap());
    }
}

/// A message goes to a task that waits though others have all places in hand; and the sender that waits for a place
/// learns of that task.
#[test]
fn a_task_that_waits_is_a_place_for_one_message() {
    let trial = Trial::begin("a_task_that_waits_is_a_place_for_one_message");
    let region = region();
    for discipline in IN_ORDER {
        let queue = ordered(&region, discipline);
        for _ in 0..queue.capacity() {
            queue.try_send(b"x").unwrap();
        }
        let held = queue.receive_batch(4, Wait::Not).unwrap();
        assert_eq!(held.len(), 4);
        assert!(matches!(queue.try_send(b"x"), Err(SendError::Full)));
        let sender = Child::fork(|| queue.send(&[7]).unwrap());
        trial.wait_until(|| sender.is_in_futex());
        expect(receiver(&trial, queue), 7);
        sender.succeed();
        assert!(matches!(queue.try_send(b"x"), Err(SendError::Full)));
        drop(held);
        assert!(queue.is_consistent().unwrap());
        for _ in 0..queue.capacity() {
            queue.try_send(b"x").unwrap();
        }
        assert_eq!(queue.flush().unwrap(), queue.capacity());
    }
}

/// Who begins to wait while others do may need memory, and learns that there is none; who sends needs none.
#[test]
fn a_receiver_learns_that_there_is_no_memory_for_its_message() {
    let trial = Trial::begin("a_receiver_learns_that_there_is_no_memory_for_its_message");
    for discipline in ALL {
        let options = RegionOptions::new().max_bytes(1 << 20);
        let region = options.create_anonymous().unwrap();
        let queue = queue_of_one(&region, discipline, 4096);
        let mut waiting = vec![stopped(&trial, queue)];
        if discipline == Discipline::Racing {
            // Its board has still to be read.
            assert_eq!(queue.broadcast(&[1]).unwrap(), 1);
        }
        let mut filling = Vec::new();
        for bytes in [1 << 16, 1 << 12] {
            while let Ok(block) = Box::unfilled_in(bytes, &region) {
                filling.push(block);
            }
        }
        assert!(matches!(
            queue.receive(&mut [0; 4096]),
            Err(ReceiveError::Storage(_))
        ));
        assert!(queue.is_consistent().unwrap());
        if discipline != Discipline::Racing {
            queue.try_send(&[1]).unwrap();
        }
        check_room_for_one(queue, b"x");
        assert_eq!(queue.flush().unwrap(), 1);
        filling.clear();
        waiting.push(stopped(&trial, queue));
        assert_eq!(queue.broadcast(&[2]).unwrap(), 1);
        continue_all(&waiting);
        for (child, number) in waiting.into_iter().zip(1..) {
            expect(child, number);
        }
        assert!(queue.is_consistent().unwrap());
    }
}

#[test]
fn a_queue_is_drained_when_nothing_is_in_flight() {
    let trial = Trial::begin("a_queue_is_drained_when_nothing_is_in_flight");
    let region = region();
    for discipline in ALL {
        let queue = ordered(&region, discipline);
        let counts = || {
            let in_flight = queue.in_flight().unwrap();
            assert_eq!(queue.is_drained().unwrap(), queue.len() + in_flight == 0);
            (queue.len(), in_flight)
        };
        assert_eq!(counts(), (0, 0));
        let mut place = queue.reserve(Wait::Not).unwrap();
        place[0] = 1;
        assert_eq!(counts(), (0, 1));
        place.commit(1).unwrap();
        queue.send(&[2]).unwrap();
        assert_eq!(counts(), (2, 0));
        let held = queue.receive_batch(2, Wait::Not).unwrap();
        assert_eq!(counts(), (0, 2));
        held.give_back();
        assert_eq!(counts(), (2, 0));
        // A worker that dies has not done its work.
        let mut worker = Child::fork(|| {
            core::mem::forget(queue.receive_held().unwrap());
            loop {
                std::thread::park();
            }
        });
        trial.wait_until(|| queue.len() == 1);
        assert_eq!(counts(), (1, 1));
        queue.try_receive_held().unwrap().done();
        assert_eq!(counts(), (0, 1));
        worker.kill();
        region.sweep().unwrap();
        assert_eq!(counts(), (1, 0));
        queue.try_receive_held().unwrap().done();
        assert_eq!(counts(), (0, 0));
        // What was broadcast to several is one message.
        let waiting = [0, 1].map(|_| stopped(&trial, queue));
        assert_eq!(counts(), (0, 0));
        assert_eq!(queue.broadcast(&[5]).unwrap(), 2);
        assert_eq!(counts(), (0, 1));
        continue_all(&waiting);
        waiting.into_iter().for_each(|child| expect(child, 5));
        assert_eq!(counts(), (0, 0));
    }
    let in_order = ordered(&region, Discipline::Fifo);
    let waiting = stopped(&trial, in_order);
    in_order.send(&[6]).unwrap();
    assert_eq!(in_order.in_flight().unwrap(), 1);
    assert!(!in_order.is_drained().unwrap());
    waiting.signal(libc::SIGCONT);
    expect(waiting, 6);
    assert!(in_order.is_drained().unwrap());
}
