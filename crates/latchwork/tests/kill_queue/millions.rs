//! As many messages as one likes, each counted, while their senders and receivers are killed.
//!
//! `LATCHWORK_MESSAGES` says how many; in a release build a million takes some seconds. They are small,
//! and the kills rarer than in the other storms, so that most of them pass at full speed.

use super::region;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::queue::{Message, Priority, Queue, QueueOptions, ReceiveError};
use latchwork_testkit::{Page, Storm, Trial, Worker};

const SENDERS: usize = 2;
const RECEIVERS: usize = 2;
/// Messages of one sender's seat between two reckonings.
const IDS: usize = 1 << 18;
const USUAL: u64 = 100_000;

/// `send` returned.
const COMMITTED: u8 = 1;
/// A receiver has had it in its hands, and counted it.
const SEEN: u8 = 2;

/// What became of each message, as the tasks say.
struct Ledger {
    next: Page<[AtomicU32; SENDERS]>,
    fates: Page<[[AtomicU8; IDS]; SENDERS]>,
    again: Page<AtomicU32>,
}

impl Ledger {
    fn send(&self, worker: Worker, queue: Queue<'_>) {
        let mut rng = worker.rng();
        loop {
            let number = self.next[worker.seat].fetch_add(1, SeqCst);
            if number as usize >= IDS {
                self.next[worker.seat].store(IDS as u32, SeqCst);
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let mut message = [0; 16];
            message[..4].copy_from_slice(&(worker.seat as u32).to_ne_bytes());
            message[4..8].copy_from_slice(&number.to_ne_bytes());
            message[8..].copy_from_slice(&check(worker.seat, number).to_ne_bytes());
            match rng.u32(..64) {
                0 => queue.urgent().send(&message),
                1 => queue.with_priority(Priority::MAX).send(&message),
                _ => queue.send(&message),
            }
            .unwrap();
            self.fates[worker.seat][number as usize].fetch_or(COMMITTED, SeqCst);
        }
    }

    /// Counts a message, which may come again only if it says so.
    fn count(&self, message: &Message<'_>) {
        let word = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().unwrap());
        let (sender, number) = (word(0) as usize, word(4));
        let sum = u64::from_ne_bytes(message[8..].try_into().unwrap());
        assert_eq!(sum, check(sender, number), "{number} of {sender} is torn");
        let before = self.fates[sender][number as usize].fetch_or(SEEN, SeqCst);
        if before & SEEN != 0 {
            assert!(message.deliveries() > 1, "{number} of {sender} came twice");
            self.again.fetch_add(1, SeqCst);
        }
    }

    fn receive(&self, queue: Queue<'_>) {
        loop {
            self.count(&queue.receive_held().unwrap());
        }
    }

    fn has_run_out(&self) -> bool {
        let next = self.next.iter();
        next.into_iter()
            .all(|next| next.load(SeqCst) as usize >= IDS)
    }

    /// How many were sent, all of which were seen; then all is as new.
    fn reckon(&self) -> u64 {
        let mut sent = 0;
        for fate in self.fates.iter().flatten() {
            let fate = fate.swap(0, SeqCst);
            assert_ne!(fate, COMMITTED, "a message was lost");
            sent += u64::from(fate != 0);
        }
        self.next.iter().for_each(|next| next.store(0, SeqCst));
        sent
    }
}

fn check(sender: usize, number: u32) -> u64 {
    (u64::from(number) << 8 | sender as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn of_many_messages_none_is_lost_and_none_comes_twice_unsaid() {
    let trial = Trial::begin("of_many_messages_none_is_lost_and_none_comes_twice_unsaid");
    let wanted = std::env::var("LATCHWORK_MESSAGES").ok();
    let wanted = wanted.map_or(USUAL, |wanted| {
        wanted.parse().expect("a number of messages")
    });
    let region = region(&trial);
    let queue = Queue::create(&region, "queue", &QueueOptions::new(32, 16)).unwrap();
    let ledger = Ledger {
        next: Page::new(),
        fates: Page::new(),
        again: Page::new(),
    };
    // Few messages are a part of a round.
    let skipped = IDS.saturating_sub(usize::try_from(wanted).unwrap_or(IDS)) as u32;
    let skip = || {
        ledger
            .next
            .iter()
            .for_each(|next| next.store(skipped, SeqCst));
    };
    skip();
    let work = |worker: Worker| {
        if worker.seat < SENDERS {
            ledger.send(worker, queue);
        } else {
            ledger.receive(queue);
        }
    };
    let mut storm =
        Storm::start(&trial, SENDERS + RECEIVERS, work).longest_wait(Duration::from_millis(10));
    let mut sent = 0;
    loop {
        while !ledger.has_run_out() {
            let _ = storm.kill();
            trial.progress();
        }
        storm.kill_all();
        loop {
            match queue.try_receive_held() {
                Ok(message) => ledger.count(&message),
                Err(ReceiveError::Empty) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(queue.is_consistent().unwrap());
        sent += ledger.reckon();
        if sent >= wanted {
            break;
        }
        skip();
        storm.refill_all();
    }
    let tally = storm.finish();
    println!(
        "{sent} messages, {tally}; {} came again, as they said",
        ledger.again.load(SeqCst)
    );
}
