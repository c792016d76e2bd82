//! Senders and receivers that are killed at random moments.

use super::journal::{COMMITTED, DONE, HEAD, Journal, RECEIVED, compose, read};
use super::{MAX_MESSAGE, check_capacity, drain, region};
use core::sync::atomic::Ordering::SeqCst;
use latchwork::queue::{Discipline, Message, Queue, QueueOptions};
use latchwork_testkit::{Storm, Trial, Worker, fastrand};

fn send_for_ever(worker: Worker, queue: Queue<'_>, journal: &Journal) {
    let mut rng = worker.rng();
    let mut message = Vec::with_capacity(MAX_MESSAGE);
    loop {
        let Some(number) = journal.number(worker.seat) else {
            journal.progress[worker.seat].fetch_add(1, SeqCst);
            std::thread::sleep(core::time::Duration::from_millis(1));
            continue;
        };
        compose(&mut message, worker.seat, number, length(&mut rng));
        queue.send(&message).unwrap();
        journal.mark((worker.seat, number), COMMITTED);
        journal.progress[worker.seat].fetch_add(1, SeqCst);
    }
}

fn process(worker: Worker, message: Message<'_>, journal: &Journal) {
    let id = read(&message);
    let me = 1 + worker.seat as u64 + (worker.incarnation << 16);
    let before = journal.holder(id).load(SeqCst);
    assert!(
        before == 0 || message.deliveries() > 1,
        "{id:?}, first delivered now, was delivered before"
    );
    if before != DONE {
        journal.holder(id).store(me, SeqCst);
        // The result, exactly once: it is there or not when the message comes again.
        let mine = journal
            .holder(id)
            .compare_exchange(me, DONE, SeqCst, SeqCst);
        assert_eq!(mine, Ok(me), "{id:?} was delivered to two at a time");
    }
    journal.mark(id, RECEIVED);
    message.done();
}

fn receive_held_for_ever(worker: Worker, queue: Queue<'_>, journal: &Journal, in_order: bool) {
    let mut rng = worker.rng();
    loop {
        let message = queue.receive_held().unwrap();
        let (sender, number) = read(&message);
        if in_order {
            // Nothing overtakes: what came before may come again, at once and in its place only.
            let last = journal.last[sender].swap(number + 1, SeqCst);
            assert!(
                number >= last || (number + 1 == last && message.deliveries() > 1),
                "{number} of {sender} came after {last} - 1"
            );
        }
        match rng.u32(..16) {
            0 => message.give_back(),
            1 => {
                std::thread::yield_now();
                process(worker, message, journal);
            }
            _ => process(worker, message, journal),
        }
        journal.progress[worker.seat].fetch_add(1, SeqCst);
    }
}

fn receive_copies_for_ever(worker: Worker, queue: Queue<'_>, journal: &Journal) {
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        let length = queue.receive(&mut buffer).unwrap();
        let id = read(&buffer[..length]);
        let before = journal.mark(id, RECEIVED);
        assert_eq!(before & RECEIVED, 0, "{id:?} was received before");
        journal.progress[worker.seat].fetch_add(1, SeqCst);
    }
}

#[derive(Clone, Copy)]
struct Plan {
    senders: usize,
    receivers: usize,
    capacity: u32,
    held: bool,
    kills: u64,
    /// Survivors are killed in the midst of recovery, too.
    recoverers: bool,
    discipline: Discipline,
}

fn length(rng: &mut fastrand::Rng) -> usize {
    match rng.u32(..4) {
        0 => HEAD,
        1 => rng.usize(HEAD..512),
        2 => rng.usize(512..1024),
        _ => rng.usize(HEAD..=MAX_MESSAGE),
    }
}

fn storm_over_a_queue(name: &'static str, plan: Plan) {
    let trial = Trial::begin(name);
    let region = region(&trial);
    let queue = Queue::create(
        &region,
        "queue",
        &QueueOptions::new(plan.capacity, MAX_MESSAGE as u32).discipline(plan.discipline),
    )
    .unwrap();
    let journal = Journal::new();
    let work = |worker: Worker| {
        if worker.seat < plan.senders {
            send_for_ever(worker, queue, &journal);
        } else if plan.held {
            receive_held_for_ever(worker, queue, &journal, plan.receivers == 1);
        } else {
            receive_copies_for_ever(worker, queue, &journal);
        }
    };
    let mut storm = Storm::start(&trial, plan.senders + plan.receivers, work);
    let kills = trial.times(plan.kills);
    let (mut messages, mut lost, mut rounds) = (0, 0, 0);
    while storm.kills() < kills {
        for _ in 0..8 {
            let _ = if plan.recoverers {
                storm.kill_recoverers()
            } else {
                storm.kill()
            };
            let before = journal.counts();
            storm.wait_until(|| {
                let now = journal.counts();
                // Once the numbers have run out, receivers wait for the next round.
                let seats = if journal.has_run_out(plan.senders) {
                    0..0
                } else {
                    0..plan.senders + plan.receivers
                };
                seats.into_iter().all(|seat| now[seat] != before[seat])
            });
        }
        assert!(queue.is_consistent().unwrap(), "indices and cells disagree");
        storm.kill_all();
        let me = Worker::outside(&trial);
        drain(queue, |message| {
            if plan.held {
                process(me, message, &journal);
            } else {
                let before = journal.mark(read(&message), RECEIVED);
                assert_eq!(before & RECEIVED, 0, "received before");
                message.done();
            }
        });
        assert!(queue.is_consistent().unwrap());
        let (unseen, committed) = journal.reckon(RECEIVED);
        messages += committed;
        lost += unseen;
        rounds += 1;
        if plan.held {
            assert_eq!(lost, 0, "of {committed} messages sent");
        }
        check_capacity(queue);
        journal.clear();
        if storm.kills() < kills {
            storm.refill_all();
        }
    }
    let redelivered = queue.redelivered();
    let tally = storm.finish();
    // A receiver that is killed after `receive` returned takes at most one message with it.
    assert!(
        lost as u64 <= tally.total(),
        "{lost} messages were lost in {} kills",
        tally.total()
    );
    println!(
        "{name}: {messages} messages in {rounds} rounds, {redelivered} put back, {lost} lost with their receiver"
    );
    region.sweep().unwrap();
    region.check_heap().unwrap();
}

#[test]
fn held_messages_are_processed_exactly_once() {
    let plan = Plan {
        senders: 2,
        receivers: 2,
        capacity: 8,
        held: true,
        kills: 250,
        recoverers: false,
        discipline: Discipline::Racing,
    };
    storm_over_a_queue("held_messages_are_processed_exactly_once", plan);
}

#[test]
fn held_messages_survive_a_queue_of_one() {
    let plan = Plan {
        senders: 3,
        receivers: 3,
        capacity: 1,
        held: true,
        kills: 150,
        recoverers: false,
        discipline: Discipline::Racing,
    };
    storm_over_a_queue("held_messages_survive_a_queue_of_one", plan);
}

#[test]
fn messages_keep_their_order_over_redelivery() {
    let plan = Plan {
        senders: 3,
        receivers: 1,
        capacity: 16,
        held: true,
        kills: 150,
        recoverers: false,
        discipline: Discipline::Racing,
    };
    storm_over_a_queue("messages_keep_their_order_over_redelivery", plan);
}

#[test]
fn copied_messages_are_never_torn_or_doubled() {
    let plan = Plan {
        senders: 3,
        receivers: 3,
        capacity: 8,
        held: false,
        kills: 200,
        recoverers: false,
        discipline: Discipline::Racing,
    };
    storm_over_a_queue("copied_messages_are_never_torn_or_doubled", plan);
}

#[test]
fn killing_tasks_that_recover_a_queue_loses_nothing() {
    let plan = Plan {
        senders: 3,
        receivers: 3,
        capacity: 4,
        held: true,
        kills: 250,
        recoverers: true,
        discipline: Discipline::Racing,
    };
    storm_over_a_queue("killing_tasks_that_recover_a_queue_loses_nothing", plan);
}

#[test]
fn messages_handed_to_a_waiter_survive_its_death() {
    let plan = Plan {
        senders: 2,
        receivers: 4,
        capacity: 4,
        held: true,
        kills: 200,
        recoverers: true,
        discipline: Discipline::Fifo,
    };
    storm_over_a_queue("messages_handed_to_a_waiter_survive_its_death", plan);
}
