//! What a message queue promises, rule by rule: RTEMS's, POSIX's, and its own.
#![cfg(not(loom))]

mod ends;
mod messages;
mod places;
mod waits;

use latchwork::queue::{Discipline, Queue, QueueOptions, ReceiveError, Wait};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Child, Exit, Trial};

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
    let mut child = Child::fork(|| {
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
    // A short wait may be over before anybody looks.
    trial.wait_until(|| child.is_in_futex() || child.try_wait().is_some());
    child
}

fn expect(mut child: Child, code: i32) {
    assert_eq!(child.wait(), Exit::Code(code));
}
