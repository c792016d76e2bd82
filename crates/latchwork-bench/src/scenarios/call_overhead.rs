//! What locking costs where nobody waits: one task locks a free lock, increments the datum beside
//! it, and unlocks. Other threads exist, asleep: in a process of one thread glibc leaves its atomics
//! out, and would measure something no program with a lock does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Absent, Contestant, Prepared, Scenario};
use crate::measure::{Case, Pace, Sample, Sampler};
use crate::peers::pthread::{self, Attributes};
use crate::peers::{FreeLock, Line, dynamic, floor, ours, semaphore, with_fifo};
use crate::plan::Plan;
use crate::result::{Params, Unit};

pub(super) struct CallOverhead;

/// Threads asleep while the task is measured.
const PARKED: usize = 4;

/// The ceiling of priority protection, and a priority below it. Both far below what watchdogs use.
const CEILING: i32 = 20;
const BELOW_CEILING: i32 = 10;

/// Builds a contestant and its measurement, whose samples take so long; or says why it cannot.
type Build = fn(Duration) -> Result<Sampler, String>;

/// A contestant: its name, and how it is built and measured.
struct Entry {
    name: &'static str,
    package: Option<&'static str>,
    build: Build,
}

const fn entry(name: &'static str, build: Build) -> Entry {
    Entry {
        name,
        package: None,
        build,
    }
}

const fn packaged(name: &'static str, package: &'static str, build: Build) -> Entry {
    Entry {
        name,
        package: Some(package),
        build,
    }
}

const ENTRIES: &[Entry] = &[
    entry("latchwork wait-wake", |sample| {
        on_this_thread(sample, Ok(latchwork::mutex::Mutex::new(0)))
    }),
    entry("latchwork robust", |sample| {
        on_this_thread(sample, Ok(ours::RobustMutex))
    }),
    entry("glibc normal", |sample| {
        glibc(sample, Attributes::default())
    }),
    entry("glibc adaptive", |sample| {
        glibc(
            sample,
            Attributes {
                adaptive: true,
                ..Attributes::default()
            },
        )
    }),
    entry("glibc robust", |sample| {
        glibc(
            sample,
            Attributes {
                robust: true,
                ..Attributes::default()
            },
        )
    }),
    entry("glibc PI", |sample| {
        glibc(
            sample,
            Attributes {
                inherit: true,
                ..Attributes::default()
            },
        )
    }),
    entry("glibc robust-PI", |sample| {
        glibc(
            sample,
            Attributes {
                robust: true,
                inherit: true,
                ..Attributes::default()
            },
        )
    }),
    entry("glibc PP", |sample| glibc_protect(sample, BELOW_CEILING)),
    entry("glibc PP-at-ceiling", |sample| {
        glibc_protect(sample, CEILING)
    }),
    entry("glibc rwlock", |sample| {
        on_this_thread(sample, Ok(pthread::RwLock::new()))
    }),
    entry("glibc sem", |sample| {
        on_this_thread(sample, semaphore::Posix::new())
    }),
    entry("std", |sample| {
        on_this_thread(sample, Ok(std::sync::Mutex::new(0)))
    }),
    entry("parking_lot", |sample| {
        on_this_thread(sample, Ok(parking_lot::Mutex::new(0)))
    }),
    packaged("nsync", "libnsync1", |sample| {
        on_this_thread(sample, Ok(dynamic::Mutex::nsync()?))
    }),
    packaged("absl", "libabsl-dev", |sample| {
        on_this_thread(sample, Ok(dynamic::Mutex::absl()?))
    }),
    entry("sysv-sem", |sample| {
        on_this_thread(sample, semaphore::SysV::new(false))
    }),
    entry("sysv-sem-undo", |sample| {
        on_this_thread(sample, semaphore::SysV::new(true))
    }),
    entry("floor two-rmw", |sample| {
        on_this_thread(sample, Ok(floor::TwoRmw::default()))
    }),
];

impl Scenario for CallOverhead {
    fn name(&self) -> &'static str {
        "call-overhead"
    }

    fn about(&self) -> &'static str {
        "one task locks and unlocks a free lock; ns per pair"
    }

    fn base(&self) -> &'static str {
        "glibc normal"
    }

    fn contestants(&self) -> Vec<Contestant> {
        let absent = |entry: &Entry| {
            (entry.build)(Duration::ZERO).err().map(|reason| Absent {
                reason,
                package: entry.package,
            })
        };
        ENTRIES
            .iter()
            .map(|entry| Contestant {
                name: entry.name,
                absent: absent(entry),
            })
            .collect()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let params = Params {
            tasks: Some(1),
            ..Params::default()
        };
        let cases = ENTRIES
            .iter()
            .filter(|entry| plan.wants(self, entry.name))
            .filter_map(|entry| {
                Some(Case {
                    contestant: entry.name,
                    params: params.clone(),
                    group: params.clone(),
                    is_base: entry.name == self.base(),
                    unit: Unit::Ns,
                    beside: Vec::new(),
                    sampler: (entry.build)(plan.sample).ok()?,
                })
            })
            .collect();
        Prepared {
            cases,
            company: Some(Box::new(Parked::new(PARKED))),
            ..Prepared::default()
        }
    }
}

/// Measures `lock` on the thread that calls the sampler.
fn on_this_thread<L: FreeLock>(sample: Duration, lock: io::Result<L>) -> Result<Sampler, String> {
    let text = |error: io::Error| error.to_string();
    let lock = Line(lock.map_err(text)?);
    lock.0.check().map_err(text)?;
    let mut pace = Pace::new(sample);
    Ok(Box::new(move || take(&mut pace, &lock)))
}

/// Takes the whole line, lest a closure capture the lock alone and put it anywhere.
fn take<L: FreeLock>(pace: &mut Pace, lock: &Line<L>) -> io::Result<Sample> {
    let figure = pace.ns_per_call(|| {
        lock.0.increment();
        Ok(())
    })?;
    Ok(figure.into())
}

fn glibc(sample: Duration, attributes: Attributes) -> Result<Sampler, String> {
    on_this_thread(sample, pthread::Mutex::new(attributes))
}

/// glibc refuses priority protection to tasks that are not real-time tasks.
fn glibc_protect(sample: Duration, priority: i32) -> Result<Sampler, String> {
    let attributes = Attributes {
        ceiling: Some(CEILING),
        ..Attributes::default()
    };
    let lock = Line(pthread::Mutex::new(attributes).map_err(|error| error.to_string())?);
    with_fifo(priority, || lock.0.check()).map_err(|error| {
        format!("{error}; it needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of {CEILING}, for SCHED_FIFO")
    })?;
    let mut pace = Pace::new(sample);
    Ok(Box::new(move || {
        with_fifo(priority, || take(&mut pace, &lock))
    }))
}

/// Threads that sleep until this is dropped.
struct Parked {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Parked {
    fn new(count: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let sleeper = |_| {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                // Relaxed: unpark and park order what little there is to order.
                while !over.load(Ordering::Relaxed) {
                    thread::park();
                }
            })
        };
        let threads = (0..count).map(sleeper).collect();
        Self { over, threads }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        // Relaxed: see above.
        self.over.store(true, Ordering::Relaxed);
        for sleeper in self.threads.drain(..) {
            sleeper.thread().unpark();
            // A sleeper runs nothing that panics.
            let _ = sleeper.join();
        }
    }
}
