//! Latchwork's queues.

use std::io;

use latchwork::queue::spsc::{self, Spsc};
use latchwork::queue::{Queue, QueueOptions, Wait};
use latchwork::region::{Box, Region, RegionOptions};

use super::{CAPACITY, MessageQueue, Receives, Sends, add_up, compute, read_lines};

const NAME: &str = "mail";

/// Messages that are sent or received together.
const BATCH: usize = 5;

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

fn region() -> io::Result<Region> {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .create_anonymous()
        .map_err(other)
}

fn options(size: usize) -> QueueOptions {
    QueueOptions::new(CAPACITY as u32, size as u32)
}

/// Declares a contestant by a [`Queue`]: its name, how it sends, how it receives.
macro_rules! by_queue {
    ($(#[$meta:meta])* $name:ident, $sender:ident, $receiver:ident,
     $max:expr, $send:expr, $receive:expr $(, $compute:expr, $add_up:expr)?) => {
        $(#[$meta])*
        pub(crate) struct $name(Region);
        pub(crate) struct $sender<'a>(Queue<'a>);
        pub(crate) struct $receiver<'a>(Queue<'a>);

        impl MessageQueue for $name {
            type Sender<'a> = $sender<'a>;
            type Receiver<'a> = $receiver<'a>;

            fn make(size: usize) -> io::Result<Self> {
                let region = region()?;
                let max: fn(usize) -> usize = $max;
                Queue::create(&region, NAME, &options(max(size))).map_err(other)?;
                Ok(Self(region))
            }

            fn sender(&self) -> io::Result<$sender<'_>> {
                let queue = Queue::open(&self.0, NAME).map_err(other)?;
                Ok($sender(queue))
            }

            fn receiver(&self) -> io::Result<$receiver<'_>> {
                Ok($receiver(Queue::open(&self.0, NAME).map_err(other)?))
            }
        }

        impl Sends for $sender<'_> {
            fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
                let send: fn(&Self, &[u8], u64) -> io::Result<()> = $send;
                send(self, message, times)
            }

            $(fn send_computed(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
                let send: fn(&Self, usize, u64) -> io::Result<()> = $compute;
                send(self, buffer.len(), times)
            })?
        }

        impl Receives for $receiver<'_> {
            fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
                let receive: fn(&Self, &mut [u8], u64) -> io::Result<()> = $receive;
                receive(self, buffer, times)
            }

            $(fn receive_computed(&mut self, _: &mut [u8], times: u64) -> io::Result<()> {
                let receive: fn(&Self, u64) -> io::Result<()> = $add_up;
                receive(self, times)
            })?
        }
    };
}

by_queue!(
    /// Copied in and out.
    Copied, CopiedSender, CopiedReceiver,
    |size| size,
    |end, message, times| {
        (0..times).try_for_each(|_| end.0.send(message).map_err(other))
    },
    |end, buffer, times| {
        (0..times).try_for_each(|_| end.0.receive(buffer).map(drop).map_err(other))
    }
);

by_queue!(
    /// Written and read where the message lies.
    InPlace, InPlaceSender, InPlaceReceiver,
    |size| size,
    |end, message, times| {
        (0..times).try_for_each(|_| {
            let mut place = end.0.reserve(Wait::Forever).map_err(other)?;
            place[..message.len()].copy_from_slice(message);
            place.commit(message.len()).map_err(other)
        })
    },
    |end, _, times| {
        (0..times).try_for_each(|_| {
            read_lines(&end.0.receive_held().map_err(other)?);
            Ok(())
        })
    },
    |end, size, times| {
        (0..times).try_for_each(|number| {
            let mut place = end.0.reserve(Wait::Forever).map_err(other)?;
            compute(&mut place[..size], number);
            place.commit(size).map_err(other)
        })
    },
    |end, times| {
        (0..times).try_for_each(|_| {
            add_up(&end.0.receive_held().map_err(other)?);
            Ok(())
        })
    }
);

by_queue!(
    /// A block of the heap for each message, allocated and freed, of which one word is written and read.
    HandedOver, HandedOverSender, HandedOverReceiver,
    |_| 8,
    |end, message, times| {
        (0..times).try_for_each(|_| {
            let mut block = Box::unfilled_in(message.len(), end.0.region()).map_err(other)?;
            block[0] = message[0];
            end.0
                .send_block(block, Wait::Forever)
                .map_err(|refused| other(refused.error))
        })
    },
    |end, buffer, times| {
        (0..times).try_for_each(|_| {
            buffer[0] = end.0.receive_block(Wait::Forever).map_err(other)?[0];
            Ok(())
        })
    },
    |end, size, times| {
        (0..times).try_for_each(|number| {
            let mut block = Box::unfilled_in(size, end.0.region()).map_err(other)?;
            compute(&mut block, number);
            end.0
                .send_block(block, Wait::Forever)
                .map_err(|refused| other(refused.error))
        })
    },
    |end, times| {
        (0..times).try_for_each(|_| {
            add_up(&end.0.receive_block(Wait::Forever).map_err(other)?);
            Ok(())
        })
    }
);

by_queue!(
    /// Several at once, copied in and read where they lie.
    Batched, BatchedSender, BatchedReceiver,
    |size| size,
    |end, message, times| {
        let mut left = times as usize;
        while left > 0 {
            let batch = &[message; BATCH][..left.min(BATCH)];
            left -= end.0.send_batch(batch, Wait::Forever).map_err(other)?;
        }
        Ok(())
    },
    |end, buffer, times| {
        let mut left = times;
        while left > 0 {
            let most = left.min(CAPACITY as u64) as u32;
            let batch = end.0.receive_batch(most, Wait::Forever).map_err(other)?;
            for message in batch.iter() {
                buffer[..message.len()].copy_from_slice(message);
            }
            left -= batch.len() as u64;
        }
        Ok(())
    }
);

/// The ring for one sender and one receiver.
pub(crate) struct Ring(Region);

impl Ring {
    fn open(&self) -> io::Result<Spsc<'_>> {
        Spsc::open(&self.0, NAME).map_err(other)
    }
}

impl MessageQueue for Ring {
    type Sender<'a> = spsc::Sender<'a>;
    type Receiver<'a> = spsc::Receiver<'a>;

    fn make(size: usize) -> io::Result<Self> {
        let region = region()?;
        Spsc::create(&region, NAME, &options(size)).map_err(other)?;
        Ok(Self(region))
    }

    fn sender(&self) -> io::Result<spsc::Sender<'_>> {
        self.open()?.sender().map_err(other)
    }

    fn receiver(&self) -> io::Result<spsc::Receiver<'_>> {
        self.open()?.receiver().map_err(other)
    }
}

impl Sends for spsc::Sender<'_> {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| spsc::Sender::send(self, message).map_err(other))
    }
}

impl Receives for spsc::Receiver<'_> {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            spsc::Receiver::receive(self, buffer)
                .map(drop)
                .map_err(other)
        })
    }
}

/// Declares another way to use the ring.
macro_rules! by_ring {
    ($(#[$meta:meta])* $name:ident, $sender:ident, $receiver:ident) => {
        $(#[$meta])*
        pub(crate) struct $name(Ring);
        pub(crate) struct $sender<'a>(spsc::Sender<'a>);
        pub(crate) struct $receiver<'a>(spsc::Receiver<'a>);

        impl MessageQueue for $name {
            type Sender<'a> = $sender<'a>;
            type Receiver<'a> = $receiver<'a>;

            fn make(size: usize) -> io::Result<Self> {
                Ring::make(size).map(Self)
            }

            fn sender(&self) -> io::Result<$sender<'_>> {
                self.0.sender().map($sender)
            }

            fn receiver(&self) -> io::Result<$receiver<'_>> {
                self.0.receiver().map($receiver)
            }
        }
    };
}

by_ring!(
    /// The same ring, several at once.
    RingBatched, RingBatchedSender, RingBatchedReceiver
);

by_ring!(
    /// The same ring, written and read where the messages lie.
    RingInPlace, RingInPlaceSender, RingInPlaceReceiver
);

impl Sends for RingBatchedSender<'_> {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        let mut left = times as usize;
        while left > 0 {
            let batch = &[message; BATCH][..left.min(BATCH)];
            left -= self.0.send_batch(batch, Wait::Forever).map_err(other)?;
        }
        Ok(())
    }
}

impl Receives for RingBatchedReceiver<'_> {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        let mut left = times;
        while left > 0 {
            let most = left.min(CAPACITY as u64) as u32;
            let batch = self.0.receive_batch(most, Wait::Forever).map_err(other)?;
            for message in batch.iter() {
                buffer[..message.len()].copy_from_slice(message);
            }
            left -= batch.len() as u64;
        }
        Ok(())
    }
}

impl Sends for RingInPlaceSender<'_> {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            let mut place = self.0.reserve(Wait::Forever).map_err(other)?;
            place[..message.len()].copy_from_slice(message);
            place.commit(message.len()).map_err(other)
        })
    }

    fn send_computed(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|number| {
            let mut place = self.0.reserve(Wait::Forever).map_err(other)?;
            compute(&mut place[..buffer.len()], number);
            place.commit(buffer.len()).map_err(other)
        })
    }
}

impl Receives for RingInPlaceReceiver<'_> {
    fn receive(&mut self, _: &mut [u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            read_lines(&self.0.receive_held(Wait::Forever).map_err(other)?);
            Ok(())
        })
    }

    fn receive_computed(&mut self, _: &mut [u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            add_up(&self.0.receive_held(Wait::Forever).map_err(other)?);
            Ok(())
        })
    }
}
