//! A queue, and a list of messages in the order of their ranks.

use arbitrary::Arbitrary;
use latchwork::queue::{
    ControlError, Discipline, Message, Priority, Queue, QueueOptions, Rank, ReceiveError,
    Reservation, SendError, Wait,
};
use latchwork::region::{Box, Region, StorageError};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const CAPACITY: u32 = 5;
const LONGEST: usize = 40;

#[derive(Arbitrary, Debug)]
pub enum Step {
    Send {
        text: Vec<u8>,
        rank: Option<u16>,
    },
    SendBlock {
        length: u16,
        byte: u8,
    },
    SendBatch {
        texts: [Vec<u8>; 3],
        rank: Option<u16>,
    },
    Reserve {
        length: u8,
        byte: u8,
        rank: Option<u16>,
    },
    Commit(u8),
    Abandon(u8),
    Receive {
        room: u8,
    },
    Hold,
    HoldBatch(u8),
    GiveBack(u8),
    Done(u8),
    IntoBlock(u8),
    ReceiveBlock,
    Broadcast(Vec<u8>),
    Flush,
    Delete,
}

/// What comes first: urgent messages, the last one first; then by priority, and by arrival.
type Key = (bool, Reverse<u16>, u64);

#[derive(Clone)]
struct Text {
    bytes: Vec<u8>,
    rank: Rank,
}

struct Model<'r> {
    ready: BTreeMap<Key, Text>,
    held: Vec<(Key, Text, Message<'r>)>,
    written: Vec<(Reservation<'r>, Vec<u8>, Rank)>,
    sent: u64,
}

impl Model<'_> {
    fn used(&self) -> usize {
        self.ready.len() + self.held.len() + self.written.len()
    }

    fn is_full(&self) -> bool {
        self.used() == CAPACITY as usize
    }

    fn put(&mut self, bytes: Vec<u8>, rank: Rank) {
        self.sent += 1;
        let key = match rank {
            Rank::Urgent => (false, Reverse(0), u64::MAX - self.sent),
            Rank::Priority(priority) => (true, Reverse(priority.get()), self.sent),
        };
        assert!(self.ready.insert(key, Text { bytes, rank }).is_none());
    }
}

fn ranked<'r>(queue: Queue<'r>, rank: Option<u16>) -> (Queue<'r>, Rank) {
    match rank.map(|number| number % 4) {
        None => (queue, Rank::default()),
        Some(3) => (queue.urgent(), Rank::Urgent),
        Some(number) => {
            let priority = Priority::new(number * 16_000).unwrap();
            (queue.with_priority(priority), Rank::Priority(priority))
        }
    }
}

pub fn run(region: &Region, in_order: bool, steps: Vec<Step>) {
    let discipline = if in_order {
        Discipline::Fifo
    } else {
        Discipline::Racing
    };
    let options = QueueOptions::new(CAPACITY, LONGEST as u32).discipline(discipline);
    let queue = Queue::create(region, "queue", &options).unwrap();
    let mut model = Model {
        ready: BTreeMap::new(),
        held: Vec::new(),
        written: Vec::new(),
        sent: 0,
    };
    for step in steps.into_iter().take(64) {
        if let Step::Delete = step {
            break;
        }
        act(region, queue, &mut model, step);
        assert_eq!(queue.len() as usize, model.ready.len());
        assert_eq!(
            queue.in_flight().unwrap() as usize,
            model.held.len() + model.written.len()
        );
        assert!(queue.is_consistent().unwrap());
    }
    // Messages in flight stay valid.
    queue.delete().unwrap();
    assert!(matches!(queue.delete(), Err(ControlError::Deleted)));
    assert!(matches!(queue.try_send(b""), Err(SendError::Deleted)));
    assert!(matches!(
        queue.try_receive(&mut []),
        Err(ReceiveError::Deleted)
    ));
    for (_, text, message) in model.held.drain(..) {
        assert_eq!(*message, text.bytes);
    }
    for (reservation, bytes, _) in model.written.drain(..) {
        assert!(matches!(
            reservation.commit(bytes.len()),
            Err(SendError::Deleted)
        ));
    }
    Queue::create(region, "queue", &options)
        .unwrap()
        .try_send(b"after")
        .unwrap();
}

fn act<'r>(region: &'r Region, queue: Queue<'r>, model: &mut Model<'r>, step: Step) {
    match step {
        Step::Send { text, rank } => {
            let (queue, rank) = ranked(queue, rank);
            match queue.try_send(&text) {
                Err(SendError::TooLong { .. }) => assert!(text.len() > LONGEST),
                Err(SendError::Full) => assert!(model.is_full()),
                result => {
                    result.unwrap();
                    assert!(text.len() <= LONGEST && !model.is_full());
                    model.put(text, rank);
                }
            }
        }
        Step::SendBlock { length, byte } => {
            let bytes = vec![byte; usize::from(length) % 5000];
            let block = match Box::copied_in(&bytes, region) {
                Ok(block) => block,
                Err(StorageError::Alloc(_)) => return,
                Err(error) => panic!("{error}"),
            };
            match queue.send_block(block, Wait::Not) {
                Ok(()) => {
                    assert!(!model.is_full());
                    model.put(bytes, Rank::default());
                }
                Err(refused) => {
                    assert!(matches!(refused.error, SendError::Full) && model.is_full());
                    assert_eq!(*refused.bytes, bytes);
                }
            }
        }
        Step::SendBatch { texts, rank } => {
            let (queue, rank) = ranked(queue, rank);
            let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
            match queue.send_batch(&slices, Wait::Not) {
                Err(SendError::TooLong { .. }) => {
                    assert!(texts.iter().any(|text| text.len() > LONGEST))
                }
                Err(SendError::Full) => assert!(model.is_full()),
                sent => {
                    let sent = sent.unwrap();
                    assert_eq!(sent, texts.len().min(CAPACITY as usize - model.used()));
                    texts
                        .into_iter()
                        .take(sent)
                        .for_each(|text| model.put(text, rank));
                }
            }
        }
        Step::Reserve { length, byte, rank } => {
            let (queue, rank) = ranked(queue, rank);
            match queue.reserve(Wait::Not) {
                Err(SendError::Full) => assert!(model.is_full()),
                reservation => {
                    let mut reservation = reservation.unwrap();
                    assert!(!model.is_full());
                    let bytes = vec![byte; usize::from(length) % (LONGEST + 1)];
                    reservation[..bytes.len()].copy_from_slice(&bytes);
                    model.written.push((reservation, bytes, rank));
                }
            }
        }
        Step::Commit(which) => {
            if let Some(index) = index(which, model.written.len()) {
                let (reservation, bytes, rank) = model.written.swap_remove(index);
                reservation.commit(bytes.len()).unwrap();
                model.put(bytes, rank);
            }
        }
        Step::Abandon(which) => {
            if let Some(index) = index(which, model.written.len()) {
                drop(model.written.swap_remove(index));
            }
        }
        Step::Receive { room } => {
            let mut buffer = vec![0; room.into()];
            let first = model
                .ready
                .first_key_value()
                .map(|(key, text)| (*key, text.bytes.clone()));
            match (queue.try_receive(&mut buffer), first) {
                (Err(ReceiveError::Empty), None) => {}
                (Err(ReceiveError::BufferTooSmall { bytes, buffer }), Some((_, text))) => {
                    assert_eq!((bytes, buffer), (text.len(), room.into()));
                    assert!(bytes > buffer);
                }
                (Ok(length), Some((key, text))) => {
                    assert_eq!(buffer[..length], text);
                    model.ready.remove(&key);
                }
                (other, _) => panic!("{other:?}"),
            }
        }
        Step::Hold => match (queue.try_receive_held(), model.ready.pop_first()) {
            (Err(ReceiveError::Empty), None) => {}
            (Ok(message), Some((key, text))) => {
                assert_eq!(*message, text.bytes);
                assert_eq!(message.rank(), Some(text.rank));
                model.held.push((key, text, message));
            }
            (other, _) => panic!("{other:?}"),
        },
        Step::HoldBatch(most) => {
            let most = u32::from(most) % 4 + 1;
            match queue.receive_batch(most, Wait::Not) {
                Err(ReceiveError::Empty) => assert!(model.ready.is_empty()),
                messages => {
                    let messages = messages.unwrap();
                    assert_eq!(messages.len(), model.ready.len().min(most as usize));
                    for message in messages.iter() {
                        assert_eq!(message, model.ready.pop_first().unwrap().1.bytes);
                    }
                }
            }
        }
        Step::GiveBack(which) => {
            if let Some(index) = index(which, model.held.len()) {
                let (key, text, message) = model.held.swap_remove(index);
                let before = queue.redelivered();
                message.give_back();
                assert_eq!(queue.redelivered(), before + 1);
                model.ready.insert(key, text);
            }
        }
        Step::Done(which) => {
            if let Some(index) = index(which, model.held.len()) {
                model.held.swap_remove(index).2.done();
            }
        }
        Step::IntoBlock(which) => {
            if let Some(index) = index(which, model.held.len()) {
                let (key, text, message) = model.held.swap_remove(index);
                match message.into_block() {
                    Ok(block) => assert_eq!(*block, text.bytes),
                    Err((message, _)) => model.held.push((key, text, message)),
                }
            }
        }
        Step::ReceiveBlock => match (
            queue.receive_block(Wait::Not),
            model.ready.first_key_value(),
        ) {
            (Err(ReceiveError::Empty), None) => {}
            (Err(ReceiveError::Storage(_)), Some(_)) => {}
            (Ok(block), Some((key, text))) => {
                assert_eq!(*block, text.bytes);
                let key = *key;
                model.ready.remove(&key);
            }
            (other, _) => panic!("{other:?}"),
        },
        Step::Broadcast(text) => match queue.broadcast(&text) {
            Err(SendError::TooLong { .. }) => assert!(text.len() > LONGEST),
            readers => assert_eq!(readers.unwrap(), 0),
        },
        Step::Flush => {
            assert_eq!(queue.flush().unwrap() as usize, model.ready.len());
            model.ready.clear();
        }
        Step::Delete => {}
    }
}

fn index(which: u8, count: usize) -> Option<usize> {
    usize::from(which).checked_rem(count)
}
