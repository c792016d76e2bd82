//! N tasks repeatedly acquire one reader/writer lock, most of them to read: throughput, fairness and waits.
//!
//! Source: Waiman Long's microbenchmark (`perf bench futex rwlock` in *TP-futex*, 2017), in which each task reads or
//! writes at random. Measured as in `futex-lock`; see [`contention`]. Long published figures for 36 tasks that read half
//! of the time. He does not state the load, so only their proportions are shown, on the page of a report ([`published`]).

mod published;

use std::time::Duration;

use super::contention::{self, Contenders, Turn, USUAL_LOAD, WaitTimer, Work, Worker};
use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::measure::{Case, Sampler};
use crate::peers::rwlocks::{self, Peer, Visitor, placed};
use crate::peers::{RwLock, SharedPage};
use crate::plan::Plan;
use crate::published::{Experiment, Source, TP_FUTEX};
use crate::result::{Kind, Params, Placement, Unit};

pub(super) struct FutexRwLock;

const READ_PCT: [u32; 3] = [50, 90, 99];

impl Scenario for FutexRwLock {
    fn name(&self) -> &'static str {
        "futex-rwlock"
    }

    fn about(&self) -> &'static str {
        "N tasks take one reader/writer lock and work for a moment; operations per second of all \
         tasks, and how evenly they are shared"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &TP_FUTEX,
            place: ", and in the same patch set `perf bench futex rwlock`",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        Peer::Glibc.name()
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn contestants(&self) -> Vec<Contestant> {
        let ready = |peer: &Peer| Contestant::ready(peer.name());
        rwlocks::ALL.iter().map(ready).collect()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let tasks = contention::tasks(plan, &mut prepared.warnings);
        for read_pct in READ_PCT {
            for &tasks in &tasks {
                for peer in rwlocks::ALL.iter() {
                    if !plan.wants(self.base(), peer.name()) {
                        continue;
                    }
                    let params = Params {
                        tasks: Some(tasks),
                        load: Some(USUAL_LOAD),
                        read_pct: Some(read_pct),
                        placement: Some(Placement::Free),
                        kind: Some(Kind::Threads),
                        ..Params::default()
                    };
                    prepared.cases.push(Case {
                        contestant: peer.name(),
                        params: params.clone(),
                        group: params,
                        is_base: peer.name() == self.base(),
                        unit: Unit::OpsPerSecond,
                        further: Vec::new(),
                        sampler: peer.visit(Contend {
                            contenders: Contenders {
                                kind: Kind::Threads,
                                tasks,
                            },
                            read_pct,
                            window: plan.window,
                        }),
                    });
                }
            }
        }
        prepared
    }
}

/// Measures a lock.
struct Contend {
    contenders: Contenders,
    read_pct: u32,
    window: Duration,
}

impl Visitor for Contend {
    type Output = Sampler;

    fn visit<L: RwLock>(self, make: impl Fn() -> L + Send + Sync + 'static) -> Sampler {
        let work = Work {
            load: USUAL_LOAD,
            sleeps: 0,
        };
        Box::new(move || {
            let turn = ReadOrWrite {
                lock: placed(make())?,
                read_pct: self.read_pct,
            };
            contention::measure(&turn, self.contenders, work, self.window)
        })
    }
}

/// Reads the datum beside a lock, or increments it.
struct ReadOrWrite<L> {
    lock: SharedPage<L>,
    read_pct: u32,
}

impl<L: RwLock> Turn for ReadOrWrite<L> {
    const OURS: bool = L::OURS;

    #[inline]
    fn turn<W: WaitTimer>(&self, worker: &mut Worker<W>) {
        if worker.roll(100) < self.read_pct {
            let held = worker.wait(|| self.lock.pin().read());
            std::hint::black_box(*held);
            worker.section();
        } else {
            let mut held = worker.wait(|| self.lock.pin().write());
            *held += 1;
            worker.section();
        }
    }
}
