//! The message queue: each message that was sent is received once, whole, whoever dies.

use crate::control::{DRIVER, GIVING, SEATS, TAKING, at};
use crate::locks::Game;
use crate::task::{Step, Task, Verb};
use crate::witness::{Count, Fault, Witness};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use latchwork::queue::{Message, Queue, QueueOptions, ReceiveError, SendError};
use latchwork::region::{Region, Shareable};

/// Messages of one seat between two halts.
const NUMBERS: usize = 1 << 10;
/// Those of the driver's that are left for the end of a round: a few for each task.
const RESERVE: usize = 1 << 8;
/// Beyond what is copied under the queue's lock.
const MAX_MESSAGE: usize = 2048;
const HEAD: usize = 16;
const CAPACITY: u32 = 4;

/// `send` returned.
const SENT: u8 = 1;
/// `send` refused.
const REFUSED: u8 = 2;

/// What became of each message since the last halt.
#[derive(Shareable)]
#[repr(C)]
pub struct Journal {
    next: [AtomicU64; SEATS],
    sent: [[AtomicU8; NUMBERS]; SEATS],
    /// Who received it last.
    receiver: [[AtomicU64; NUMBERS]; SEATS],
    witness: Witness,
}

impl Journal {
    const fn new() -> Self {
        Self {
            next: [const { AtomicU64::new(0) }; SEATS],
            sent: [const { [const { AtomicU8::new(0) }; NUMBERS] }; SEATS],
            receiver: [const { [const { AtomicU64::new(0) }; NUMBERS] }; SEATS],
            witness: Witness::new(),
        }
    }
}

pub struct Mail<'r> {
    queue: Queue<'r>,
    journal: &'r Journal,
    /// Each so many messages that are received one is not said to be, as it must be; 0: none.
    leak: u64,
}

impl<'r> Mail<'r> {
    pub fn open(region: &'r Region) -> Self {
        Self::that_leaks(region, 0)
    }

    /// A broken one.
    pub fn that_leaks(region: &'r Region, leak: u64) -> Self {
        let options = QueueOptions::new(CAPACITY, MAX_MESSAGE as u32);
        Self {
            queue: Queue::create(region, "mail", &options).unwrap(),
            journal: region.object("journal", Journal::new).unwrap().get_ref(),
            leak,
        }
    }

    fn send(&self, task: &Task<'_>, verb: Verb, length: usize) -> Option<Count> {
        let seat = task.seat;
        // A number is used once, even if its sender is killed.
        let number = self.journal.next[seat].fetch_add(1, SeqCst) as usize;
        let fate = self.journal.sent[seat].get(number)?;
        let mut buffer = [0; MAX_MESSAGE];
        let message = compose(&mut buffer, seat, number, length);
        let result = match verb {
            Verb::Wait | Verb::Interruptible(None) => self.queue.send(message),
            Verb::Try => self.queue.try_send(message),
            Verb::Until(deadline) | Verb::Interruptible(Some(deadline)) => {
                self.queue.send_until(message, deadline)
            }
        };
        let count = match result {
            Ok(()) => Count::Done,
            Err(SendError::Full) => Count::Refused,
            Err(SendError::TimedOut) => Count::TimedOut,
            Err(error) => panic!("{error}"),
        };
        fate.store(
            if matches!(count, Count::Done) {
                SENT
            } else {
                REFUSED
            },
            SeqCst,
        );
        Some(count)
    }

    /// Takes note of a message. `None` if it is none.
    fn note(&self, task: &Task<'_>, message: &[u8]) -> Option<()> {
        let word = |at: usize| {
            Some(u64::from_le_bytes(
                message.get(at..at + 8)?.try_into().ok()?,
            ))
        };
        let (seat, number) = (word(0)? as usize, word(8)? as usize);
        let receiver = self.journal.receiver.get(seat)?.get(number)?;
        let mut buffer = [0; MAX_MESSAGE];
        if compose(&mut buffer, seat, number, message.len()) != message {
            return None;
        }
        let done = self.journal.witness.counted(Count::Done);
        if self.leak != 0 && done.is_multiple_of(self.leak) {
            return Some(());
        }
        let before = receiver.swap(task.id.0, SeqCst);
        // One who died with it in its hands had it in vain.
        if before != 0 && !task.control.is_doomed(before) {
            self.journal.witness.fault(Fault::Doubled);
        }
        Some(())
    }

    fn received(&self, task: &Task<'_>, message: &[u8]) {
        if self.note(task, message).is_none() {
            self.journal.witness.fault(Fault::Unsent);
        }
    }

    fn finish(&self, task: &Task<'_>, message: Message<'_>) {
        self.received(task, &message);
        message.done();
    }

    fn receive(&self, task: &mut Task<'_>, step: &Step) -> Count {
        let queue = &self.queue;
        // What is copied dies with its receiver.
        let result = if task.is_mortal || step.goes_on() {
            let held = match step.verb() {
                Verb::Wait | Verb::Interruptible(None) => queue.receive_held(),
                Verb::Try => queue.try_receive_held(),
                Verb::Until(deadline) | Verb::Interruptible(Some(deadline)) => {
                    queue.receive_held_until(deadline)
                }
            };
            held.map(|message| {
                task.dwell(step);
                if step.for_all() {
                    message.give_back();
                } else {
                    self.finish(task, message);
                }
            })
        } else {
            let mut buffer = [0; MAX_MESSAGE];
            let copied = match step.verb() {
                Verb::Wait | Verb::Interruptible(None) => queue.receive(&mut buffer),
                Verb::Try => queue.try_receive(&mut buffer),
                Verb::Until(deadline) | Verb::Interruptible(Some(deadline)) => {
                    queue.receive_until(&mut buffer, deadline)
                }
            };
            copied.map(|length| self.received(task, &buffer[..length]))
        };
        match result {
            Ok(()) => Count::Done,
            Err(ReceiveError::Empty) => Count::Refused,
            Err(ReceiveError::TimedOut) => Count::TimedOut,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sender, number, and bytes that depend on both and on the length.
fn compose(buffer: &mut [u8; MAX_MESSAGE], seat: usize, number: usize, length: usize) -> &[u8] {
    let message = &mut buffer[..length.clamp(HEAD, MAX_MESSAGE)];
    message[..8].copy_from_slice(&(seat as u64).to_le_bytes());
    message[8..HEAD].copy_from_slice(&(number as u64).to_le_bytes());
    let start = seat * 31 + number * 7 + length;
    for (index, byte) in message[HEAD..].iter_mut().enumerate() {
        *byte = (start + index * 13) as u8;
    }
    message
}

impl Game for Mail<'_> {
    fn play(&self, task: &mut Task<'_>, step: &Step, _: &mut dyn FnMut(&mut Task<'_>)) {
        let gives = step.gives();
        let waits = if gives { GIVING } else { TAKING };
        let doing = task.doing(at(step.place, waits));
        let count = if gives {
            self.send(task, step.verb(), step.length(MAX_MESSAGE))
        } else {
            Some(self.receive(task, step))
        };
        if let Some(count) = count {
            self.journal.witness.count(count);
        }
        task.doing(doing);
    }

    fn witness(&self) -> &Witness {
        &self.journal.witness
    }

    fn feed(&self, driver: &mut Task<'_>, _: usize, givers: usize, takers: usize) {
        let control = driver.control;
        let is_end = control.halt.load(SeqCst) != 0 || control.stop.load(SeqCst);
        if takers > 0 && self.queue.is_empty() && (is_end || self.has_food()) {
            let sent = self.send(driver, Verb::Try, HEAD);
            assert!(sent.is_some(), "the driver is out of numbers");
        }
        if givers > 0
            && self.queue.len() == CAPACITY
            && let Ok(message) = self.queue.try_receive_held()
        {
            self.finish(driver, message);
        }
    }

    fn has_food(&self) -> bool {
        (self.journal.next[DRIVER].load(SeqCst) as usize) < NUMBERS - RESERVE
    }

    fn reckon(&self, driver: &mut Task<'_>, _: usize, _: u64) {
        let (journal, witness) = (self.journal, &self.journal.witness);
        loop {
            match self.queue.try_receive_held() {
                Ok(message) => self.finish(driver, message),
                Err(ReceiveError::Empty) => break,
                Err(error) => panic!("{error}"),
            }
        }
        if !self.queue.is_consistent().unwrap() {
            witness.fault(Fault::Torn);
        }
        for seat in 0..SEATS {
            let numbers = journal.next[seat].swap(0, SeqCst) as usize;
            for number in 0..numbers.min(NUMBERS) {
                let sent = journal.sent[seat][number].swap(0, SeqCst);
                let is_received = journal.receiver[seat][number].swap(0, SeqCst) != 0;
                match (sent, is_received) {
                    (SENT, false) => witness.fault(Fault::Lost),
                    (REFUSED, true) => witness.fault(Fault::Unsent),
                    _ => {}
                }
            }
        }
    }
}
