//! Tasks that repeat one small operation for a while.
//!
//! They are threads, and begin together. If there are enough CPUs, each has its own, as in RTEMS; else the scheduler
//! places them. (With free placement two tasks could share one CPU for a window, and would neither scale nor contend.)
//! Each task reads the clock itself, once in so many operations: a real-time task that waited to be notified of the end
//! would keep the CPU from the task that notifies.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::c_int;

use super::super::start::Start;
use crate::machine;
use crate::measure::{EACH, Sample};
use crate::peers::{enter_fifo, pin_to};

/// The operations between two readings of the clock.
const BATCH: u32 = 64;

/// The tasks.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskSet {
    pub(super) tasks: u32,
    /// Their priority in SCHED_FIFO, if they run in it.
    pub(super) priority: Option<c_int>,
    pub(super) window: Duration,
}

/// The work of the tasks.
pub(super) trait Work: Sync {
    /// A task's own state.
    type Task<'a>
    where
        Self: 'a;

    /// Prepares a task, on its thread.
    fn enter(&self, number: usize) -> io::Result<Self::Task<'_>>;

    /// One step, counted.
    fn step(&self, task: &mut Self::Task<'_>, tally: &mut Tally) -> io::Result<()>;

    /// Whether the first task waits for the others' operations, and ends after them.
    fn first_serves(&self) -> bool {
        false
    }

    /// Ends a wait of the first task.
    fn release(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The results of a task.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) operations: u64,
    /// For the first task, if the others send to it: how many times it received.
    pub(super) received: u64,
    /// How many sends failed for lack of room.
    pub(super) refused: u64,
}

/// All of `task_set` does `work`; returns operations per second, and the further counts.
pub(super) fn measure<W: Work>(work: &W, task_set: TaskSet) -> io::Result<Sample> {
    let (tallies, elapsed) = run(work, task_set)?;
    let seconds = elapsed.as_secs_f64();
    let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>() as f64;
    let operations = sum(|tally| tally.operations);
    let each = tallies
        .iter()
        .map(|tally| tally.operations as f64 / seconds);
    let rates = each.clone().skip(usize::from(work.first_serves()));
    let mut extra = vec![
        ("task_min_ops", rates.clone().fold(f64::INFINITY, f64::min)),
        ("task_max_ops", rates.fold(0.0, f64::max)),
    ];
    extra.extend(each.map(|rate| (EACH, rate)));
    if work.first_serves() {
        let per_1000 = |count: f64| 1000.0 * count / operations.max(1.0);
        extra.push(("received_per_1000", per_1000(sum(|tally| tally.received))));
        extra.push(("full_per_1000", per_1000(sum(|tally| tally.refused))));
    }
    Ok(Sample {
        figure: operations / seconds,
        extra,
        timed: None,
    })
}

/// The results of each task, and the time from their start to the end of the last.
pub(super) fn run<W: Work>(work: &W, task_set: TaskSet) -> io::Result<(Vec<Tally>, Duration)> {
    let tasks = task_set.tasks as usize;
    let cpus = machine::cpus();
    let (start, begun) = (Start::default(), OnceLock::new());
    // Set when all others have ended: the first task has nothing more to wait for.
    let alone = AtomicBool::new(false);

    let life = |number: usize| {
        let enter = || {
            if tasks <= cpus.len() {
                pin_to(cpus[number])?;
            }
            if let Some(priority) = task_set.priority {
                enter_fifo(priority)?;
            }
            work.enter(number)
        };
        let mut task = enter().inspect_err(|_| start.give_up())?;
        start.wait_for(tasks)?;
        let begun = *begun.get_or_init(Instant::now);
        let mut tally = Tally::default();
        if number == 0 && work.first_serves() {
            // At least once, like the others, however late it starts: messages that they left, or `release`, end the
            // wait.
            while {
                work.step(&mut task, &mut tally)?;
                // Relaxed: it only ends the loop; `release` comes after it.
                !alone.load(Ordering::Relaxed)
            } {}
        } else {
            live(work, &mut task, &mut tally, begun + task_set.window)?;
        }
        Ok((tally, begun.elapsed()))
    };
    let life = &life;
    let joined = |thread: thread::ScopedJoinHandle<'_, io::Result<(Tally, Duration)>>| {
        let panicked = |_| Err(io::Error::other("a task panicked"));
        thread.join().unwrap_or_else(panicked)
    };
    let ended = thread::scope(|scope| {
        let spawn = |number| {
            let spawned = thread::Builder::new().spawn_scoped(scope, move || life(number));
            spawned.inspect_err(|_| start.give_up())
        };
        let threads: Vec<_> = (0..tasks).map(spawn).collect::<io::Result<_>>()?;
        let mut threads = threads.into_iter();
        let first = threads.next();
        let others: Vec<_> = threads.map(joined).collect();
        alone.store(true, Ordering::Relaxed);
        work.release()?;
        let all = first.map(joined).into_iter().chain(others);
        all.collect::<io::Result<Vec<_>>>()
    })?;
    let elapsed = ended.iter().map(|(_, time)| *time).max();
    let tallies = ended.into_iter().map(|(tally, _)| tally).collect();
    Ok((tallies, elapsed.unwrap_or_default()))
}

/// A task's steps until `end`, at least one batch. Kept out of line, so that the loop's code does not depend on what
/// surrounds it.
#[inline(never)]
fn live<W: Work>(
    work: &W,
    task: &mut W::Task<'_>,
    tally: &mut Tally,
    end: Instant,
) -> io::Result<()> {
    // A local copy, so that the counts are kept in registers.
    let mut counted = *tally;
    while {
        for _ in 0..BATCH {
            work.step(task, &mut counted)?;
        }
        Instant::now() < end
    } {}
    *tally = counted;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const TASK_SET: TaskSet = TaskSet {
        tasks: 3,
        priority: None,
        window: Duration::from_millis(1),
    };

    /// Counts the tasks that have entered; the task with the given number cannot begin, or fails later.
    struct Counting {
        stranger: Option<usize>,
        failing: Option<usize>,
        first_serves: bool,
        steps: AtomicU64,
    }

    impl Work for Counting {
        type Task<'a> = usize;

        fn enter(&self, number: usize) -> io::Result<usize> {
            match self.stranger == Some(number) {
                true => Err(io::ErrorKind::Unsupported.into()),
                false => Ok(number),
            }
        }

        fn step(&self, task: &mut usize, tally: &mut Tally) -> io::Result<()> {
            if self.failing == Some(*task) {
                return Err(io::Error::other("on purpose"));
            }
            if self.first_serves && *task == 0 {
                tally.received += 1;
            } else {
                tally.operations += 1;
                self.steps.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }

        fn first_serves(&self) -> bool {
            self.first_serves
        }
    }

    fn work(first_serves: bool) -> Counting {
        Counting {
            stranger: None,
            failing: None,
            first_serves,
            steps: AtomicU64::new(0),
        }
    }

    #[test]
    fn every_step_of_every_task_is_counted() {
        for first_serves in [false, true] {
            let work = work(first_serves);
            let (tallies, elapsed) = run(&work, TASK_SET).unwrap();
            let counted: u64 = tallies.iter().map(|tally| tally.operations).sum();
            assert_eq!(counted, work.steps.load(Ordering::Relaxed));
            assert!(elapsed >= TASK_SET.window);
            assert_eq!(tallies[0].operations == 0, first_serves);
            assert!(tallies[1..].iter().all(|tally| tally.operations > 0));
        }
    }

    #[test]
    fn a_task_that_cannot_begin_ends_the_run() {
        for stranger in 0..3 {
            for first_serves in [false, true] {
                let work = Counting {
                    stranger: Some(stranger),
                    ..work(first_serves)
                };
                assert!(measure(&work, TASK_SET).is_err());
                assert_eq!(work.steps.load(Ordering::Relaxed), 0);
            }
        }
    }

    #[test]
    fn a_task_that_fails_is_reported() {
        for failing in 0..3 {
            for first_serves in [false, true] {
                let work = Counting {
                    failing: Some(failing),
                    ..work(first_serves)
                };
                let error = measure(&work, TASK_SET).err().unwrap();
                assert_eq!(error.to_string(), "on purpose");
            }
        }
    }
}
