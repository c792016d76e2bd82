//! Tasks that want one lock, time and again: what `futex-lock` and `futex-rwlock` have in common.
//!
//! The tasks are threads, placed by the scheduler, and begin together. After a moment of warming up
//! one *window* is counted: a second, where fairness is to mean something, or less with `--quick`.
//! The protected section and the time between sections are pause instructions, and are part of the
//! figure: nothing is subtracted. Waits are timed in a run of its own, since reading the clock twice
//! would be a good part of a section.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::histogram::Durations;
use crate::machine;
use crate::measure::Sample;
use crate::peers::voluntary_switches;
use crate::plan::Plan;
use crate::result::Warning;

/// Task counts, of which the last ones oversubscribe most machines.
const TASKS: [u32; 6] = [1, 2, 4, 8, 16, 36];
const QUICK_TASKS: [u32; 2] = [2, 8];

/// Pauses from one protected section to the next.
const BETWEEN: u32 = 10;

/// The load at which everything else is varied.
pub(super) const USUAL_LOAD: u32 = 10;

/// The task counts to measure: the user's, or Long's and smaller ones.
pub(super) fn tasks(plan: &Plan, warnings: &mut Vec<Warning>) -> Vec<u32> {
    let own: &[u32] = if plan.quick { &QUICK_TASKS } else { &TASKS };
    let tasks = if plan.tasks.is_empty() {
        own
    } else {
        &plan.tasks
    };
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

/// What one task does beside locking.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Pauses of a protected section.
    pub(super) load: u32,
    /// How many of 1,024 sections sleep for a microsecond instead.
    pub(super) sleeps: u32,
}

/// A task, as it goes from section to section.
pub(super) struct Worker<W> {
    work: Work,
    dice: u32,
    slept: u64,
    watch: W,
}

impl<W: Watch> Worker<W> {
    fn new(work: Work, number: u32, watch: W) -> Self {
        Self {
            work,
            dice: number.wrapping_mul(0x9e37_79b9) | 1,
            slept: 0,
            watch,
        }
    }

    /// A number below `sides`, which is at most 65,536; another one in each section.
    #[inline]
    pub(super) fn roll(&mut self, sides: u32) -> u32 {
        self.dice = self
            .dice
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        // The upper bits: the lower ones have short periods.
        ((self.dice >> 16) * sides) >> 16
    }

    /// Calls `lock`, and looks at how long it takes.
    #[inline]
    pub(super) fn wait<T>(&mut self, lock: impl FnOnce() -> T) -> T {
        self.watch.time(lock)
    }

    /// What a protected section does.
    #[inline]
    pub(super) fn section(&mut self) {
        if self.work.sleeps > 0 && self.roll(1024) < self.work.sleeps {
            self.slept += 1;
            thread::sleep(Duration::from_micros(1));
        } else {
            pause(self.work.load);
        }
    }
}

#[inline]
fn pause(times: u32) {
    for _ in 0..times {
        std::hint::spin_loop();
    }
}

/// What looks at waits.
pub(super) trait Watch: Send {
    fn time<T>(&mut self, wait: impl FnOnce() -> T) -> T;
}

/// Nobody looks.
struct Unwatched;

impl Watch for Unwatched {
    #[inline]
    fn time<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        wait()
    }
}

impl Watch for Durations {
    #[inline]
    fn time<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = wait();
        self.add(begun.elapsed().as_nanos() as u64);
        result
    }
}

/// What all tasks do under a lock.
pub(super) trait Turn: Sync {
    /// Waits for the lock, does a section's work, unlocks.
    fn turn<W: Watch>(&self, worker: &mut Worker<W>);
}

/// Measures `turn` in so many tasks: operations in a second, and Long's other columns.
pub(super) fn measure(
    turn: &impl Turn,
    tasks: u32,
    work: Work,
    window: Duration,
) -> io::Result<Sample> {
    let counted = run(turn, tasks, work, window, || Ok(Unwatched))?;
    let mut sample = counted.sample();

    let watched = run(turn, tasks, work, window / 2, Durations::new)?;
    let mut waits = Durations::new()?;
    for task in &watched.tasks {
        waits.merge(&task.watch)?;
    }
    sample.extra.extend([
        ("wait_p50_ns", waits.percentile(50.0)),
        ("wait_p99_ns", waits.percentile(99.0)),
        ("longest_wait_us", waits.longest() / 1000.0),
    ]);
    sample.extra.extend(waits.ranges());
    Ok(sample)
}

/// How many operations `turn` makes, unmeasured: for locks that count.
pub(super) fn operations(
    turn: &impl Turn,
    tasks: u32,
    work: Work,
    window: Duration,
) -> io::Result<u64> {
    let counted = run(turn, tasks, work, window, || Ok(Unwatched))?;
    Ok(counted.tasks.iter().map(|task| task.operations).sum())
}

/// What came out of a run.
struct Counted<W> {
    window: Duration,
    tasks: Vec<Counts<W>>,
}

struct Counts<W> {
    /// Operations in the window.
    in_window: u64,
    /// Operations from begin to end, and how often the task went to sleep in them.
    operations: u64,
    sleeps: u64,
    watch: W,
}

impl<W> Counted<W> {
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
        // As perf's: the deviation of the average, by the deviation of the tasks.
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
        Sample {
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
        }
    }
}

/// A task's count, in a cache line of its own, or two, since they come in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Tally(AtomicU64);

/// Whether the tasks may begin, or are not to.
#[derive(Default)]
struct Gate {
    open: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    fn decide(&self, go: bool) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(go);
        self.changed.notify_all();
    }

    fn pass(&self) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *open {
                Some(go) => return go,
                None => {
                    open = self
                        .changed
                        .wait(open)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

fn run<W: Watch>(
    turn: &impl Turn,
    tasks: u32,
    work: Work,
    window: Duration,
    watch: impl Fn() -> io::Result<W>,
) -> io::Result<Counted<W>> {
    let tallies: Vec<Tally> = (0..tasks).map(|_| Tally::default()).collect();
    let (gate, over) = (Gate::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let spawn = |(number, tally)| {
            let mut worker = Worker::new(work, number, watch()?);
            let (gate, over) = (&gate, &over);
            thread::Builder::new().spawn_scoped(scope, move || {
                if !gate.pass() {
                    return None;
                }
                let before = voluntary_switches();
                let operations = live(turn, &mut worker, tally, over);
                let slept = voluntary_switches() - before;
                Some((operations, slept.saturating_sub(worker.slept), worker.watch))
            })
        };
        let spawned: io::Result<Vec<_>> = (0..).zip(&tallies).map(spawn).collect();
        // A task that could not be made must not leave the others waiting.
        gate.decide(spawned.is_ok());
        let threads = spawned?;

        let counts = || -> Vec<u64> {
            // Relaxed: a count says nothing of anything else.
            let count = |tally: &Tally| tally.0.load(Ordering::Relaxed);
            tallies.iter().map(count).collect()
        };
        thread::sleep(window / 8);
        let (begun, first) = (Instant::now(), counts());
        thread::sleep(window);
        let (window, last) = (begun.elapsed(), counts());
        // Relaxed: it only ends loops.
        over.store(true, Ordering::Relaxed);

        let mut counted = Vec::new();
        for (thread, (first, last)) in threads.into_iter().zip(first.into_iter().zip(last)) {
            let ended = thread.join().ok().flatten();
            let (operations, sleeps, watch) =
                ended.ok_or_else(|| io::Error::other("a task panicked"))?;
            counted.push(Counts {
                in_window: last - first,
                operations,
                sleeps,
                watch,
            });
        }
        Ok(Counted {
            window,
            tasks: counted,
        })
    })
}

/// A task's operations until it is `over`. Kept out of line, so that the loop's code does not depend
/// on what surrounds it.
#[inline(never)]
fn live<W: Watch>(
    turn: &impl Turn,
    worker: &mut Worker<W>,
    tally: &Tally,
    over: &AtomicBool,
) -> u64 {
    let mut operations = 0;
    // Relaxed, here and below: see `run`.
    while !over.load(Ordering::Relaxed) {
        turn.turn(worker);
        operations += 1;
        tally.0.store(operations, Ordering::Relaxed);
        pause(BETWEEN);
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_longs_columns() {
        let of = |in_window| Counts {
            in_window,
            operations: 1000,
            sleeps: 1,
            watch: (),
        };
        let sample = Counted {
            window: Duration::from_millis(500),
            tasks: vec![of(100), of(300)],
        }
        .sample();
        assert_eq!(sample.figure, 800.0);
        let extra = |wanted| {
            let mut extra = sample.extra.iter();
            extra.find(|(name, _)| *name == wanted).unwrap().1
        };
        assert_eq!(extra("window_ms"), 500.0);
        assert_eq!(extra("task_min_ops"), 200.0);
        assert_eq!(extra("task_avg_ops"), 400.0);
        assert_eq!(extra("task_max_ops"), 600.0);
        assert_eq!(extra("slowest_pct"), 50.0);
        assert_eq!(extra("stddev_pct"), 50.0);
        assert_eq!(extra("sleeps_per_1000"), 1.0);
    }

    #[test]
    fn dice_fall_below_their_sides_and_evenly() {
        let work = Work { load: 0, sleeps: 0 };
        let mut worker = Worker::new(work, 3, Unwatched);
        let mut fallen = [0_u32; 4];
        for _ in 0..4000 {
            fallen[worker.roll(4) as usize] += 1;
        }
        assert!(
            fallen.iter().all(|times| (900..1100).contains(times)),
            "{fallen:?}"
        );
    }

    #[test]
    fn a_task_that_panics_is_reported_and_ends_nothing_else() {
        struct Panicking(AtomicBool);
        impl Turn for Panicking {
            fn turn<W: Watch>(&self, worker: &mut Worker<W>) {
                worker.section();
                // Relaxed: whoever is first.
                assert!(self.0.swap(true, Ordering::Relaxed), "on purpose");
            }
        }
        let work = Work { load: 1, sleeps: 0 };
        let turn = Panicking(AtomicBool::new(false));
        let run = measure(&turn, 3, work, Duration::from_millis(1));
        assert_eq!(run.err().unwrap().to_string(), "a task panicked");
    }
}
