//! A queue in an epoll loop, beside another descriptor.
#![forbid(unsafe_code)]

use latchwork::queue::{Queue, QueueOptions, ReceiveError};
use latchwork::region::RegionOptions;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::error::Error;
use std::io::{PipeReader, Read, Write};

const MESSAGES: u64 = 100;
const QUEUE: u64 = 1;
const PIPE: u64 = 2;

/// All that is there, without waiting.
fn drain(queue: &Queue<'_>, buffer: &mut [u8]) -> Result<u64, ReceiveError> {
    let mut count = 0;
    loop {
        match queue.try_receive(buffer) {
            Ok(_) => count += 1,
            Err(ReceiveError::Empty) => return Ok(count),
            Err(error) => return Err(error),
        }
    }
}

fn poll(queue: &Queue<'_>, mut pipe: PipeReader) -> Result<u64, Box<dyn Error>> {
    let watch = queue.watch()?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let readable = epoll::EventFlags::IN;
    epoll::add(&epoll, &watch, epoll::EventData::new_u64(QUEUE), readable)?;
    epoll::add(&epoll, &pipe, epoll::EventData::new_u64(PIPE), readable)?;
    let (mut received, mut buffer) = (0, [0; 64]);
    loop {
        let mut events = Vec::with_capacity(4);
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in events {
            let data = event.data;
            if data.u64() == QUEUE {
                // First this: what comes after it makes the descriptor readable again.
                watch.clear();
                received += drain(queue, &mut buffer)?;
            } else {
                pipe.read_exact(&mut buffer[..1])?;
                // The last word comes after the last message.
                return Ok(received + drain(queue, &mut buffer)?);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
    let queue = Queue::create(&region, "jobs", &QueueOptions::new(8, 64))?;
    let (reader, mut writer) = std::io::pipe()?;
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                queue
                    .send(&number.to_le_bytes())
                    .expect("it is not deleted");
            }
            writer.write_all(b".").expect("its reader is there");
        });
        poll(&queue, reader)
    })?;
    assert_eq!(received, MESSAGES);
    println!("{received} messages by epoll");
    Ok(())
}
