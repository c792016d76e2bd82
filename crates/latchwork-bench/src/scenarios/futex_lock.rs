//! N tasks repeatedly acquire one lock and work for a moment: throughput, fairness and waits.
//!
//! Source: Waiman Long's microbenchmark (`perf bench futex mutex` in *TP-futex*, version 6 of the patch set, 2017). It
//! pins the tasks; here the scheduler places them, since there may be many times as many tasks as CPUs. [`contention`]
//! describes what is measured, and the units of the work.
//!
//! The tasks are threads or forked processes; locks for threads have no rows with processes. With `--quick`, the task
//! counts are two processes and the largest number of threads, no task sleeps, and windows are half as long, so that
//! both kinds end within 45 s on 2 CPUs.
//!
//! Further figures: operations per second of the slowest, average and fastest task; the slowest in per cent of the
//! average; the deviation as perf computes it (in per cent of the average); how many times a task went to sleep waiting
//! (the kernel's count of voluntary switches, minus the sleeps of sections; per 1,000 operations); and from another run
//! the waits' median, 99th percentile and maximum. Latchwork's throughput lock can count its slow paths and how it was
//! acquired (Long's acquisition codes), per 1,000 operations; it does so in a third run.
//!
//! Long's figures (36 threads on 36 CPUs, 10 s) are shown where the parameters are the same: his wait-wake, TP and PI
//! futexes beside Latchwork's protocols of these kinds, his glibc beside glibc.

use std::io;
use std::ptr;
use std::time::Duration;

use super::contention::{self, Contenders, Turn, USUAL_LOAD, WaitTimer, Work, Worker};
use super::{Prepared, Scenario};
use crate::measure::{Case, Sampler};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::{Lock, SharedPage, placed};
use crate::plan::Plan;
use crate::result::{Kind, Params, Placement, Unit};

pub(super) struct FutexLock;

const PEERS: &[&Peer] = &[
    locks::GLIBC,
    locks::WAIT_WAKE,
    locks::THROUGHPUT,
    locks::INHERIT,
    locks::INHERIT_PLAIN,
    locks::PROTECT,
    locks::ROBUST,
    locks::ROBUST_INHERIT,
    locks::ROBUST_THROUGHPUT,
    locks::GLIBC_ADAPTIVE,
    locks::GLIBC_PI,
    locks::GLIBC_ROBUST,
    locks::STD,
    locks::PARKING_LOT,
    locks::NSYNC,
    locks::ABSL,
    locks::SPINNING,
];

const LOADS: [u32; 4] = [1, 10, 50, 100];
/// None, one in 1,024, all.
const SLEEPS: [u32; 3] = [0, 1, 1024];

/// Long's operations in 10 s: load, and those of wait-wake and TP futexes.
const LONG: [(u32, f64, f64); 4] = [
    (1, 49_065_154.0, 57_209_013.0),
    (10, 33_193_154.0, 47_696_618.0),
    (50, 16_103_078.0, 24_299_436.0),
    (100, 10_233_914.0, 14_375_505.0),
];
/// The same, with every section sleeping.
const LONG_SLEEPING: (f64, f64) = (178_018.0, 174_938.0);
/// At load 1: PI futexes and glibc.
const LONG_PI: f64 = 372_301.0;
const LONG_GLIBC: f64 = 39_667_389.0;
const LONG_TASKS: u32 = 36;

impl Scenario for FutexLock {
    fn name(&self) -> &'static str {
        "futex-lock"
    }

    fn about(&self) -> &'static str {
        "N tasks take one lock and work for a moment; operations per second of all tasks, and how \
         evenly they are shared"
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

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let tasks = contention::tasks(plan, &mut prepared.warnings);
        let peers = self.available(plan);
        let window = if plan.quick {
            plan.window / 2
        } else {
            plan.window
        };
        for (work, contenders) in setups(plan, &tasks) {
            let between = match contenders.kind {
                Kind::Threads => Between::Threads,
                Kind::Processes | Kind::Coprocs => Between::Processes,
            };
            for peer in &peers {
                let contend = Contend {
                    contenders,
                    work,
                    window,
                };
                let params = Params {
                    tasks: Some(contenders.tasks),
                    load: Some(work.load),
                    sleeps: Some(work.sleeps),
                    placement: Some(Placement::Free),
                    kind: Some(contenders.kind),
                    ..Params::default()
                };
                let Ok(mut sampler) = peer.visit(between, contend) else {
                    continue;
                };
                if ptr::eq(*peer, locks::THROUGHPUT)
                    && let Ok(count) = locks::THROUGHPUT_COUNTED.visit(between, Count(contend))
                {
                    sampler = with_counts(sampler, count);
                }
                prepared.cases.push(Case {
                    contestant: peer.name,
                    params: params.clone(),
                    group: params,
                    is_base: peer.name == self.base(),
                    unit: Unit::OpsPerSecond,
                    further: published(peer.name, contenders, work),
                    sampler,
                });
            }
        }
        prepared
    }
}

/// Which work is measured with which tasks. The share of sleeps is varied at the usual load.
fn setups(plan: &Plan, tasks: &[u32]) -> Vec<(Work, Contenders)> {
    let most = tasks.iter().copied().max().unwrap_or(1);
    let loads: &[u32] = if plan.quick { &[USUAL_LOAD] } else { &LOADS };
    let computing = loads.iter().map(|load| Work {
        load: *load,
        sleeps: 0,
    });
    let sleeping = SLEEPS.into_iter().filter(|sleeps| *sleeps > 0);
    let sleeping = sleeping
        .filter(|sleeps| !plan.quick || *sleeps == 1)
        .map(|sleeps| Work {
            load: USUAL_LOAD,
            sleeps,
        });
    let works: Vec<Work> = computing.chain(sleeping).collect();
    let mut setups = Vec::new();
    for kind in [Kind::Threads, Kind::Processes] {
        for &work in &works {
            let sets = tasks.iter().map(|&tasks| Contenders { kind, tasks });
            setups.extend(sets.map(|contenders| (work, contenders)));
        }
    }
    let quickly = |(work, contenders): &(Work, Contenders)| match contenders.kind {
        Kind::Threads => work.sleeps == 0 || contenders.tasks == most,
        Kind::Processes | Kind::Coprocs => {
            work.sleeps == 0 && [2, most].contains(&contenders.tasks)
        }
    };
    setups.retain(|setup| !plan.quick || quickly(setup));
    setups
}

/// Long's published figures for these parameters.
fn published(contestant: &str, contenders: Contenders, work: Work) -> Vec<(&'static str, f64)> {
    if (contenders.kind, contenders.tasks) != (Kind::Threads, LONG_TASKS) {
        return Vec::new();
    }
    let (load, sleeps) = (work.load, work.sleeps);
    let of_load = LONG.iter().find(|(published, ..)| *published == load);
    let columns = match sleeps {
        0 => of_load.map(|(_, wait_wake, throughput)| (*wait_wake, *throughput)),
        1024 => Some(LONG_SLEEPING),
        _ => None,
    };
    let usual = (load, sleeps) == (1, 0);
    let operations = match contestant {
        "latchwork wait-wake" => columns.map(|(wait_wake, _)| wait_wake),
        "latchwork throughput" => columns.map(|(_, throughput)| throughput),
        "latchwork inherit-plain" | "glibc PI" => usual.then_some(LONG_PI),
        "glibc normal" => usual.then_some(LONG_GLIBC),
        _ => None,
    };
    operations
        .map(|operations| ("published_long_ops/s", operations / 10.0))
        .into_iter()
        .collect()
}

/// Measures a lock.
#[derive(Clone, Copy)]
pub(super) struct Contend {
    pub(super) contenders: Contenders,
    pub(super) work: Work,
    pub(super) window: Duration,
}

impl Visitor for Contend {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        Box::new(move || {
            let lock = Increment(placed(make()?)?);
            contention::measure(&lock, self.contenders, self.work, self.window)
        })
    }
}

/// The counters of a lock that has any, per 1,000 operations.
type Counter = Box<dyn FnMut() -> io::Result<Vec<(&'static str, f64)>>>;

/// Counts, in a run of its own, since counting has a cost.
struct Count(Contend);

impl Visitor for Count {
    type Output = Counter;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Counter {
        let Contend {
            contenders,
            work,
            window,
        } = self.0;
        Box::new(move || {
            let lock = Increment(placed(make()?)?);
            let operations = contention::operations(&lock, contenders, work, window / 2)?;
            let per_1000 = |count: u64| 1000.0 * count as f64 / operations.max(1) as f64;
            let counts = lock.0.pin().counts();
            Ok(counts
                .into_iter()
                .map(|(name, count)| (name, per_1000(count)))
                .collect())
        })
    }
}

fn with_counts(mut sampler: Sampler, mut count: Counter) -> Sampler {
    Box::new(move || {
        let mut sample = sampler()?;
        sample.extra.extend(count()?);
        Ok(sample)
    })
}

/// Increments the datum beside a lock.
struct Increment<L>(SharedPage<L>);

impl<L: Lock> Turn for Increment<L> {
    fn begin(&self) -> io::Result<()> {
        self.0.pin().check()
    }

    #[inline]
    fn turn<W: WaitTimer>(&self, worker: &mut Worker<W>) {
        let mut held = worker.wait(|| self.0.pin().lock());
        *held += 1;
        worker.section();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_are_shown_with_the_measured_ones() {
        let at = |name, tasks, load, sleeps| {
            let kind = Kind::Threads;
            let published = published(name, Contenders { kind, tasks }, Work { load, sleeps });
            published.first().map(|(_, figure)| *figure)
        };
        assert_eq!(at("latchwork wait-wake", 36, 10, 0), Some(3_319_315.4));
        assert_eq!(at("glibc normal", 36, 1, 0), Some(3_966_738.9));
        assert_eq!(at("glibc normal", 36, 10, 0), None);
        assert_eq!(at("latchwork wait-wake", 36, 10, 1024), Some(17_801.8));
        assert_eq!(at("latchwork wait-wake", 36, 10, 1), None);
        assert_eq!(at("latchwork wait-wake", 8, 10, 0), None);
        assert_eq!(at("std", 36, 1, 0), None);
    }

    /// Checks that each operation that the tasks report has incremented the datum.
    struct Compare(Contenders);

    impl Visitor for Compare {
        type Output = io::Result<bool>;

        fn visit<L: Lock>(
            self,
            make: impl Fn() -> io::Result<L> + Send + Sync + 'static,
        ) -> Self::Output {
            let lock = Increment(placed(make()?)?);
            let work = Work { load: 1, sleeps: 1 };
            let operations = contention::operations(&lock, self.0, work, Duration::from_millis(5))?;
            Ok(*lock.0.pin().lock() == operations)
        }
    }

    #[test]
    fn all_operations_of_threads_and_of_processes_are_counted() {
        for (kind, between) in [
            (Kind::Threads, Between::Threads),
            (Kind::Processes, Between::Processes),
        ] {
            for peer in [
                locks::GLIBC,
                locks::WAIT_WAKE,
                locks::THROUGHPUT,
                locks::INHERIT,
                locks::ROBUST,
            ] {
                let compared = peer.visit(between, Compare(Contenders { kind, tasks: 3 }));
                assert!(compared.unwrap().unwrap(), "{} {kind}", peer.name);
            }
        }
    }

    #[test]
    fn processes_are_two_and_the_most_of_a_quick_run() {
        let sets = |quick| {
            let mut plan = Plan::tiny();
            plan.quick = quick;
            let mut sets = setups(&plan, &[1, 2, 4, 8]);
            sets.retain(|(_, contenders)| contenders.kind == Kind::Processes);
            sets
        };
        let quick = sets(true);
        assert!(quick.iter().all(|(work, _)| work.sleeps == 0));
        let tasks: Vec<u32> = quick
            .iter()
            .map(|(_, contenders)| contenders.tasks)
            .collect();
        assert_eq!(tasks, [2, 8]);
        assert_eq!(sets(false).len(), 4 * (LOADS.len() + SLEEPS.len() - 1));
    }
}
