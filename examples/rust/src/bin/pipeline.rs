//! A sensor pipeline of four processes on one processor, with priorities and a ceiling.
//!
//! A sampler sends readings through a queue; a controller sets the valves, which a display also reads; a compressor of
//! medium priority computes for long at a time. With the mutex of `--plain`, the controller may wait for the display,
//! which has the mutex, while the compressor keeps the display from running: a priority inversion. With a priority
//! ceiling the display runs at the controller's priority while it has the mutex, and the wait is short.
//!
//! `docs/examples/sensor-pipeline.md` walks through it.
#![allow(unsafe_code)]

use latchwork::coproc::{Attributes, Coproc, Coprocs, Scheduling, SpawnError};
use latchwork::mutex::{LockError, Mutex, Protect, Robust, RobustGuard, RobustProtocol};
use latchwork::queue::{Priority, Queue, QueueOptions, ReceiveError};
use latchwork::region::{PinnedFields, Region, RegionOptions, Shareable, TornSafe};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use std::error::Error;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The real-time priorities: the most urgent first. The valves' ceiling is that of the most urgent task that locks them.
const SAMPLER: i32 = 30;
const CONTROLLER: i32 = 20;
const COMPRESSOR: i32 = 10;
const DISPLAY: i32 = 5;
const CEILING: u8 = CONTROLLER as u8;

const READINGS: u64 = 300;
const PERIOD: Duration = Duration::from_millis(2);
/// How long the compressor computes, and the display has the mutex.
const COMPRESSION: Duration = Duration::from_millis(15);
const DRAWING: Duration = Duration::from_micros(300);
const ALARM: u64 = 95;

/// The valves' positions, whose sum is always 100.
#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Valves {
    inflow: u64,
    outflow: u64,
}

/// What the processes share.
#[derive(Shareable, PinnedFields)]
#[repr(C)]
struct Plant {
    #[pin]
    with_ceiling: Mutex<Valves, Robust<Protect<Shared>>>,
    #[pin]
    plain: Mutex<Valves, Robust>,
    is_plain: bool,
    is_over: AtomicBool,
    /// Readings that the controller has acted on, alarms among them, and the longest time that one took.
    handled: AtomicU64,
    alarms: AtomicU64,
    longest: AtomicU64,
    drawn: AtomicU64,
}

/// The valves, also from a task that died with them.
fn taken<'a, P: RobustProtocol>(
    result: Result<RobustGuard<'a, Valves, P>, LockError<'a, Valves, P>>,
) -> RobustGuard<'a, Valves, P> {
    match result {
        Ok(valves) => valves,
        Err(LockError::OwnerDied(mut died)) => {
            // The inflow is stored first: it is right.
            died.outflow = 100 - died.inflow;
            died.make_consistent()
        }
        Err(error) => panic!("the valves: {error}"),
    }
}

fn with_valves<R>(plant: Pin<&Plant>, step: impl FnOnce(&mut Valves) -> R) -> R {
    match plant.is_plain {
        true => step(&mut taken(plant.plain().lock())),
        false => step(&mut taken(plant.with_ceiling().lock())),
    }
}

/// Uses the processor for so long.
fn compute(how_long: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < how_long {
        std::hint::spin_loop();
    }
}

/// A reading: what was measured, and when.
fn sample(region: &Region, plant: &Plant) -> Result<(), Box<dyn Error>> {
    let queue = Queue::open(region, "readings")?;
    let alarms = queue.with_priority(Priority::new(1).ok_or("a priority")?);
    for number in 0..READINGS {
        std::thread::sleep(PERIOD);
        let value = number * 37 % 100;
        let mut reading = [0; 16];
        reading[..8].copy_from_slice(&value.to_le_bytes());
        reading[8..].copy_from_slice(&Deadline::now().as_nanoseconds().to_le_bytes());
        let queue = if value >= ALARM { &alarms } else { &queue };
        queue.send(&reading)?;
    }
    while !queue.is_drained()? {
        std::thread::sleep(PERIOD);
    }
    plant.is_over.store(true, Relaxed);
    Ok(queue.delete()?)
}

fn control(region: &Region, plant: &Plant) -> Result<(), Box<dyn Error>> {
    let queue = Queue::open(region, "readings")?;
    let mut reading = [0; 16];
    loop {
        match queue.receive(&mut reading) {
            Ok(_) => {}
            Err(ReceiveError::Deleted) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let word = |at: usize| -> Result<u64, std::array::TryFromSliceError> {
            Ok(u64::from_le_bytes(reading[at..at + 8].try_into()?))
        };
        let (value, when) = (word(0)?, word(8)?);
        with_valves(region.pin(plant), |valves| {
            valves.inflow = value;
            valves.outflow = 100 - value;
        });
        let took = Deadline::now().as_nanoseconds() - when;
        plant.longest.fetch_max(took, Relaxed);
        plant.handled.fetch_add(1, Relaxed);
        plant.alarms.fetch_add(u64::from(value >= ALARM), Relaxed);
    }
}

fn compress(_: &Region, plant: &Plant) -> Result<(), Box<dyn Error>> {
    while !plant.is_over.load(Relaxed) {
        compute(COMPRESSION);
        std::thread::sleep(COMPRESSION);
    }
    Ok(())
}

fn display(region: &Region, plant: &Plant) -> Result<(), Box<dyn Error>> {
    while !plant.is_over.load(Relaxed) {
        let sum = with_valves(region.pin(plant), |valves| {
            compute(DRAWING);
            valves.inflow + valves.outflow
        });
        assert_eq!(sum, 100);
        plant.drawn.fetch_add(1, Relaxed);
        std::thread::sleep(DRAWING);
    }
    Ok(())
}

fn ended(result: Result<(), Box<dyn Error>>) -> i32 {
    result.map_or_else(
        |error| {
            eprintln!("{error}");
            1
        },
        |()| 0,
    )
}

type Task = (&'static str, i32, fn(&Region, &Plant) -> i32);

const TASKS: [Task; 4] = [
    ("controller", CONTROLLER, |r, p| ended(control(r, p))),
    ("display", DISPLAY, |r, p| ended(display(r, p))),
    ("compressor", COMPRESSOR, |r, p| ended(compress(r, p))),
    ("sampler", SAMPLER, |r, p| ended(sample(r, p))),
];

fn start(
    coprocs: &Coprocs,
    plant: &Plant,
    is_real_time: bool,
    (name, priority, run): Task,
) -> Result<Coproc, SpawnError> {
    let mut attributes = Attributes::new().name(name).affinity([0]).die_with_parent();
    if is_real_time {
        attributes = attributes.scheduling(Scheduling::Fifo { priority });
    }
    coprocs.spawn(run, plant, &attributes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let is_plain = std::env::args().nth(1).as_deref() == Some("--plain");
    let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
    // SAFETY: no static owns a descriptor, or anything in a region.
    let coprocs = unsafe { Coprocs::new(&region)? };
    Queue::create(&region, "readings", &QueueOptions::new(64, 16))?;
    let valves = || Valves {
        inflow: 0,
        outflow: 100,
    };
    let plant = region.object("plant", || Plant {
        with_ceiling: Mutex::robust_protect(CEILING, valves()),
        plain: Mutex::robust(valves()),
        is_plain,
        is_over: AtomicBool::new(false),
        handled: AtomicU64::new(0),
        alarms: AtomicU64::new(0),
        longest: AtomicU64::new(0),
        drawn: AtomicU64::new(0),
    })?;
    let nothing: Task = ("probe", SAMPLER, |_, _| 0);
    let probe = start(&coprocs, &plant, true, nothing);
    let is_real_time = match probe.map(Coproc::join) {
        Ok(_) => true,
        Err(error) => {
            println!("without real-time priorities: {error}");
            false
        }
    };
    let start = |task| start(&coprocs, &plant, is_real_time, task);
    for task in TASKS.map(start) {
        let task = task?;
        let name = task.name().to_owned();
        assert!(task.join()?.is_success(), "{name} failed");
    }
    println!(
        "{} readings, {} of them alarms; the longest time from a reading to the valves was {:.1} ms",
        plant.handled.load(Relaxed),
        plant.alarms.load(Relaxed),
        plant.longest.load(Relaxed) as f64 / 1e6,
    );
    assert!(plant.drawn.load(Relaxed) > 0);
    Ok(())
}
