//! Message queues whose senders and receivers are killed.

mod handing;
mod journal;
mod millions;
mod rings;
mod sides;
mod steps;
mod steps_more;
mod storms;

use latchwork::queue::{Message, Queue, QueueOptions, ReceiveError, SendError};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::step;
use latchwork_testkit::{Child, Exit, Trial};

const MAX_MESSAGE: usize = 5120;
/// Bytes of a message that is copied outside the locks: more than `SMALL` in `src/queue/locked.rs`.
const LARGE: usize = 4200;

type Operation = fn(Queue<'_>);

fn region(trial: &Trial) -> Region {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(64)
        .label("kill_queue")
        .any_pid_namespace(trial.is_across_namespaces())
        .create_anonymous()
        .unwrap()
}

/// Whatever is still in the queue.
fn drain(queue: Queue<'_>, mut each: impl FnMut(Message<'_>)) -> u32 {
    let mut count = 0;
    loop {
        match queue.try_receive_held() {
            Ok(message) => each(message),
            Err(ReceiveError::Empty) => return count,
            Err(error) => panic!("{error}"),
        }
        count += 1;
    }
}

/// The queue takes exactly as many messages as it was made for.
fn check_capacity(queue: Queue<'_>) {
    check_capacity_of(queue, MAX_MESSAGE);
}

fn check_capacity_of(queue: Queue<'_>, max_message: usize) {
    let message = [0x55; MAX_MESSAGE];
    for index in 0..queue.capacity() as usize {
        queue
            .try_send(&message[..1 + index * 997 % max_message])
            .unwrap_or_else(|error| panic!("no room for message {index}: {error}"));
    }
    assert!(matches!(queue.try_send(&[]), Err(SendError::Full)));
    assert!(queue.is_consistent().unwrap());
    assert_eq!(drain(queue, |message| message.done()), queue.capacity());
    assert!(queue.is_consistent().unwrap());
}

#[test]
fn a_receiver_of_an_empty_queue_survives_the_death_of_all_others() {
    let trial = Trial::begin("a_receiver_of_an_empty_queue_survives_the_death_of_all_others");
    let region = region(&trial);
    let queue = Queue::create(&region, "queue", &QueueOptions::new(4, 64)).unwrap();
    for round in 0..trial.times(10) {
        let mut receivers: Vec<Child> = (0..4)
            .map(|_| Child::fork(|| queue.receive_held().unwrap().done()))
            .collect();
        for receiver in &receivers {
            trial.wait_until(|| receiver.is_in_region_sleep());
        }
        let survivor = receivers.remove(round as usize % 4);
        receivers
            .iter_mut()
            .for_each(|receiver| assert_eq!(receiver.kill(), Exit::Signal(libc::SIGKILL)));
        queue.send(b"for the last one").unwrap();
        survivor.succeed();
        assert!(queue.is_empty());
    }
}

/// The receiver that a message's sender woke is killed before it runs: another one gets it.
#[test]
fn a_receiver_killed_as_it_was_woken_passes_the_message_on() {
    let trial = Trial::begin("a_receiver_killed_as_it_was_woken_passes_the_message_on");
    let region = region(&trial);
    let queue = Queue::create(&region, "queue", &QueueOptions::new(4, 64)).unwrap();
    // A new place in the task table wakes those who sleep, once: let there be enough of them.
    let mut others: Vec<Child> = (0..4)
        .map(|_| {
            Child::fork(|| {
                let _ = queue.receive(&mut []);
            })
        })
        .collect();
    for other in &others {
        trial.wait_until(|| other.is_in_futex());
    }
    others
        .iter_mut()
        .for_each(|other| assert_eq!(other.kill(), Exit::Signal(libc::SIGKILL)));
    region.sweep().unwrap();
    for _ in 0..trial.times(5) {
        let Some(mut first) =
            step::Frozen::in_region_sleep(&trial, || queue.receive_held().unwrap().done())
        else {
            return;
        };
        let second = Child::fork(|| queue.receive_held().unwrap().done());
        trial.wait_until(|| second.is_in_region_sleep());
        queue.send(b"one").unwrap();
        first.wait_until_woken(&trial);
        first.kill();
        second.succeed();
        assert!(queue.is_empty());
    }
}
