//! Tasks that acquire one lock again and again: the common part of `futex-lock` and `futex-rwlock`.
//!
//! The tasks are threads or forked processes, placed by the scheduler, and begin together. After a short warm-up, the
//! operations of one *window* are counted: a second in `futex-rwlock`, half of it in `futex-lock`, less with `--quick`;
//! fairness needs such a time to be meaningful. The critical section and the time between sections consist of pause
//! instructions, and are part of the figure: nothing is subtracted. Waits are timed in a separate run, since reading
//! the clock twice would take as long as a large part of a section.
//!
//! *Slow paths* of Latchwork's locks, per 1,000 operations: `slow_locks_per_1000`, lock calls that did not succeed by their
//! free path; `sleep_calls_per_1000` and `wake_calls_per_1000`, system calls to sleep and to wake others;
//! `inherit_calls_per_1000`, system calls of the locks whose slow path is the kernel's, to acquire or to release. Each
//! thread counts them as it makes the calls, whichever lock it uses, so that a free path costs nothing and all runs have
//! them. Of other libraries' locks only the kernel's count of sleeps is known.

#[cfg(test)]
mod tests;
mod worker;

use std::fs::File;
use std::io::{self, Seek};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use latchwork::SlowPaths;
use rustix::fs::{MemfdFlags, memfd_create};

use super::start::Start;
use crate::histogram::{Durations, Timed};
use crate::machine;
use crate::measure::Sample;
use crate::peers::process::{self, Child};
use crate::peers::{SharedPage, cpu_time, voluntary_switches};
use crate::plan::Plan;
use crate::result::{Kind, Unit, Warning};

use worker::{Stopwatch, Untimed, pause};
pub(super) use worker::{Turn, WaitTimer, Work, Worker};

/// Task counts, of which the last ones oversubscribe most machines.
const TASKS: [u32; 6] = [1, 2, 4, 8, 16, 36];
const QUICK_TASKS: [u32; 2] = [2, 8];

/// Pauses between one critical section and the next.
const BETWEEN: u32 = 10;

/// The load at which everything else is varied.
pub(super) const USUAL_LOAD: u32 = 10;

/// So many of 1,024 sections sleep if all of them do.
pub(super) const EVERY_SECTION: u32 = 1024;

/// The task counts to measure: the user's, or Long's and smaller ones.
pub(super) fn tasks(plan: &Plan, warnings: &mut Vec<Warning>) -> Vec<u32> {
    let own: &[u32] = if plan.quick { &QUICK_TASKS } else { &TASKS };
    let tasks = plan.tasks_or(own);
    let cpus = machine::cpus().len();
    let most = tasks.iter().copied().max().unwrap_or(1);
    if most as usize > cpus {
        warnings.push(Warning::FewCpus {
            text: format!(
                "{cpus} CPUs: up to {most} tasks share them, so that most of them wait for a CPU, and \
                 not for the lock alone"
            ),
        });
    }
    tasks.to_vec()
}

/// The contending tasks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contenders {
    pub(super) kind: Kind,
    pub(super) tasks: u32,
}

/// Measures `turn` in all tasks: operations per second, and Long's further columns.
pub(super) fn measure<T: Turn>(
    turn: &T,
    contenders: Contenders,
    work: Work,
    window: Duration,
) -> io::Result<Sample> {
    let counted = run(turn, contenders, work, window, |_| Ok(Untimed))?;
    let mut sample = counted.sample();
    if T::OURS {
        sample.extra.extend(counted.slow_paths());
    }

    let log = |_| Ok(File::from(memfd_create("waits", MemfdFlags::CLOEXEC)?));
    let logs: Vec<File> = (0..contenders.tasks).map(log).collect::<io::Result<_>>()?;
    run(turn, contenders, work, window / 2, |task| {
        Ok(Stopwatch {
            waits: Durations::new()?,
            log: &logs[task],
        })
    })?;
    let mut waits = Durations::new()?;
    for mut log in logs {
        log.rewind()?;
        waits.merge_from(log)?;
    }
    sample.timed = Some(Timed {
        durations: waits,
        of: "wait",
        unit: Unit::Ns,
    });
    Ok(sample)
}

/// The number of operations of `turn`, without a measurement: for locks that count.
pub(super) fn operations(
    turn: &impl Turn,
    contenders: Contenders,
    work: Work,
    window: Duration,
) -> io::Result<u64> {
    let counted = run(turn, contenders, work, window, |_| Ok(Untimed))?;
    Ok(counted.tasks.iter().map(|task| task.operations).sum())
}

/// The result of a run.
struct Counted {
    window: Duration,
    /// The processor time of all tasks in the window, if it is counted for this process.
    cpu: Option<Duration>,
    tasks: Vec<Counts>,
}

struct Counts {
    /// Operations in the window.
    in_window: u64,
    /// Operations from start to end, and how many times the task went to sleep during them.
    operations: u64,
    sleeps: u64,
    /// What the slow paths of the task's locks did during them.
    slow_paths: SlowPaths,
}

impl Counted {
    fn sample(&self) -> Sample {
        let seconds = self.window.as_secs_f64();
        let rates: Vec<f64> = self
            .tasks
            .iter()
            .map(|task| task.in_window as f64 / seconds)
            .collect();
        let total: f64 = rates.iter().sum();
        let count = rates.len() as f64;
        let average = total / count;
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        // As perf computes it: the deviation of the average, from the deviation of the tasks.
        let squares: f64 = rates.iter().map(|rate| (rate - average).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0) / count).sqrt();
        let of_average = |rate: f64| {
            if average > 0.0 {
                100.0 * rate / average
            } else {
                0.0
            }
        };
        let operations: u64 = self.tasks.iter().map(|task| task.operations).sum();
        let sleeps: u64 = self.tasks.iter().map(|task| task.sleeps).sum();
        let of_cpu = |cpu: Duration| total * seconds / cpu.as_secs_f64().max(1e-6);
        let of_cpu = self.cpu.map(|cpu| ("ops_per_cpu_second", of_cpu(cpu)));
        let mut sample = Sample {
            figure: total,
            extra: vec![
                ("window_ms", seconds * 1000.0),
                ("task_min_ops", slowest),
                ("task_avg_ops", average),
                ("task_max_ops", fastest),
                ("slowest_pct", of_average(slowest)),
                ("stddev_pct", of_average(deviation)),
                (
                    "sleeps_per_1000",
                    1000.0 * sleeps as f64 / operations.max(1) as f64,
                ),
            ],
            timed: None,
        };
        sample.extra.extend(of_cpu);
        sample
    }

    /// What the slow paths of the lock did, per 1,000 operations.
    fn slow_paths(&self) -> [(&'static str, f64); 4] {
        let operations: u64 = self.tasks.iter().map(|task| task.operations).sum();
        let of = |count: fn(&SlowPaths) -> u64| {
            let sum: u64 = self.tasks.iter().map(|task| count(&task.slow_paths)).sum();
            1000.0 * sum as f64 / operations.max(1) as f64
        };
        [
            ("slow_locks_per_1000", of(|of| of.acquisitions)),
            ("sleep_calls_per_1000", of(|of| of.sleeps)),
            ("wake_calls_per_1000", of(|of| of.wakes)),
            ("inherit_calls_per_1000", of(|of| of.inheriting)),
        ]
    }
}

/// A task's counters, in memory of its own, so that tasks do not contend by counting.
#[derive(Default)]
struct Tally {
    operations: AtomicU64,
    /// How many times it went to sleep waiting; valid when it has ended.
    sleeps: AtomicU64,
    /// The fields of [`SlowPaths`], as `sleeps`.
    slow_paths: [AtomicU64; 4],
}

impl Tally {
    // Relaxed, here and below: read after this task has ended.
    fn leave_slow_paths(&self, of: SlowPaths) {
        let counts = [of.acquisitions, of.sleeps, of.wakes, of.inheriting];
        for (place, count) in self.slow_paths.iter().zip(counts) {
            place.store(count, Ordering::Relaxed);
        }
    }

    fn slow_paths(&self) -> SlowPaths {
        let [acquisitions, sleeps, wakes, inheriting] =
            [0, 1, 2, 3].map(|place| self.slow_paths[place].load(Ordering::Relaxed));
        SlowPaths {
            acquisitions,
            sleeps,
            wakes,
            inheriting,
        }
    }
}

/// When the tasks begin and end.
#[derive(Default)]
struct Times {
    start: Start,
    over: AtomicBool,
}

fn run<W: WaitTimer>(
    turn: &impl Turn,
    contenders: Contenders,
    work: Work,
    window: Duration,
    timer: impl Fn(usize) -> io::Result<W> + Sync,
) -> io::Result<Counted> {
    let tasks = contenders.tasks as usize;
    let times = SharedPage::new(Times::default())?;
    let tally = |_| SharedPage::new(Tally::default());
    let tallies: Vec<_> = (0..tasks).map(tally).collect::<io::Result<_>>()?;

    let life = |task: usize| {
        let begun = turn.begin().and_then(|()| timer(task));
        let timer = begun.inspect_err(|_| times.start.give_up())?;
        let mut worker = Worker::new(work, task as u32, timer);
        times.start.wait_for(tasks)?;
        let (before, paths_before) = (voluntary_switches(), SlowPaths::of_this_thread());
        live(turn, &mut worker, &tallies[task].operations, &times.over);
        let paths = SlowPaths::of_this_thread().since(paths_before);
        let slept = (voluntary_switches() - before).saturating_sub(worker.slept);
        // Relaxed: read after this task has ended.
        tallies[task].sleeps.store(slept, Ordering::Relaxed);
        tallies[task].leave_slow_paths(paths);
        worker.timer.leave()
    };
    let operations = || -> Vec<u64> {
        // Relaxed: nothing else depends on a count.
        let count = |tally: &SharedPage<Tally>| tally.operations.load(Ordering::Relaxed);
        tallies.iter().map(count).collect()
    };
    // Lets the tasks run, unless one is `lost` before it begins.
    let observe = |lost: &dyn Fn() -> bool| {
        times.start.see(tasks, lost)?;
        thread::sleep(window / 8);
        let (before, begun, first) = (cpu_time(), Instant::now(), operations());
        thread::sleep(window);
        let (window, last) = (begun.elapsed(), operations());
        let used = cpu_time().saturating_sub(before);
        // Relaxed: it only ends loops.
        times.over.store(true, Ordering::Relaxed);
        Ok((window, used, first, last))
    };

    // A task's own error takes precedence over the observed one.
    let observed: io::Result<_> = match contenders.kind {
        Kind::Threads => thread::scope(|scope| {
            let spawn = |task| {
                let spawned = thread::Builder::new().spawn_scoped(scope, move || life(task));
                spawned.inspect_err(|_| times.start.give_up())
            };
            let threads: Vec<_> = (0..tasks).map(spawn).collect::<io::Result<_>>()?;
            let observed = observe(&|| threads.iter().any(|thread| thread.is_finished()));
            for thread in threads {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a task panicked")))?;
            }
            observed
        }),
        Kind::Processes | Kind::Coprocs => {
            let fork = |task| Child::fork(|| i32::from(life(task).is_err()));
            let children: Vec<_> = (0..tasks).map(fork).collect::<io::Result<_>>()?;
            let observed = observe(&|| children.iter().any(Child::has_ended));
            process::wait_all(children)?;
            observed
        }
    };
    let (window, used, first, last) = observed?;
    let counts = |(tally, (first, last)): (&SharedPage<Tally>, (u64, u64))| Counts {
        in_window: last - first,
        // Relaxed, both: the task has ended.
        operations: tally.operations.load(Ordering::Relaxed),
        sleeps: tally.sleeps.load(Ordering::Relaxed),
        slow_paths: tally.slow_paths(),
    };
    let in_window = first.into_iter().zip(last);
    Ok(Counted {
        window,
        cpu: (contenders.kind == Kind::Threads).then_some(used),
        tasks: tallies.iter().zip(in_window).map(counts).collect(),
    })
}

/// A task's operations until it is `over`, at least one. Kept out of line, so that the loop's code does not depend on
/// what surrounds it.
#[inline(never)]
fn live<W: WaitTimer>(
    turn: &impl Turn,
    worker: &mut Worker<W>,
    tally: &AtomicU64,
    over: &AtomicBool,
) {
    let mut operations = 0;
    loop {
        turn.turn(worker);
        operations += 1;
        // Relaxed, both: see `run`.
        tally.store(operations, Ordering::Relaxed);
        if over.load(Ordering::Relaxed) {
            break;
        }
        pause(BETWEEN);
    }
}
