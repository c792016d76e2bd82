//! Message queues whose senders and receivers are killed.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::queue::{Message, Queue, QueueOptions, ReceiveError, SendError};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::step;
use latchwork_testkit::{Child, Exit, Page, Storm, Trial, Worker, fastrand};

const SENDERS: usize = 4;
const RECEIVERS: usize = 4;
/// Messages of one sender's seat between two reckonings.
const IDS: usize = 1 << 14;
const MAX_MESSAGE: usize = 4096;
const HEAD: usize = 16;

/// What became of a message, as the tasks themselves say. Outside of the region.
struct Journal {
    /// The next number of each sender's seat. A number is used once, even if its sender is killed.
    next: Page<[AtomicU32; SENDERS]>,
    /// Bits of each message.
    fate: Page<[[AtomicU8; IDS]; SENDERS]>,
    /// Who processes it: seat, incarnation; or [`DONE`].
    holder: Page<[[AtomicU64; IDS]; SENDERS]>,
    progress: Page<[AtomicU64; SENDERS + RECEIVERS]>,
    /// The last number that was received of each sender's seat, with one receiver.
    last: Page<[AtomicU32; SENDERS]>,
}

/// `send` returned.
const COMMITTED: u8 = 1;
/// `receive` returned, with the whole message.
const RECEIVED: u8 = 2;
const DONE: u64 = u64::MAX;

impl Journal {
    fn new() -> Self {
        Self {
            next: Page::new(),
            fate: Page::new(),
            holder: Page::new(),
            progress: Page::new(),
            last: Page::new(),
        }
    }

    fn clear(&self) {
        self.next.iter().for_each(|next| next.store(0, SeqCst));
        self.last.iter().for_each(|last| last.store(0, SeqCst));
        self.fate
            .iter()
            .flatten()
            .for_each(|fate| fate.store(0, SeqCst));
        self.holder
            .iter()
            .flatten()
            .for_each(|holder| holder.store(0, SeqCst));
    }

    /// A message's number is taken before it is sent, and committed after.
    fn number(&self, sender: usize) -> Option<u32> {
        let number = self.next[sender].fetch_add(1, SeqCst);
        ((number as usize) < IDS).then_some(number)
    }

    fn has_run_out(&self, senders: usize) -> bool {
        self.next[..senders]
            .iter()
            .any(|next| next.load(SeqCst) as usize >= IDS)
    }

    fn counts(&self) -> [u64; SENDERS + RECEIVERS] {
        core::array::from_fn(|seat| self.progress[seat].load(SeqCst))
    }

    fn fate(&self, (sender, number): (usize, u32)) -> &AtomicU8 {
        &self.fate[sender][number as usize]
    }

    fn holder(&self, (sender, number): (usize, u32)) -> &AtomicU64 {
        &self.holder[sender][number as usize]
    }

    fn mark(&self, id: (usize, u32), bit: u8) -> u8 {
        self.fate(id).fetch_or(bit, SeqCst)
    }

    /// Committed messages that nobody received, received ones that were not sent.
    fn reckon(&self, gone: u8) -> (usize, usize) {
        let fates = || self.fate.iter().flatten().map(|fate| fate.load(SeqCst));
        let lost = fates()
            .filter(|fate| fate & COMMITTED != 0 && fate & gone == 0)
            .count();
        (lost, fates().filter(|fate| fate & COMMITTED != 0).count())
    }
}

/// Sender, number, length, and bytes that depend on all three.
fn compose(buffer: &mut Vec<u8>, sender: usize, number: u32, length: usize) {
    buffer.clear();
    buffer.extend_from_slice(&(sender as u32).to_le_bytes());
    buffer.extend_from_slice(&number.to_le_bytes());
    buffer.extend_from_slice(&(length as u64).to_le_bytes());
    let mut bytes =
        fastrand::Rng::with_seed((sender as u64) << 48 | u64::from(number) << 16 | length as u64);
    while buffer.len() < length {
        let chunk = bytes.u64(..).to_le_bytes();
        buffer.extend_from_slice(&chunk[..chunk.len().min(length - buffer.len())]);
    }
    buffer.truncate(length.max(HEAD));
}

/// The sender and number of a message that must be whole.
fn read(message: &[u8]) -> (usize, u32) {
    let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
    let (sender, number) = (word(0) as usize, word(4));
    assert!(
        sender < SENDERS && (number as usize) < IDS,
        "a message nobody sent: {:?}",
        &message[..HEAD]
    );
    let mut whole = Vec::new();
    compose(&mut whole, sender, number, message.len());
    assert!(
        whole == message,
        "message {number} of {sender} is not whole"
    );
    (sender, number)
}

fn length(rng: &mut fastrand::Rng) -> usize {
    match rng.u32(..4) {
        0 => HEAD,
        1 => rng.usize(HEAD..512),
        2 => rng.usize(512..1024),
        _ => rng.usize(HEAD..=MAX_MESSAGE),
    }
}

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
            0 => drop(message),
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

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(64)
        .label("kill_queue")
        .create_anonymous()
        .unwrap()
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
    let message = [0x55; MAX_MESSAGE];
    for index in 0..queue.capacity() as usize {
        queue
            .try_send(&message[..1 + index * 997 % MAX_MESSAGE])
            .unwrap_or_else(|error| panic!("no room for message {index}: {error}"));
    }
    assert!(matches!(queue.try_send(&[]), Err(SendError::Full)));
    assert!(queue.is_consistent().unwrap());
    assert_eq!(drain(queue, |message| message.done()), queue.capacity());
    assert!(queue.is_consistent().unwrap());
}

fn storm_over_a_queue(name: &'static str, plan: Plan) {
    let trial = Trial::begin(name);
    let region = region();
    let queue = Queue::create(
        &region,
        "queue",
        &QueueOptions::new(plan.capacity, MAX_MESSAGE as u32),
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
    };
    storm_over_a_queue("copied_messages_are_never_torn_or_doubled", plan);
}

#[test]
fn killing_those_who_recover_a_queue_loses_nothing() {
    let plan = Plan {
        senders: 3,
        receivers: 3,
        capacity: 4,
        held: true,
        kills: 250,
        recoverers: true,
    };
    storm_over_a_queue("killing_those_who_recover_a_queue_loses_nothing", plan);
}

#[test]
fn a_receiver_of_an_empty_queue_survives_the_death_of_all_others() {
    let trial = Trial::begin("a_receiver_of_an_empty_queue_survives_the_death_of_all_others");
    let region = region();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(4, 64)).unwrap();
    for round in 0..trial.times(10) {
        let mut receivers: Vec<Child> = (0..4)
            .map(|_| Child::fork(|| queue.receive_held().unwrap().done()))
            .collect();
        for receiver in &receivers {
            trial.wait_until(|| receiver.is_in_futex());
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
    let region = region();
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
            step::Frozen::in_futex(&trial, || queue.receive_held().unwrap().done())
        else {
            return;
        };
        let second = Child::fork(|| queue.receive_held().unwrap().done());
        trial.wait_until(|| second.is_in_futex());
        queue.send(b"one").unwrap();
        first.wait_until_woken(&trial);
        first.kill();
        second.succeed();
        assert!(queue.is_empty());
    }
}

/// Kills an operation at its instructions; after each kill the queue must be whole, and hold one of
/// the numbers of messages.
fn step_through(
    trial: &Trial,
    name: &str,
    capacity: u32,
    filled: u32,
    operation: impl Fn(Queue<'_>),
    unblock: impl Fn(Queue<'_>) -> bool,
    left: &[u32],
) {
    let region = region();
    let queue = Queue::create(
        &region,
        "queue",
        &QueueOptions::new(capacity, MAX_MESSAGE as u32),
    )
    .unwrap();
    let mut message = Vec::new();
    step::each_instruction(
        trial,
        name,
        || {
            for number in 0..filled {
                compose(
                    &mut message,
                    0,
                    number,
                    16 + number as usize * 1500 % MAX_MESSAGE,
                );
                queue.send(&message).unwrap();
            }
        },
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| operation(queue));
        },
        |()| unblock(queue),
        |(), point| {
            // A dead task's messages come again in their places once its death is known.
            region.sweep().unwrap();
            let mut ids = Vec::new();
            let count = drain(queue, |message| {
                ids.push(read(&message));
                message.done();
            });
            assert!(
                left.contains(&count),
                "{name}, killed at {point:?}: {count} messages are left"
            );
            assert!(
                ids.is_sorted(),
                "{name}, killed at {point:?}: out of order: {ids:?}"
            );
            check_capacity(queue);
        },
    );
}

#[test]
fn send_is_all_or_nothing_at_every_instruction() {
    let trial = Trial::begin("send_is_all_or_nothing_at_every_instruction");
    let send = |length: usize| {
        move |queue: Queue<'_>| {
            let mut message = Vec::new();
            compose(&mut message, 1, 7, length);
            queue.send(&message).unwrap();
        }
    };
    let never = |_: Queue<'_>| false;
    step_through(&trial, "send, small", 3, 1, send(64), never, &[1, 2]);
    step_through(&trial, "send, large", 3, 1, send(600), never, &[1, 2]);
    let make_room = |queue: Queue<'_>| {
        queue
            .try_receive_held()
            .map(|message| message.done())
            .is_ok()
    };
    step_through(
        &trial,
        "send to a full queue",
        2,
        2,
        send(600),
        make_room,
        &[1, 2],
    );
}

#[test]
fn receive_is_all_or_nothing_at_every_instruction() {
    let trial = Trial::begin("receive_is_all_or_nothing_at_every_instruction");
    let never = |_: Queue<'_>| false;
    let receive = |queue: Queue<'_>| {
        queue.receive(&mut [0; MAX_MESSAGE]).unwrap();
    };
    step_through(&trial, "receive, small", 3, 1, receive, never, &[0, 1]);
    step_through(
        &trial,
        "receive_held and done",
        3,
        2,
        |queue| queue.receive_held().unwrap().done(),
        never,
        &[1, 2],
    );
    step_through(
        &trial,
        "receive_held and give back",
        3,
        2,
        |queue| drop(queue.receive_held().unwrap()),
        never,
        &[2],
    );
    let fill = |queue: Queue<'_>| {
        let mut message = Vec::new();
        compose(&mut message, 1, 7, 700);
        queue.try_send(&message).is_ok()
    };
    step_through(
        &trial,
        "receive, large, from an empty queue",
        3,
        0,
        receive,
        fill,
        &[0, 1],
    );
}

/// A dead sender and a dead receiver are found by a task that is killed while it recovers them.
#[test]
fn recovery_of_a_queue_can_be_repeated_from_every_instruction() {
    let trial = Trial::begin("recovery_of_a_queue_can_be_repeated_from_every_instruction");
    let region = region();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(4, MAX_MESSAGE as u32)).unwrap();
    let mut message = Vec::new();
    step::each_instruction(
        &trial,
        "sweep and recovery of a queue",
        || {
            for number in 0..3 {
                compose(&mut message, 0, number, 100);
                queue.send(&message).unwrap();
            }
            Child::fork(|| {
                core::mem::forget(queue.receive_held().unwrap());
                core::mem::forget(queue.receive_held().unwrap());
                // Not in good order: the region learns of it by the kernel alone.
                die();
            })
            .wait();
        },
        |(), span| {
            span.run(|| {
                region.sweep().unwrap();
                assert!(queue.is_consistent().unwrap());
            });
        },
        |()| false,
        |(), point| {
            region.sweep().unwrap();
            let mut ids = Vec::new();
            drain(queue, |message| {
                ids.push(read(&message).1);
                message.done();
            });
            assert_eq!(ids, [0, 1, 2], "killed at {point:?}");
            check_capacity(queue);
        },
    );
}

#[allow(unsafe_code)]
fn die() {
    // SAFETY: ends the calling process, which is a child of the test.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}
