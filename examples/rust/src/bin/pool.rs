//! A pool of worker processes with a supervisor. Workers are killed at any moment, and one job crashes each worker that
//! gets it: no job is lost, none counts twice, and the crashing job is given up.
//!
//! `docs/examples/worker-pool.md` walks through it.
#![allow(unsafe_code)]

use latchwork::coproc::{
    Attributes, Coprocs, Event, Happening, Outcome, Restart, Signal, Spec, Supervisor,
};
use latchwork::mutex::{InRegion, Mutex, RegionGuard, in_region::LockError};
use latchwork::queue::{Queue, QueueOptions, ReceiveError, SendError};
use latchwork::region::{Region, RegionOptions};
use latchwork::time::Deadline;
use std::error::Error;
use std::time::Duration;

const JOBS: u32 = 120;
const NUMBERS: u32 = 5_000;
const WORKERS: usize = 3;
const KILLS: usize = 8;
/// The job that crashes its worker.
const BAD_JOB: u32 = 77;
/// A job is given up after so many workers have died with it.
const ATTEMPTS: u32 = 3;

/// No task has finished the job yet.
const OPEN: u32 = u32::MAX;
/// The job was given up.
const GIVEN_UP: u32 = u32::MAX - 1;

/// The result of each job. It is one word, which also says whether the job is done: no death leaves half of it, and a
/// job that is done again stores the same.
type Results = Mutex<[u32; JOBS as usize], InRegion>;
type Guard<'a> = RegionGuard<'a, [u32; JOBS as usize]>;

fn lock(results: &Results) -> Result<Guard<'_>, LockError<'_, [u32; JOBS as usize]>> {
    match results.lock() {
        // The last owner died. Each word is whole: there is nothing to repair.
        Err(LockError::OwnerDied(died)) => Ok(died.make_consistent()),
        other => other,
    }
}

/// The primes among the numbers of a job.
fn primes(job: u32) -> u32 {
    let is_prime = |n: &u32| {
        *n > 1
            && (2..)
                .take_while(|d| d * d <= *n)
                .all(|d| !n.is_multiple_of(d))
    };
    let numbers = job * NUMBERS..(job + 1) * NUMBERS;
    numbers.filter(is_prime).count().try_into().unwrap_or(OPEN)
}

/// A worker: holds each job until its result is stored.
fn work(region: &Region) -> Result<(), Box<dyn Error>> {
    let jobs = Queue::open(region, "jobs")?;
    let results = region.find::<Results>("results")?.get_ref();
    loop {
        let message = match jobs.receive_held() {
            Ok(message) => message,
            // There are no more jobs.
            Err(ReceiveError::Deleted) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let job = u32::from_le_bytes((*message).try_into()?);
        let result = match message.deliveries() {
            // So many workers have died with it: it is the job's fault.
            deliveries if deliveries > ATTEMPTS => GIVEN_UP,
            _ if job == BAD_JOB => std::process::abort(),
            _ => primes(job),
        };
        lock(results)?[job as usize] = result;
        // If this worker is killed before this line, another one gets the job, too, and stores the same.
        message.done();
    }
}

/// The entry of a worker's process.
fn worker(region: &Region, (): ()) -> i32 {
    match work(region) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("a worker: {error}");
            1
        }
    }
}

/// What the supervisor has seen.
#[derive(Default)]
struct Deaths {
    killed: usize,
    crashed: usize,
    restarts: usize,
}

impl Deaths {
    fn note(&mut self, event: &Event) {
        match &event.what {
            Happening::Ended(exit) => match exit.outcome {
                Outcome::Signalled { signal, .. } if signal == Signal::KILL.as_raw() => {
                    self.killed += 1
                }
                Outcome::Returned(0) => {}
                _ => self.crashed += 1,
            },
            Happening::Restarted { .. } => self.restarts += 1,
            Happening::Started { .. } => {}
            other => eprintln!("{}: {other:?}", event.name),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
    // SAFETY: no static owns a descriptor, or anything in a region.
    let coprocs = unsafe { Coprocs::new(&region)? };
    let jobs = Queue::create(&region, "jobs", &QueueOptions::new(16, 4))?;
    let results = region.object("results", || Results::in_region([OPEN; JOBS as usize]))?;
    let results = results.get_ref();

    let mut supervisor = Supervisor::new(coprocs);
    for number in 0..WORKERS {
        let name = format!("worker {number}");
        let attributes = Attributes::new().name(&name).core_size(0).die_with_parent();
        let spec = Spec::new(&name, move |coprocs| {
            coprocs.spawn_value(worker, (), &attributes)
        });
        let minute = Duration::from_secs(60);
        let spec = spec.restart(Restart::OnFailure).limit(20, minute);
        supervisor.add(spec.back_off(Duration::from_millis(1), Duration::from_millis(50)));
    }

    let (mut next, mut kills, mut deaths) = (0, 0, Deaths::default());
    loop {
        while next < JOBS {
            match jobs.try_send(&next.to_le_bytes()) {
                Ok(()) => next += 1,
                Err(SendError::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let soon = Deadline::after(Duration::from_millis(5));
        for event in supervisor.next_events(Some(soon)) {
            deaths.note(&event);
        }
        // Now and then a worker is killed, wherever it is.
        let done = lock(results)?.iter().filter(|r| **r != OPEN).count();
        if kills < KILLS && done > kills * JOBS as usize / KILLS {
            let name = format!("worker {}", kills % WORKERS);
            if let Some(worker) = supervisor.running(&name) {
                kills += usize::from(worker.kill(Signal::KILL).is_ok());
            }
        }
        if next == JOBS && kills == KILLS && jobs.is_drained()? {
            break;
        }
    }
    let again = jobs.redelivered();
    // The workers' next call returns `Deleted`, and they return.
    jobs.delete()?;
    for event in supervisor.run_until(None) {
        deaths.note(&event);
    }

    let results = lock(results)?;
    for (job, result) in (0..).zip(results.iter()) {
        let expected = if job == BAD_JOB {
            GIVEN_UP
        } else {
            primes(job)
        };
        assert_eq!(*result, expected, "job {job}");
    }
    println!(
        "{JOBS} jobs: {} done, {} given up",
        results.iter().filter(|result| **result < GIVEN_UP).count(),
        results.iter().filter(|result| **result == GIVEN_UP).count(),
    );
    println!(
        "{} workers killed, {} crashed, {} started again; {again} jobs delivered again",
        deaths.killed, deaths.crashed, deaths.restarts
    );
    Ok(())
}
