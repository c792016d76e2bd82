//! N tasks repeatedly acquire one lock and work for a moment: throughput, fairness and waits.
//!
//! Source: Waiman Long's microbenchmark (`perf bench futex mutex` in *TP-futex*, version 6 of the patch set, 2017). It
//! pins the tasks; here the scheduler places them, since there may be many times as many tasks as CPUs. [`contention`]
//! describes what is measured, and the units of the work.
//!
//! The tasks are threads or forked processes; locks for threads have no rows with processes. At the usual load all task
//! counts and both kinds are measured. The other loads of Long's tables, and the shares of sections that sleep, are
//! measured with the most threads only, so that all of it takes about 25 minutes on 2 CPUs; `--load` measures the given
//! loads in every way. With `--quick`, only the usual load and a few sleeps are measured, processes only in the
//! smallest and the largest number, so that both kinds end within 45 s. `--window` is the length of a sample: by default
//! half of that of other scenarios.
//!
//! Further figures: operations per second of the slowest, average and fastest task; the slowest in per cent of the
//! average; the deviation as perf computes it (in per cent of the average); how many times a task went to sleep waiting
//! (the kernel's count of voluntary switches, minus the sleeps of sections; per 1,000 operations); and from another run
//! the distribution of the waits. For each of Latchwork's locks also what its slow paths did, per 1,000 operations (see
//! [`contention`]). The throughput lock can count by itself, too: how it was acquired (Long's acquisition codes), and
//! where its waiters slept; it does so in a third run, since that has a cost.
//!
//! Long's figures (36 threads on 36 CPUs, 80 on a Power8; 10 s) are shown where the parameters are the same: his
//! wait-wake, TP and PI futexes beside Latchwork's protocols of these kinds, his glibc beside glibc ([`published`]).

mod published;

use std::io;
use std::time::Duration;

use super::contention::{
    self, Contenders, EVERY_SECTION, Turn, USUAL_LOAD, WaitTimer, Work, Worker,
};
use super::{Prepared, Scenario};
use crate::Load;
use crate::measure::{Case, Sampler};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::{Lock, SharedPage, placed};
use crate::plan::Plan;
use crate::published::{Experiment, Source, TP_FUTEX};
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
    locks::IN_REGION,
    locks::IN_REGION_THROUGHPUT,
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

/// Those of Long's tables.
const LOADS: [u32; 8] = [1, 5, 10, 20, 30, 40, 50, 100];
/// One section in 1,024, or all of them.
const SLEEPS: [u32; 2] = [1, EVERY_SECTION];

impl Scenario for FutexLock {
    fn name(&self) -> &'static str {
        "futex-lock"
    }

    fn about(&self) -> &'static str {
        "N tasks take one lock and work for a moment; operations per second of all tasks, and how \
         evenly they are shared"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &TP_FUTEX,
            place: ": the tables",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        locks::GLIBC.name
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn varies_loads(&self) -> bool {
        true
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let tasks = contention::tasks(plan, &mut prepared.warnings);
        let peers = self.available(plan);
        let window = plan.chosen_window.unwrap_or(plan.window / 2);
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
                if let Some(counted) = peer.counted()
                    && let Ok(count) = counted.visit(between, Count(contend))
                {
                    sampler = with_counts(sampler, count);
                }
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

/// Which work is measured with which tasks: each chosen load with all of them; without a choice, all of them have the
/// usual load, and the most threads have everything else, too.
fn setups(plan: &Plan, tasks: &[u32]) -> Vec<(Work, Contenders)> {
    let most = tasks.iter().copied().max().unwrap_or(1);
    let computing = |load| Work { load, sleeps: 0 };
    let sleeping = |sleeps| Work {
        load: USUAL_LOAD,
        sleeps,
    };
    let of_load = |load: &Load| match load {
        Load::Pauses(pauses) => computing(*pauses),
        Load::Sleep => sleeping(EVERY_SECTION),
    };
    let with_all: Vec<Work> = if plan.loads.is_empty() {
        vec![computing(USUAL_LOAD)]
    } else {
        plan.loads.iter().map(of_load).collect()
    };
    let others = LOADS.into_iter().filter(|load| *load != USUAL_LOAD);
    let with_most: Vec<Work> = match (plan.loads.is_empty(), plan.quick) {
        (true, true) => vec![sleeping(1)],
        (true, false) => others
            .map(computing)
            .chain(SLEEPS.into_iter().map(sleeping))
            .collect(),
        (false, _) => Vec::new(),
    };

    let mut setups = Vec::new();
    for kind in [Kind::Threads, Kind::Processes] {
        let is_quick = |tasks: &&u32| kind == Kind::Threads || [2, most].contains(tasks);
        for &work in &with_all {
            let counts = tasks.iter().filter(|tasks| !plan.quick || is_quick(tasks));
            setups.extend(counts.map(|&tasks| (work, Contenders { kind, tasks })));
        }
        if kind == Kind::Threads {
            let contenders = Contenders { kind, tasks: most };
            setups.extend(with_most.iter().map(|&work| (work, contenders)));
        }
    }
    setups
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
    const OURS: bool = L::OURS;

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
    use crate::args::Options;

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
        assert_eq!(sets(false).len(), 4);
    }

    #[test]
    fn a_chosen_load_is_measured_in_every_way() {
        let mut plan = Plan::tiny();
        plan.quick = false;
        plan.loads = vec![Load::Pauses(20), Load::Sleep];
        let setups = setups(&plan, &[1, 8]);
        for (load, sleeps) in [(20, 0), (USUAL_LOAD, EVERY_SECTION)] {
            for kind in [Kind::Threads, Kind::Processes] {
                for tasks in [1, 8] {
                    let is_this = |(work, contenders): &&(Work, Contenders)| {
                        (work.load, work.sleeps) == (load, sleeps)
                            && (contenders.kind, contenders.tasks) == (kind, tasks)
                    };
                    assert_eq!(setups.iter().filter(is_this).count(), 1);
                }
            }
        }
        assert_eq!(setups.len(), 8);
    }

    #[test]
    fn a_complete_run_has_all_loads_and_takes_less_than_half_an_hour() {
        let options = Options::default();
        let plan = Plan::new(&options).unwrap();
        let tasks = contention::tasks(&plan, &mut Vec::new());
        let setups = setups(&plan, &tasks);
        for load in LOADS {
            let is_this = |(work, contenders): &(Work, Contenders)| {
                (work.load, work.sleeps) == (load, 0)
                    && (contenders.kind, contenders.tasks) == (Kind::Threads, 36)
            };
            assert!(setups.iter().any(is_this), "{load}");
        }
        assert!(setups.iter().any(|(work, _)| work.sleeps == EVERY_SECTION));
        let rows: usize = setups
            .iter()
            .map(|(_, contenders)| match contenders.kind {
                Kind::Threads => PEERS.len(),
                // All but those for the threads of one process.
                _ => PEERS.len() - 4,
            })
            .sum();
        // A window and half a window, each with a warm-up of an eighth of it.
        let seconds = rows as f64 * 5.0 * (plan.window / 2).as_secs_f64() * 1.5 * 1.125;
        assert!((1200.0..1800.0).contains(&seconds), "{seconds} s");
    }
}
