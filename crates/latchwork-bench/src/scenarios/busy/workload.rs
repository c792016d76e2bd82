//! What the tasks of a sample do, and what disturbs them.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::start::Start;
use crate::histogram::{Durations, Timed};
use crate::machine;
use crate::measure::{Case, Sample, Sampler};
use crate::peers::background::{Quota, Spinners};
use crate::peers::heap::{Heap, touched};
use crate::peers::locks::Visitor;
use crate::peers::{Lock, cpu_time, placed};
use crate::result::{Kind, Params, Unit, Variant};

/// In per cent of one processor.
pub(super) const QUOTA: u32 = 50;
/// Pauses in a critical section, and between two.
const LOAD: u32 = 20;
const BETWEEN: u32 = 100;
const BLOCK: usize = 1024;

/// The disturbances of a sample.
#[derive(Clone, Copy)]
pub(super) enum Background {
    Spinners(u32),
    Quota,
}

/// The number of tasks, the time, and the disturbance.
#[derive(Clone, Copy)]
pub(super) struct Workload {
    pub(super) tasks: u32,
    pub(super) window: Duration,
    pub(super) background: Background,
}

impl Visitor for Workload {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        Box::new(move || {
            let lock = placed(make()?)?;
            self.measure(&|run: &mut TaskRun<'_>| {
                let enlisted = L::enlist().inspect_err(|_| run.start.give_up())?;
                run.work(|| {
                    let mut held = lock.pin().lock();
                    *held = held.wrapping_add(1);
                    pause(LOAD);
                    Ok(())
                })?;
                drop(enlisted);
                Ok(())
            })
        })
    }
}

fn pause(times: u32) {
    for _ in 0..times {
        std::hint::spin_loop();
    }
}

/// A task's part of a sample.
pub(super) struct TaskRun<'a> {
    pub(super) start: &'a Start,
    participants: usize,
    over: &'a AtomicBool,
    durations: Durations,
}

impl TaskRun<'_> {
    /// Waits for the others, then repeats `once` until the end, at least once, and records the time of each.
    pub(super) fn work(&mut self, mut once: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        self.start.wait_for(self.participants)?;
        loop {
            let begun = Instant::now();
            once()?;
            self.durations.add(begun.elapsed().as_nanos() as u64);
            // Relaxed: nothing else is handed over.
            if self.over.load(Ordering::Relaxed) {
                return Ok(());
            }
            pause(BETWEEN);
        }
    }
}

impl Workload {
    pub(super) fn case(
        self,
        case: Variant,
        contestant: &'static str,
        base: &'static str,
        sampler: Sampler,
    ) -> Case {
        let (beside, quota_pct) = match self.background {
            Background::Spinners(count) => (Some(count), None),
            Background::Quota => (None, Some(QUOTA)),
        };
        let params = Params {
            tasks: Some(self.tasks),
            kind: Some(Kind::Threads),
            case: Some(case),
            beside,
            quota_pct,
            ..Params::default()
        };
        Case {
            contestant,
            group: params.clone(),
            params,
            is_base: contestant == base,
            unit: Unit::Ns,
            further: Vec::new(),
            sampler,
        }
    }

    pub(super) fn on_heap<H: Heap>(self, heap: H) -> Sampler {
        Box::new(move || {
            self.measure(&|run: &mut TaskRun<'_>| {
                run.work(|| {
                    let block = touched(&heap, BLOCK)?;
                    // SAFETY: the block was allocated from this heap with this size, and no other code knows it.
                    unsafe { heap.free(block, BLOCK) };
                    Ok(())
                })
            })
        })
    }

    pub(super) fn measure(
        self,
        task: &(dyn Fn(&mut TaskRun<'_>) -> io::Result<()> + Sync),
    ) -> io::Result<Sample> {
        // Both end with the sample, even if it fails.
        let (_spinners, _quota) = match self.background {
            Background::Spinners(count) => (Some(Spinners::start(count)?), None),
            Background::Quota => (None, Some(Quota::enter(QUOTA)?)),
        };
        let (start, over) = (Start::default(), AtomicBool::new(false));
        let participants = self.tasks as usize + 1;
        thread::scope(|scope| {
            let (start, over) = (&start, &over);
            let life = move || {
                let mut run = TaskRun {
                    start,
                    participants,
                    over,
                    durations: Durations::new().inspect_err(|_| start.give_up())?,
                };
                task(&mut run)?;
                Ok(run.durations)
            };
            let spawn = |_| {
                let spawned = thread::Builder::new().spawn_scoped(scope, life);
                spawned.inspect_err(|_| start.give_up())
            };
            let threads: Vec<_> = (0..self.tasks).map(spawn).collect::<io::Result<_>>()?;
            // They begin when this thread arrives, whose clock is read first.
            let arrived = start.see(self.tasks as usize, || false);
            let (before, begun) = (cpu_time(), Instant::now());
            let began = arrived.and_then(|()| start.wait_for(participants));
            if began.is_ok() {
                thread::sleep(self.window);
            }
            over.store(true, Ordering::Relaxed);
            let mut all = Durations::new()?;
            for thread in threads {
                let ended = thread.join();
                let panicked = |_| Err(io::Error::other("a task panicked"));
                all.merge(&ended.unwrap_or_else(panicked)?)?;
            }
            let seconds = begun.elapsed().as_secs_f64();
            let used = cpu_time().saturating_sub(before).as_secs_f64();
            let operations = all.len() as f64;
            Ok(Sample {
                figure: all.percentile(99.0),
                extra: vec![
                    ("ops_per_second", operations / seconds),
                    ("ops_per_cpu_second", operations / used.max(1e-6)),
                    (
                        "cpu_percent",
                        100.0 * used / seconds / machine::cpus().len() as f64,
                    ),
                ],
                timed: Some(Timed {
                    durations: all,
                    of: "operation",
                    unit: Unit::Ns,
                }),
            })
        })
    }
}
