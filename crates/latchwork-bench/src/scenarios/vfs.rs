//! Files created and removed by many tasks under one lock: how much faster a mutex is than a semaphore.
//!
//! Source: `test-mutex V 16 10`, with which the generic mutex subsystem of Linux was introduced (2005): 16 tasks
//! create, unlink and close files of their own in one directory. There the lock was the directory's, in the kernel;
//! here it is the contestant's, around creating and around unlinking. (So the kernel's own lock is never contended.)
//! The figure is loops per second, of all tasks together; further figures are the process's share of all processors'
//! time, and the loops for each per cent of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::start::Start;
use super::{Prepared, Scenario};
use crate::machine;
use crate::measure::{Case, Sample, Sampler};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::{Lock, Place, cpu_time, placed};
use crate::plan::Plan;
use crate::result::{Kind, Params, Unit};

pub(super) struct Vfs;

/// The original experiment's number.
const TASKS: u32 = 16;

const PEERS: &[&Peer] = &[
    locks::GLIBC_SEM,
    locks::SEMAPHORE_COUNTING,
    locks::SYSV,
    locks::WAIT_WAKE,
    locks::THROUGHPUT,
    locks::INHERIT,
    locks::ROBUST,
    locks::GLIBC,
    locks::STD,
    locks::PARKING_LOT,
];

impl Scenario for Vfs {
    fn name(&self) -> &'static str {
        "vfs"
    }

    fn about(&self) -> &'static str {
        "16 tasks create, unlink and close files of their own under one lock: semaphore against mutex; loops/s"
    }

    fn base(&self) -> &'static str {
        locks::GLIBC_SEM.name
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let own = [TASKS];
        let tasks: &[u32] = if plan.tasks.is_empty() {
            &own
        } else {
            &plan.tasks
        };
        for &tasks in tasks {
            for peer in self.available(plan) {
                let params = Params {
                    tasks: Some(tasks),
                    kind: Some(Kind::Threads),
                    ..Params::default()
                };
                let crowd = Crowd {
                    tasks,
                    window: plan.window,
                };
                let Ok(sampler) = peer.visit(Between::Threads, crowd) else {
                    continue;
                };
                prepared.cases.push(Case {
                    contestant: peer.name,
                    params: params.clone(),
                    group: params,
                    is_base: peer.name == self.base(),
                    unit: Unit::OpsPerSecond,
                    beside: published(peer.name, tasks),
                    sampler,
                });
            }
        }
        prepared
    }
}

/// The figures of 2005: 8 processors, and 2 with 2 threads each.
fn published(contestant: &str, tasks: u32) -> Vec<(&'static str, f64)> {
    let [loops, cpu, of_four, cpu_of_four] = match contestant {
        _ if tasks != TASKS => return Vec::new(),
        "glibc sem" => [34_713.0, 63.0, 127_659.0, 100.0],
        "latchwork wait-wake" => [84_153.0, 22.0, 181_082.0, 34.0],
        _ => return Vec::new(),
    };
    vec![
        ("published_8_cpus", loops),
        ("published_8_cpus_percent", cpu),
        ("published_4_cpus", of_four),
        ("published_4_cpus_percent", cpu_of_four),
    ]
}

/// The number of tasks, and the time.
#[derive(Clone, Copy)]
struct Crowd {
    tasks: u32,
    window: Duration,
}

impl Visitor for Crowd {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        Box::new(move || {
            let lock = placed(make()?)?;
            let folder = Folder::new()?;
            self.measure(&lock, &folder.0)
        })
    }
}

impl Crowd {
    fn measure<L: Lock>(self, lock: &Place<L>, folder: &Path) -> io::Result<Sample> {
        let (start, over) = (Start::default(), AtomicBool::new(false));
        let everybody = self.tasks as usize + 1;
        thread::scope(|scope| {
            let work = |number: u32| {
                let file = folder.join(number.to_string());
                let (start, over) = (&start, &over);
                move || {
                    let enlisted = L::enlist().inspect_err(|_| start.give_up())?;
                    start.wait_for(everybody)?;
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
            let here = start.see(self.tasks as usize, || false);
            let (before, begun) = (cpu_time(), Instant::now());
            let began = here.and_then(|()| start.wait_for(everybody));
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
            })
        })
    }
}

/// A folder that is removed with its files.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("latchwork-vfs-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // An error is ignored: leftovers do no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
