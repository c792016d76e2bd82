//! Files created and removed by many tasks under one lock: how much faster a mutex is than a semaphore.
//!
//! Source: `test-mutex V 16 10`, with which the generic mutex subsystem of Linux was introduced (2005): 16 tasks
//! create, unlink and close files of their own in one directory. There the lock was the directory's, in the kernel;
//! here it is the contestant's, around creating and around unlinking. (So the kernel's own lock is never contended.)
//! The figure is loops per second, of all tasks together; further figures are the process's share of all processors'
//! time, and the loops for each per cent of it.

mod published;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::start::Start;
use super::{Prepared, Scenario};
use crate::machine;
use crate::measure::{Case, Sample, Sampler};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::{Lock, SharedPage, cpu_time, placed};
use crate::plan::Plan;
use crate::published::{Experiment, GENERIC_MUTEX, Source};
use crate::result::{Kind, Params, Unit};

pub(super) struct Vfs;

/// Three semaphores, then the mutexes.
const PEERS: [&Peer; 3 + locks::MUTEXES.len()] = {
    let mut peers = [locks::GLIBC_SEM; 3 + locks::MUTEXES.len()];
    peers[1] = locks::SEMAPHORE_COUNTING;
    peers[2] = locks::SYSV;
    let (_, mutexes) = peers.split_at_mut(3);
    mutexes.copy_from_slice(&locks::MUTEXES);
    peers
};

impl Scenario for Vfs {
    fn name(&self) -> &'static str {
        "vfs"
    }

    fn about(&self) -> &'static str {
        "16 tasks create, unlink and close files of their own under one lock: semaphore against mutex; loops/s"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &GENERIC_MUTEX,
            place: ": `test-mutex V 16 10`",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        locks::GLIBC_SEM.name
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn locks(&self) -> &'static [&'static Peer] {
        &PEERS
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let own = [published::TASKS];
        let tasks = plan.tasks_or(&own);
        for &tasks in tasks {
            for peer in self.available(plan) {
                let params = Params {
                    tasks: Some(tasks),
                    kind: Some(Kind::Threads),
                    ..Params::default()
                };
                let workload = Workload {
                    tasks,
                    window: plan.window,
                };
                let Ok(sampler) = peer.visit(Between::Threads, workload) else {
                    continue;
                };
                prepared.cases.push(Case {
                    contestant: peer.name,
                    params: params.clone(),
                    group: params,
                    is_base: peer.name == self.base(),
                    unit: Unit::OpsPerSecond,
                    further: Vec::new(),
                    sampler,
                });
            }
        }
        prepared
    }
}

/// The number of tasks, and the time.
#[derive(Clone, Copy)]
struct Workload {
    tasks: u32,
    window: Duration,
}

impl Visitor for Workload {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        Box::new(move || {
            let lock = placed(make()?)?;
            let scratch = tempfile::Builder::new()
                .prefix("latchwork-bench-")
                .tempdir()?;
            self.measure(&lock, scratch.path())
        })
    }
}

impl Workload {
    fn measure<L: Lock>(self, lock: &SharedPage<L>, scratch: &Path) -> io::Result<Sample> {
        let (start, over) = (Start::default(), AtomicBool::new(false));
        let participants = self.tasks as usize + 1;
        thread::scope(|scope| {
            let work = |number: u32| {
                let file = scratch.join(number.to_string());
                let (start, over) = (&start, &over);
                move || {
                    let enlisted = L::enlist().inspect_err(|_| start.give_up())?;
                    start.wait_for(participants)?;
                    let mut loops = 0_u64;
                    // Relaxed: nothing else is handed over.
                    while !over.load(Ordering::Relaxed) {
                        let held = lock.pin().lock();
                        let opened = fs::File::create(&file);
                        drop(held);
                        let opened = opened?;
                        let held = lock.pin().lock();
                        let removed = fs::remove_file(&file);
                        drop(held);
                        removed?;
                        drop(opened);
                        loops += 1;
                    }
                    drop(enlisted);
                    Ok(loops)
                }
            };
            let mut threads = Vec::new();
            for number in 0..self.tasks {
                match thread::Builder::new().spawn_scoped(scope, work(number)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        start.give_up();
                        return Err(error);
                    }
                }
            }
            // The tasks begin when this thread arrives: its clock is read first, however late it continues.
            let arrived = start.see(self.tasks as usize, || false);
            let (before, begun) = (cpu_time(), Instant::now());
            let began = arrived.and_then(|()| start.wait_for(participants));
            if began.is_ok() {
                thread::sleep(self.window);
            }
            over.store(true, Ordering::Relaxed);
            let panicked = |_| Err(io::Error::other("a task panicked"));
            let loops = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(panicked))
                .sum::<io::Result<u64>>()?;
            let seconds = begun.elapsed().as_secs_f64();
            let used = cpu_time().saturating_sub(before).as_secs_f64();
            let percent = 100.0 * used / seconds / machine::cpus().len() as f64;
            let per_second = loops as f64 / seconds;
            Ok(Sample {
                figure: per_second,
                extra: vec![
                    ("cpu_percent", percent),
                    ("loops_per_cpu_percent", per_second / percent.max(0.01)),
                ],
                timed: None,
            })
        })
    }
}
