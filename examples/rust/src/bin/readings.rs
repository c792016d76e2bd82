//! The sender of a queue whose receiver is a program in C, `examples/rust-and-c/readings.c`.
//!
//! Started with the name of a region, it makes the region and the queue, sends readings, and waits until the other
//! program has received all of them. `docs/examples/rust-and-c.md` walks through both.
#![forbid(unsafe_code)]

use latchwork::queue::{Priority, Queue, QueueOptions};
use latchwork::region::RegionOptions;
use std::error::Error;

/// A message: `struct reading` of the program in C has the same fields.
#[derive(Clone, Copy)]
struct Reading {
    sensor: u32,
    number: u32,
    value: f64,
}

impl Reading {
    /// The layout that C gives the struct on this machine: 16 bytes without gaps.
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.sensor.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.value.to_ne_bytes());
        bytes
    }
}

const SENSORS: u32 = 3;
const READINGS: u32 = 1_000;
/// Readings above this value overtake the others.
const ALARM: f64 = 99.0;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: readings REGION")?;
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .unlink_at_last_detach(true)
        .create_named(&name)?;
    let queue = Queue::create(&region, "readings", &QueueOptions::new(64, 16))?;
    let alarms = queue.with_priority(Priority::new(1).ok_or("a priority")?);
    let (mut sent, mut sum) = (0, 0.0);
    for number in 0..READINGS {
        for sensor in 0..SENSORS {
            let value = f64::from((number * 37 + sensor * 11) % 100);
            let reading = Reading {
                sensor,
                number,
                value,
            };
            let queue = if value >= ALARM { &alarms } else { &queue };
            queue.send(&reading.to_bytes())?;
            sent += 1;
            sum += value;
        }
    }
    // An empty message ends the receiver. Of equal priority, it comes last.
    queue.send(&[])?;
    while !queue.is_drained()? {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    println!(
        "Rust sent {sent} readings, their mean {:.3}",
        sum / f64::from(sent)
    );
    queue.delete()?;
    Ok(region.detach()?)
}
