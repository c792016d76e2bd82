//! A queue in tokio: a task that receives what another process, or a thread, sends.
#![allow(unsafe_code)]

use latchwork::queue::{Queue, QueueOptions, ReceiveError, Watch};
use latchwork::region::{Region, RegionOptions};
use std::error::Error;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const MESSAGES: u64 = 100;

/// A queue for the tasks of one runtime.
struct AsyncQueue {
    queue: Queue<'static>,
    watch: AsyncFd<Watch>,
}

impl AsyncQueue {
    /// To be called in the runtime.
    fn new(queue: Queue<'static>) -> Result<Self, Box<dyn Error>> {
        // SAFETY: the watch's descriptor is its own, open and the same until the watch is dropped.
        let watch = unsafe { AsyncFd::register_with_interest(queue.watch()?, Interest::READABLE)? };
        Ok(Self { queue, watch })
    }

    /// The next message, in `buffer`; how long it is.
    async fn receive(&self, buffer: &mut [u8]) -> Result<usize, Box<dyn Error>> {
        loop {
            match self.queue.try_receive(buffer) {
                Ok(bytes) => return Ok(bytes),
                Err(ReceiveError::Empty) => {}
                Err(error) => return Err(error.into()),
            }
            let mut ready = self.watch.readable().await?;
            // What comes after this makes the descriptor readable again; if something is there, it still is.
            let cleared = ready.try_io(|watch| {
                watch.get_ref().clear();
                match self.queue.is_empty() {
                    true => Err(io::ErrorKind::WouldBlock.into()),
                    false => Ok(()),
                }
            });
            if let Ok(result) = cleared {
                result?;
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // A region for as long as the process runs: what borrows from it can be held anywhere.
    let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
    let region: &'static Region = Box::leak(Box::new(region));
    let queue = Queue::create(region, "jobs", &QueueOptions::new(8, 64))?;
    let sender = std::thread::spawn(move || {
        (0..MESSAGES).try_for_each(|number| queue.send(&number.to_le_bytes()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let sum = runtime.block_on(async {
        let queue = AsyncQueue::new(Queue::open(region, "jobs")?)?;
        let (mut sum, mut buffer) = (0, [0; 8]);
        for _ in 0..MESSAGES {
            queue.receive(&mut buffer).await?;
            sum += u64::from_le_bytes(buffer);
        }
        Ok::<_, Box<dyn Error>>(sum)
    })?;
    sender.join().map_err(|_| "the sender panicked")??;
    assert_eq!(sum, MESSAGES * (MESSAGES - 1) / 2);
    println!("{MESSAGES} messages in tokio, their sum {sum}");
    Ok(())
}
