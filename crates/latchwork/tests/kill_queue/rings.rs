//! Rings, killed at each instruction and at random moments.

use super::journal::{COMMITTED, HEAD, Journal, RECEIVED, compose, read};
use super::region;
use super::steps::messages_left;
use core::sync::atomic::Ordering::SeqCst;
use latchwork::queue::spsc::{ClaimError, Spsc};
use latchwork::queue::{QueueOptions, Wait};
use latchwork::region::Region;
use latchwork_testkit::{Storm, Trial, Worker, step};

const CAPACITY: u32 = 3;
const MAX_MESSAGE: usize = 1024;

fn message(number: u32, length: usize) -> Vec<u8> {
    let mut message = Vec::new();
    compose(&mut message, 1, number, length);
    message
}

fn ring(region: &Region) -> Spsc<'_> {
    let options = QueueOptions::new(CAPACITY, MAX_MESSAGE as u32);
    Spsc::create(region, "ring", &options).unwrap()
}

/// Kills an operation on a ring with so many messages at its instructions; after each kill its ends can be
/// claimed anew, whether or not the dead task was swept, one of the numbers of messages is left, whole and in
/// order, and the ring takes as many as it was made for.
fn step_through(
    trial: &Trial,
    name: &str,
    filled: u32,
    operation: impl Fn(Spsc<'_>),
    unblock: impl Fn(Spsc<'_>) -> bool,
    left: &[u32],
) {
    let region = region(trial);
    step::each_instruction_and_recovery(
        trial,
        name,
        || {
            let mut sender = ring(&region).sender().unwrap();
            for number in 0..filled {
                sender.send(&message(number, 300)).unwrap();
            }
        },
        |(), span| {
            let ring = ring(&region);
            region.join("stepped").unwrap();
            span.run(|| operation(ring));
        },
        |()| Spsc::open(&region, "ring").is_ok_and(&unblock),
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                let ring = ring(&region);
                drop(ring.receiver().unwrap());
                drop(ring.sender().unwrap());
            });
        },
        |(), point| {
            // Made anew, if it was deleted.
            let ring = ring(&region);
            let mut receiver = ring.receiver().unwrap();
            let mut numbers = Vec::new();
            while let Ok(held) = receiver.receive_held(Wait::Not) {
                numbers.push(read(&held));
            }
            assert!(numbers.is_sorted(), "{name}, killed at {point:?}");
            let count = numbers.len() as u32;
            assert!(
                left.contains(&count),
                "{name}, killed at {point:?}: {count} left"
            );
            let mut sender = ring.sender().unwrap();
            for number in 0..CAPACITY {
                sender.try_send(&message(number, 1000)).unwrap();
            }
            assert!(sender.try_send(b"").is_err());
            assert_eq!(receiver.flush(), CAPACITY);
            messages_left(count)
        },
    );
}

fn never(_: Spsc<'_>) -> bool {
    false
}

#[test]
fn a_ring_passes_whole_messages_at_every_instruction() {
    let trial =
        Trial::begin("a_ring_passes_whole_messages_at_every_instruction").across_namespaces();
    // Composed here: in the child its instructions would be stepped through, too.
    let sent = message(5, 900);
    let send = |ring: Spsc<'_>| ring.sender().unwrap().send(&sent).unwrap();
    step_through(&trial, "send by a ring", 2, send, never, &[2, 3]);
    let make_room = |ring: Spsc<'_>| {
        let mut receiver = ring.receiver().unwrap();
        receiver.receive_held(Wait::Not).is_ok()
    };
    step_through(&trial, "send by a full ring", 3, send, make_room, &[2, 3]);
    let receive = |ring: Spsc<'_>| {
        let mut receiver = ring.receiver().unwrap();
        receiver.receive(&mut [0; MAX_MESSAGE]).unwrap();
        drop(receiver.receive_held(Wait::Forever).unwrap());
    };
    step_through(&trial, "receive by a ring", 2, receive, never, &[0, 1, 2]);
    let fill = |ring: Spsc<'_>| {
        let mut sender = ring.sender().unwrap();
        (1..3).all(|number| sender.try_send(&message(number, 40)).is_ok())
    };
    step_through(
        &trial,
        "receive by an empty ring",
        0,
        receive,
        fill,
        &[0, 1, 2],
    );
}

#[test]
fn flush_and_deletion_of_a_ring_drop_all_or_nothing_at_every_instruction() {
    let trial =
        Trial::begin("flush_and_deletion_of_a_ring_drop_all_or_nothing_at_every_instruction")
            .across_namespaces();
    let flush = |ring: Spsc<'_>| assert_eq!(ring.flush().unwrap(), 2);
    step_through(&trial, "flush a ring", 2, flush, never, &[0, 2]);
    let delete = |ring: Spsc<'_>| ring.delete().unwrap();
    step_through(&trial, "delete a ring", 2, delete, never, &[0, 2]);
    let renew = |ring: Spsc<'_>| {
        ring.delete().unwrap();
        drop(self::ring(ring.region()).sender().unwrap());
    };
    step_through(&trial, "make a ring anew", 2, renew, never, &[0, 2]);
}

/// An end, as soon as its last holder is known to be dead.
fn claimed<E>(claim: impl Fn() -> Result<E, ClaimError>) -> E {
    loop {
        match claim() {
            Ok(end) => return end,
            Err(ClaimError::Taken) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// What a new receiver finds first may have been seen by the last one; nothing else comes twice, or out
/// of its order, and nothing is lost but what a receiver had copied as it was killed.
fn storm_over_a_ring(name: &'static str, capacity: u32, held: bool, kills: u64) {
    let trial = Trial::begin(name);
    let region = region(&trial);
    let options = QueueOptions::new(capacity, MAX_MESSAGE as u32);
    let ring = Spsc::create(&region, "ring", &options).unwrap();
    let journal = Journal::new();
    let seen = |message: &[u8], first: bool| {
        let id = read(message);
        let last = journal.last[0].swap(id.1 + 1, SeqCst);
        let again = held && first && id.1 + 1 == last;
        assert!(id.1 >= last || again, "{} came after {last} - 1", id.1);
        journal.mark(id, RECEIVED);
    };
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        let mut buffer = Vec::new();
        if worker.seat == 0 {
            let mut sender = claimed(|| ring.sender());
            while let Some(number) = journal.number(0) {
                compose(&mut buffer, 0, number, rng.usize(HEAD..MAX_MESSAGE));
                sender.send(&buffer).unwrap();
                journal.mark((0, number), COMMITTED);
                journal.progress[0].fetch_add(1, SeqCst);
            }
        } else {
            let mut receiver = claimed(|| ring.receiver());
            buffer.resize(MAX_MESSAGE, 0);
            let mut first = true;
            loop {
                if held {
                    seen(&receiver.receive_held(Wait::Forever).unwrap(), first);
                } else {
                    let bytes = receiver.receive(&mut buffer).unwrap();
                    seen(&buffer[..bytes], first);
                }
                first = false;
                journal.progress[1].fetch_add(1, SeqCst);
            }
        }
        loop {
            journal.progress[worker.seat].fetch_add(1, SeqCst);
            std::thread::sleep(core::time::Duration::from_millis(1));
        }
    };
    let mut storm = Storm::start(&trial, 2, work);
    let kills = trial.times(kills);
    let (mut messages, mut lost) = (0, 0);
    while storm.kills() < kills {
        for _ in 0..8 {
            let _ = storm.kill();
            let before = journal.counts();
            storm.wait_until(|| {
                let now = journal.counts();
                journal.has_run_out(1) || (0..2).all(|seat| now[seat] != before[seat])
            });
        }
        storm.kill_all();
        let mut receiver = claimed(|| ring.receiver());
        let mut first = true;
        while let Ok(message) = receiver.receive_held(Wait::Not) {
            seen(&message, first);
            first = false;
        }
        drop(receiver);
        let (unseen, committed) = journal.reckon(RECEIVED);
        (messages, lost) = (messages + committed, lost + unseen);
        assert!(!held || lost == 0, "{lost} of {messages} were lost");
        journal.clear();
        if storm.kills() < kills {
            storm.refill_all();
        }
    }
    let tally = storm.finish();
    assert!(
        lost as u64 <= tally.total(),
        "{lost} messages were lost in {} kills",
        tally.total()
    );
    println!("{name}: {messages} messages, {lost} lost with their receiver");
}

#[test]
fn messages_held_by_a_ring_are_never_lost() {
    storm_over_a_ring("messages_held_by_a_ring_are_never_lost", 8, true, 200);
}

#[test]
fn messages_copied_by_a_ring_of_one_are_never_doubled() {
    storm_over_a_ring(
        "messages_copied_by_a_ring_of_one_are_never_doubled",
        1,
        false,
        200,
    );
}
