//! A ring of one sender and one receiver, and a list.

use arbitrary::Arbitrary;
use latchwork::queue::spsc::Spsc;
use latchwork::queue::{QueueOptions, ReceiveError, SendError, Wait};
use latchwork::region::Region;
use std::collections::VecDeque;

const CAPACITY: usize = 4;
const LONGEST: usize = 24;

#[derive(Arbitrary, Debug)]
pub enum Step {
    Send(Vec<u8>),
    SendBatch([Vec<u8>; 3]),
    Reserve { length: u8, byte: u8, commits: bool },
    Receive { room: u8 },
    Hold { gives_back: bool },
    HoldBatch { most: u8, keeps: u8 },
    Flush,
}

pub fn run(region: &Region, steps: Vec<Step>) {
    let options = QueueOptions::new(CAPACITY as u32, LONGEST as u32);
    let ring = Spsc::create(region, "ring", &options).unwrap();
    {
        let (mut sender, mut receiver) = (ring.sender().unwrap(), ring.receiver().unwrap());
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for step in steps.into_iter().take(64) {
            match step {
                Step::Send(text) => match sender.try_send(&text) {
                    Err(SendError::TooLong { .. }) => assert!(text.len() > LONGEST),
                    Err(SendError::Full) => assert_eq!(model.len(), CAPACITY),
                    sent => {
                        sent.unwrap();
                        model.push_back(text);
                    }
                },
                Step::SendBatch(texts) => {
                    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
                    match sender.send_batch(&slices, Wait::Not) {
                        Err(SendError::TooLong { .. }) => {
                            assert!(texts.iter().any(|text| text.len() > LONGEST))
                        }
                        Err(SendError::Full) => assert_eq!(model.len(), CAPACITY),
                        sent => {
                            let sent = sent.unwrap();
                            assert_eq!(sent, texts.len().min(CAPACITY - model.len()));
                            model.extend(texts.into_iter().take(sent));
                        }
                    }
                }
                Step::Reserve {
                    length,
                    byte,
                    commits,
                } => match sender.reserve(Wait::Not) {
                    Err(SendError::Full) => assert_eq!(model.len(), CAPACITY),
                    place => {
                        let mut place = place.unwrap();
                        let text = vec![byte; usize::from(length) % (LONGEST + 1)];
                        place[..text.len()].copy_from_slice(&text);
                        if commits {
                            place.commit(text.len()).unwrap();
                            model.push_back(text);
                        }
                    }
                },
                Step::Receive { room } => {
                    let mut buffer = vec![0; room.into()];
                    match (receiver.try_receive(&mut buffer), model.front()) {
                        (Err(ReceiveError::Empty), None) => {}
                        (Err(ReceiveError::BufferTooSmall { bytes, .. }), Some(text)) => {
                            assert_eq!(bytes, text.len());
                            assert!(bytes > room.into());
                        }
                        (Ok(length), Some(text)) => {
                            assert_eq!(buffer[..length], **text);
                            model.pop_front();
                        }
                        (other, _) => panic!("{other:?}"),
                    }
                }
                Step::Hold { gives_back } => {
                    match (receiver.receive_held(Wait::Not), model.front()) {
                        (Err(ReceiveError::Empty), None) => {}
                        (Ok(held), Some(text)) => {
                            assert_eq!(*held, **text);
                            if gives_back {
                                held.give_back();
                            } else {
                                drop(held);
                                model.pop_front();
                            }
                        }
                        (other, _) => panic!("{:?}", other.map(|held| held.len())),
                    }
                }
                Step::HoldBatch { most, keeps } => {
                    let most = u32::from(most) % 5 + 1;
                    match receiver.receive_batch(most, Wait::Not) {
                        Err(ReceiveError::Empty) => assert!(model.is_empty()),
                        batch => {
                            let batch = batch.unwrap();
                            let count = batch.len();
                            assert!((1..=most as usize).contains(&count) && count <= model.len());
                            assert!(batch.iter().eq(model.iter().take(count).map(Vec::as_slice)));
                            let done = usize::from(keeps) % (count + 1);
                            batch.receive_first(done);
                            model.drain(..done);
                        }
                    }
                }
                Step::Flush => {
                    assert_eq!(receiver.flush() as usize, model.len());
                    model.clear();
                }
            }
            assert_eq!(ring.len() as usize, model.len());
        }
    }
    ring.delete().unwrap();
}
