//! Operations while other programs compete for the CPUs: as many spinning programs as there are processors, or twice as
//! many, or a quota of half a processor.
//!
//! The figure is the 99th percentile of the time of an operation, as one task measures it: a lock acquired and
//! released, a block of 1 KiB allocated and freed, or a message sent and one received. Further figures are the median, the 99.99th percentile (about as
//! few operations meet the end of a time slice), the maximum, operations per second, and operations per second of
//! processor time: a lock whose waiters spin is fast on a quiet machine, and here consumes time that others could have
//! used.
//!
//! The spinning programs are children of this process (see `background.rs`), and end with each sample.
#![allow(unsafe_code)]

mod queues;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::start::Start;
use super::{Prepared, Scenario};
use latchwork::region::{Region, RegionOptions};

use crate::contestant::Contestant;
use crate::histogram::Durations;
use crate::machine;
use crate::measure::{Case, Sample, Sampler};
use crate::peers::background::{Quota, Spinners};
use crate::peers::heap::{Heap, Malloc, touched};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::{Lock, cpu_time, placed};
use crate::plan::Plan;
use crate::result::{Kind, Params, Unit, Variant, Warning};

pub(super) struct Busy;

const PEERS: &[&Peer] = &locks::MUTEXES;
const MALLOC: &str = "malloc";
const HEAP: &str = "latchwork heap";

/// Spinning programs for each processor.
const SPINNERS: [u32; 3] = [0, 1, 2];
/// In per cent of one processor.
const QUOTA: u32 = 50;
/// Pauses in a critical section, and between two.
const LOAD: u32 = 20;
const BETWEEN: u32 = 100;
const BLOCK: usize = 1024;

impl Scenario for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn about(&self) -> &'static str {
        "locks, heaps and queues beside programs that spin, or with half a processor; ns that 99 of 100 operations take at most"
    }

    fn base(&self) -> &'static str {
        locks::GLIBC.name
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn contestants(&self) -> Vec<Contestant> {
        let locks = PEERS.iter().map(|peer| peer.contestant());
        let heaps = [MALLOC, HEAP].map(Contestant::ready);
        locks.chain(heaps).chain(queues::contestants()).collect()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let cpus = u32::try_from(machine::cpus().len()).unwrap_or(1);
        let own = [2 * cpus];
        let tasks = plan.tasks_or(&own);
        let mut backgrounds: Vec<Background> = SPINNERS
            .map(|times| Background::Spinners(times * cpus))
            .to_vec();
        if plan.may_be_confined() {
            match Quota::enter(QUOTA) {
                Ok(_) => backgrounds.push(Background::Quota),
                Err(error) => prepared.warnings.push(Warning::Skipped {
                    text: format!("a quota of half a processor skipped: {error}"),
                }),
            }
        }
        for background in backgrounds {
            for &tasks in tasks {
                let workload = Workload {
                    tasks,
                    window: plan.window,
                    background,
                };
                for peer in self.available(plan) {
                    if let Ok(sampler) = peer.visit(Between::Threads, workload) {
                        let case = Variant::ContestedMutex;
                        prepared
                            .cases
                            .push(workload.case(case, peer.name, self.base(), sampler));
                    }
                }
                for (name, sampler) in heaps(plan, workload, &mut prepared.warnings) {
                    prepared
                        .cases
                        .push(workload.case(Variant::Pair, name, MALLOC, sampler));
                }
                for (name, sampler) in queues::samplers(plan, workload) {
                    let case = workload.case(Variant::Message, name, queues::BASE, sampler);
                    prepared.cases.push(case);
                }
            }
        }
        prepared
    }
}

/// The heaps that `plan` wants; if it wants one, the other one is the base.
fn heaps(
    plan: &Plan,
    workload: Workload,
    warnings: &mut Vec<Warning>,
) -> Vec<(&'static str, Sampler)> {
    let mut heaps: Vec<(&'static str, Sampler)> = Vec::new();
    if plan.names(HEAP) {
        let options = RegionOptions::new().max_bytes(64 << 20);
        let options = options.max_tasks(u16::try_from(2 * workload.tasks + 2).unwrap_or(u16::MAX));
        match options.label("bench").create_anonymous() {
            Ok(region) => heaps.push((HEAP, workload.on_heap::<Region>(region))),
            Err(error) => warnings.push(Warning::Skipped {
                text: format!("{HEAP} skipped: {error}"),
            }),
        }
    }
    if plan.names(MALLOC) || !heaps.is_empty() {
        heaps.push((MALLOC, workload.on_heap(Malloc)));
    }
    heaps
}

/// The disturbances of a sample.
#[derive(Clone, Copy)]
enum Background {
    Spinners(u32),
    Quota,
}

/// The number of tasks, the time, and the disturbance.
#[derive(Clone, Copy)]
struct Workload {
    tasks: u32,
    window: Duration,
    background: Background,
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
struct TaskRun<'a> {
    start: &'a Start,
    participants: usize,
    over: &'a AtomicBool,
    durations: Durations,
}

impl TaskRun<'_> {
    /// Waits for the others, then repeats `once` until the end, at least once, and records the time of each.
    fn work(&mut self, mut once: impl FnMut() -> io::Result<()>) -> io::Result<()> {
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
    fn case(
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

    fn on_heap<H: Heap>(self, heap: H) -> Sampler {
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

    fn measure(
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
                    ("median_ns", all.percentile(50.0)),
                    ("p9999_ns", all.percentile(99.99)),
                    ("longest_us", all.longest() / 1000.0),
                    ("ops_per_second", operations / seconds),
                    ("ops_per_cpu_second", operations / used.max(1e-6)),
                    (
                        "cpu_percent",
                        100.0 * used / seconds / machine::cpus().len() as f64,
                    ),
                ],
            })
        })
    }
}
