//! Programs that share a region by its name, and go on when one of them is killed while it holds a lock.
//!
//! Started without arguments it makes the region, starts itself three times as a worker, and prints what they have
//! counted. The second worker kills itself in the middle of a change.
#![forbid(unsafe_code)]

use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::{PinnedFields, Region, RegionOptions, Shareable, TornSafe};
use std::error::Error;
use std::pin::Pin;
use std::process::Command;

/// A total and its parts, which must agree.
#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Counts {
    total: u64,
    of_worker: [u64; 3],
}

/// What the programs share.
#[derive(Shareable, PinnedFields)]
#[repr(C)]
struct Shared {
    #[pin]
    counts: Mutex<Counts, Robust>,
    #[pin]
    repairs: Mutex<u64, Robust>,
}

const ROUNDS: u64 = 1_000;

fn shared(region: &Region) -> Result<Pin<&Shared>, Box<dyn Error>> {
    let make = || Shared {
        counts: Mutex::robust(Counts {
            total: 0,
            of_worker: [0; 3],
        }),
        repairs: Mutex::robust(0),
    };
    Ok(region.object("shared", make)?)
}

fn count(shared: Pin<&Shared>, worker: usize, dies: bool) -> Result<(), Box<dyn Error>> {
    let mut counts = match shared.counts().lock() {
        Err(LockError::OwnerDied(mut died)) => {
            // Its last owner was killed between the two stores below, or elsewhere: the parts are right.
            died.total = died.of_worker.iter().sum();
            *shared.repairs().lock()? += 1;
            died.make_consistent()
        }
        other => other?,
    };
    counts.of_worker[worker] += 1;
    if dies {
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::KILL)?;
    }
    counts.total += 1;
    Ok(())
}

fn work(name: &str, worker: usize) -> Result<(), Box<dyn Error>> {
    let region = RegionOptions::new().attach(name)?;
    let shared = shared(&region)?;
    for round in 0..ROUNDS {
        count(shared, worker, worker == 1 && round == ROUNDS / 2)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(name), Some(worker)) = (arguments.next(), arguments.next()) {
        return work(&name, worker.parse()?);
    }
    let name = format!("example-counter-{}", std::process::id());
    // The name goes when the last of them has ended.
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .unlink_at_last_detach(true)
        .create_named(&name)?;
    let shared = shared(&region)?;
    let program = std::env::current_exe()?;
    let start = |worker: usize| {
        let mut command = Command::new(&program);
        command.args([&name, &worker.to_string()]).spawn()
    };
    let mut workers = (0..3).map(start).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        worker.wait()?;
    }
    // Should the second worker have been the last one to count.
    count(shared, 0, false)?;
    let counts = shared.counts().lock()?;
    assert_eq!(counts.total, counts.of_worker.iter().sum::<u64>());
    println!(
        "counted {} ({:?}), repaired {} time",
        counts.total,
        counts.of_worker,
        *shared.repairs().lock()?
    );
    drop(counts);
    Ok(())
}
