//! Regions with many tasks or objects, many regions, and what is measured in them.
//!
//! Each is made for a sample and ends with it: `survey` finds all regions, and would find those of the other sizes.
#![allow(unsafe_code)]

use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex};
use latchwork::region::{Region, RegionOptions, inspect};
use latchwork::semaphore::{CountingSemaphore, Discipline};

use crate::measure::{Pace, Sample, Sampler};
use crate::peers::cpu_time;
use crate::peers::process::Child;

/// Room for the measuring thread, its child, and threads that are still leaving.
const SPARE_TASKS: u32 = 16;
/// A thread that only sleeps needs little.
const STACK_BYTES: usize = 64 << 10;
/// The time within which a task that is about to sleep does so.
const SETTLING: Duration = Duration::from_millis(3);
/// The time after which waiters sleep as they go on to do.
const FIRST_SLEEPS: Duration = Duration::from_millis(500);
/// Several of a waiter's naps.
const NAPS: Duration = Duration::from_secs(2);
/// The deaths of one sample.
const DEATHS: u32 = 3;

/// A region with this many tasks.
struct Crowd {
    region: Region,
    /// Dropped to let the threads end.
    stay: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn new(tasks: u32) -> io::Result<Self> {
        let most = u16::try_from(tasks + SPARE_TASKS).map_err(io::Error::other)?;
        let region = region(64 << 20, most, 64)?;
        let mut crowd = Self {
            region,
            stay: Vec::new(),
            threads: Vec::new(),
        };
        let (joined, all_joined) = channel();
        for _ in 0..tasks {
            let (stay, until) = channel();
            let (region, joined) = (crowd.region.clone(), joined.clone());
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            let body = move || member(&region, &joined, &until);
            crowd.threads.push(thread.spawn(body)?);
            crowd.stay.push(stay);
        }
        drop(joined);
        for _ in 0..tasks {
            let result: Result<(), String> = all_joined.recv().map_err(io::Error::other)?;
            result.map_err(io::Error::other)?;
        }
        Ok(crowd)
    }
}

/// A task that only sleeps, elsewhere.
fn member(region: &Region, joined: &Sender<Result<(), String>>, until: &Receiver<()>) {
    let result = region
        .join("one of many")
        .map_err(|error| error.to_string());
    if joined.send(result).is_ok() {
        let _ = until.recv();
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stay.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn region(bytes: u64, tasks: u16, names: u32) -> io::Result<Region> {
    RegionOptions::new()
        .max_bytes(bytes)
        .max_tasks(tasks)
        .max_names(names)
        .label("bench scale")
        .create_anonymous()
        .map_err(io::Error::other)
}

/// How a case is measured: at this size, in samples of this length.
pub(super) type Make = fn(u32, Duration) -> Sampler;

fn sampler(mut measure: impl FnMut() -> io::Result<f64> + 'static) -> Sampler {
    Box::new(move || Ok(Sample::from(measure()?)))
}

pub(super) fn join_and_leave(tasks: u32, length: Duration) -> Sampler {
    let mut pace = Pace::new(length);
    sampler(move || {
        let crowd = Crowd::new(tasks)?;
        pace.ns_per_call(|| {
            crowd.region.join("visitor").map_err(io::Error::other)?;
            crowd.region.clone().detach().map_err(io::Error::other)
        })
    })
}

pub(super) fn sweep(tasks: u32, _: Duration) -> Sampler {
    sampler(move || {
        let crowd = Crowd::new(tasks)?;
        // This thread joins first: joining sweeps, too.
        crowd.region.join("sweeper").map_err(io::Error::other)?;
        mean(|| {
            let child = joined_child(&crowd.region, || Ok(()))?;
            child.kill();
            drop(child);
            let begun = Instant::now();
            let swept = crowd.region.sweep().map_err(io::Error::other)?;
            let elapsed = begun.elapsed();
            match swept.dead.len() {
                1 => Ok(elapsed),
                dead => Err(io::Error::other(format!(
                    "a sweep settled {dead} deaths, not 1"
                ))),
            }
        })
    })
}

pub(super) fn recovery(tasks: u32, _: Duration) -> Sampler {
    sampler(move || {
        let crowd = Crowd::new(tasks)?;
        let lock = crowd.region.object("lock", || Mutex::in_region(0_u64));
        let lock: &Mutex<u64, InRegion> = lock.map_err(io::Error::other)?.get_ref();
        mean(|| {
            let child = joined_child(&crowd.region, || match lock.lock() {
                Ok(guard) => {
                    core::mem::forget(guard);
                    Ok(())
                }
                Err(error) => Err(io::Error::other(error.to_string())),
            })?;
            thread::scope(|scope| {
                let waiter = scope.spawn(|| wait_for_dead_owner(lock));
                thread::sleep(SETTLING);
                let begun = Instant::now();
                child.kill();
                let ended = waiter.join();
                let ended =
                    ended.unwrap_or_else(|_| Err(io::Error::other("the waiter panicked")))?;
                Ok(ended.duration_since(begun))
            })
        })
    })
}

/// Processor time of one waiter in a second, in microseconds, while so many wait for one lock.
pub(super) fn asleep(tasks: u32, _: Duration) -> Sampler {
    sampler(move || {
        let most = u16::try_from(tasks + SPARE_TASKS).map_err(io::Error::other)?;
        let region = region(64 << 20, most, 64)?;
        let lock = region.object("lock", || Mutex::in_region(0_u64));
        let lock: &Mutex<u64, InRegion> = lock.map_err(io::Error::other)?.get_ref();
        let held = lock
            .lock()
            .map_err(|error| io::Error::other(error.to_string()))?;
        let (begun, all_begun) = channel();
        thread::scope(|scope| {
            // Dropped before the scope waits for the threads, whatever happens.
            let _held = held;
            for _ in 0..tasks {
                let begun = begun.clone();
                let thread = thread::Builder::new().stack_size(STACK_BYTES);
                thread.spawn_scoped(scope, move || begun.send(()).map(|()| drop(lock.lock())))?;
            }
            for _ in 0..tasks {
                all_begun.recv().map_err(io::Error::other)?;
            }
            thread::sleep(FIRST_SLEEPS);
            let before = cpu_time();
            thread::sleep(NAPS);
            let used = (cpu_time() - before).as_nanos() as f64 / 1000.0;
            Ok(used / NAPS.as_secs_f64() / f64::from(tasks))
        })
    })
}

/// Returns when it had the lock.
fn wait_for_dead_owner(lock: &Mutex<u64, InRegion>) -> io::Result<Instant> {
    let result = lock.lock();
    let at = Instant::now();
    match result {
        Err(LockError::OwnerDied(died)) => {
            *died.make_consistent() += 1;
            Ok(at)
        }
        Ok(_) => Err(io::Error::other("the owner's death was not reported")),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

pub(super) fn survey_tasks(tasks: u32, length: Duration) -> Sampler {
    let mut pace = Pace::new(length);
    sampler(move || {
        let _crowd = Crowd::new(tasks)?;
        survey(&mut pace)
    })
}

pub(super) fn survey_objects(objects: u32, length: Duration) -> Sampler {
    let mut pace = Pace::new(length);
    sampler(move || {
        let _region = full_region(objects)?;
        survey(&mut pace)
    })
}

/// In microseconds.
fn survey(pace: &mut Pace) -> io::Result<f64> {
    let nanoseconds = pace.ns_per_call(|| match inspect::survey().regions.is_empty() {
        true => Err(io::Error::other("the survey found no region")),
        false => Ok(()),
    })?;
    Ok(nanoseconds / 1000.0)
}

pub(super) fn find(objects: u32, length: Duration) -> Sampler {
    let mut pace = Pace::new(length);
    let mut number = 0;
    sampler(move || {
        let region = full_region(objects)?;
        pace.ns_per_call(|| {
            // A prime, so that all are looked up, in no order.
            number = (number + 7919) % objects;
            let found: Pin<&u64> = region.find(&name(number)).map_err(io::Error::other)?;
            match *found == u64::from(number) {
                true => Ok(()),
                false => Err(io::Error::other("a name led to another object")),
            }
        })
    })
}

pub(super) fn make_and_remove(objects: u32, length: Duration) -> Sampler {
    let mut pace = Pace::new(length);
    sampler(move || {
        let region = full_region(objects)?;
        pace.ns_per_call(|| {
            let made = region.object("one more", || 0_u64);
            made.map_err(io::Error::other)?;
            // SAFETY: no other thread knows the object.
            unsafe { region.remove::<u64>("one more") }.map_err(io::Error::other)
        })
    })
}

pub(super) fn make_semaphore(objects: u32, length: Duration) -> Sampler {
    let mut pace = Pace::new(length);
    sampler(move || {
        let region = full_region(objects)?;
        pace.ns_per_call(|| {
            let semaphore = CountingSemaphore::create(&region, "one more", 1, Discipline::Fifo);
            let deleted = semaphore.map_err(io::Error::other)?.delete();
            deleted.map_err(io::Error::other)
        })
    })
}

pub(super) fn make_region(regions: u32, length: Duration) -> Sampler {
    let mut pace = Pace::new(length);
    sampler(move || {
        let small = || region(1 << 20, 8, 8);
        let _others = (0..regions)
            .map(|_| small())
            .collect::<io::Result<Vec<Region>>>()?;
        let nanoseconds = pace.ns_per_call(|| small().map(drop))?;
        Ok(nanoseconds / 1000.0)
    })
}

fn name(number: u32) -> String {
    format!("object {number}")
}

/// A region with this many named objects, whose directory is half full.
fn full_region(objects: u32) -> io::Result<Region> {
    let bytes = u64::from(objects) * 64 + (16 << 20);
    let region = region(bytes, 16, 2 * objects)?;
    for number in 0..objects {
        let made = region.object(&name(number), || u64::from(number));
        made.map_err(io::Error::other)?;
    }
    Ok(region)
}

/// The mean of some durations, in microseconds.
fn mean(mut measure: impl FnMut() -> io::Result<Duration>) -> io::Result<f64> {
    let mut sum = Duration::ZERO;
    for _ in 0..DEATHS {
        sum += measure()?;
    }
    Ok((sum / DEATHS).as_nanos() as f64 / 1000.0)
}

/// A child that has joined the region and done `prepare`, and sleeps until it is killed.
fn joined_child(region: &Region, prepare: impl FnOnce() -> io::Result<()>) -> io::Result<Child> {
    let (reader, writer) = io::pipe()?;
    let child = Child::fork(|| {
        let ready = region
            .join("to be killed")
            .map_err(io::Error::other)
            .and_then(|()| prepare());
        let word = if ready.is_ok() { b"1" } else { b"0" };
        if io::Write::write_all(&mut &writer, word).is_err() {
            return 1;
        }
        loop {
            thread::park();
        }
    })?;
    drop(writer);
    let mut word = [0];
    io::Read::read_exact(&mut &reader, &mut word)?;
    match &word {
        b"1" => Ok(child),
        _ => Err(io::Error::other("the child could not join the region")),
    }
}
